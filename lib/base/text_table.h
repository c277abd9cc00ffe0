// SPDX-License-Identifier: BSD-3-Clause
// A table of aligned columns that fits a terminal.
//
//   TextTable table({{"NAME", TextColumn::kLeft}, {"SENT", TextColumn::kRight}});
//   table.Add({"mme", "1.5 KiB"});
//   Print(table.Format(TerminalWidth()));
//
// A stream, whose rows are not known beforehand, has columns of a fixed width:
//
//   TextLayout layout({{"NAME", TextColumn::kLeft, 0, 6, 16}}, TerminalWidth());
//   Print(layout.Header());
//   Print(layout.Line({"mme"}));
//
// Threads: any, each with a table of its own.

#ifndef NETMETER_LIB_BASE_TEXT_TABLE_H_
#define NETMETER_LIB_BASE_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct TextColumn {
  enum Side { kLeft, kRight };

  std::string header;
  Side side = kLeft;
  // If the line does not fit, the column with the highest number is dropped first. A
  // column with 0 stays.
  int drop = 0;
  // Left-aligned text is cut to this width before a column is dropped.
  size_t least = 24;
  // The minimum width of the column. Its header may make it wider.
  size_t width = 0;
};

// The columns of the terminal at stdout. 0 if stdout is not a terminal: lines to a file
// or a pipe have no limit.
size_t TerminalWidth();
// The lines of the terminal at stdout; 0 if stdout is not a terminal.
size_t TerminalHeight();

// Which columns are shown, and how wide each is.
class TextLayout {
 public:
  // Leaves out a column without width and header. `width` is the width of a line; 0 means
  // no limit. If a line does not fit, columns are dropped, and then left-aligned text is
  // cut, with "~" at its end. Lines may still be longer if the numbers alone do not fit.
  TextLayout(std::vector<TextColumn> columns, size_t width);

  // Each ends with a newline. `cells`: one for each column, safe for a terminal.
  std::string Header() const;
  std::string Line(const std::vector<absl::string_view>& cells) const;

 private:
  size_t Width(bool at_least) const;
  void CutText(size_t width, bool to_least);
  bool DropColumn();

  std::vector<TextColumn> columns_;
  std::vector<size_t> shown_;
  const bool cuts_;
};

class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns)
      : columns_(std::move(columns)) {}

  // One cell for each column, safe for a terminal.
  void Add(const std::vector<std::string>& cells) { AddRow(RowOf(cells)); }

  // Add() in two steps, for rows that are sorted in between.
  static std::string RowOf(const std::vector<std::string>& cells);
  void AddRow(std::string row);

  // The lines of the table, each behind `indent` blanks. Like TextLayout, with columns as
  // wide as their cells. Without any header there is no line for them.
  std::string Format(size_t width, size_t indent = 0) const;

 private:
  std::vector<TextColumn> columns_;
  // Cells, each followed by a NUL, to save memory: a host may have a million sockets.
  std::vector<std::string> rows_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_TEXT_TABLE_H_
