// SPDX-License-Identifier: BSD-3-Clause
// A table of aligned columns that fits a terminal.
//
//   TextTable table({{"NAME", TextColumn::kLeft}, {"SENT", TextColumn::kRight}});
//   table.Add({"mme", "1.5 KiB"});
//   Print(table.Format(TerminalWidth()));
//
// Threads: any, each with a table of its own.

#ifndef NETMETER_LIB_TOOLS_TEXT_TABLE_H_
#define NETMETER_LIB_TOOLS_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct TextColumn {
  enum Side { kLeft, kRight };

  std::string header;
  Side side = kLeft;
  // Where there is too little room, that with the highest number goes first; one
  // with 0 stays.
  int drop = 0;
};

// The columns of the terminal at stdout; 0 where it is none: no line is too long for
// a file or a pipe.
size_t TerminalWidth();
// Its lines; 0 where it is none.
size_t TerminalHeight();

class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns)
      : columns_(std::move(columns)) {}

  // One cell for each column, safe for a terminal.
  void Add(std::vector<std::string> cells) {
    rows_.push_back(std::move(cells));
  }

  // A column that is empty, with its header, is left out.
  // `width` in characters, 0 for any. Where it is too little, columns go, and then
  // text of those on the left is cut, with "~" at its end. Lines may still be longer
  // where not even numbers have room.
  std::string Format(size_t width) const;

 private:
  std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_TEXT_TABLE_H_
