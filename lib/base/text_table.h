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
  // If there is too little room, the column with the highest number goes first; one
  // with 0 stays.
  int drop = 0;
  // Text on the left is cut to this before a column goes.
  size_t least = 24;
  // The column is as wide as this, or as its header, at least.
  size_t width = 0;
};

// The columns of the terminal at stdout; 0 if it is none: no line is too long for a
// file or a pipe.
size_t TerminalWidth();
// Its lines; 0 if it is none.
size_t TerminalHeight();

// Which columns are shown, and how wide each is.
class TextLayout {
 public:
  // A column without width and header is left out. `width` is that of a line, 0: any.
  // If it is too little, columns go, and then text on the left is cut, with "~" at
  // its end. Lines may still be longer if not even numbers have room.
  TextLayout(std::vector<TextColumn> columns, size_t width);

  // With a newline each. `cells`: one for each column, safe for a terminal.
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

  // As TextLayout, with columns that are as wide as their cells.
  std::string Format(size_t width) const;

 private:
  std::vector<TextColumn> columns_;
  // Cells, with a NUL after each: a host may have a million sockets.
  std::vector<std::string> rows_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_TEXT_TABLE_H_
