// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/text_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kSpace = 2;
// Text is cut to this before a column goes, ...
constexpr size_t kEnough = 24;
// ... and never to less than this.
constexpr size_t kLeast = 6;

// At most `count` characters.
std::string Cut(const std::string& utf8, size_t count) {
  if (CountCharacters(utf8) <= count) return utf8;
  size_t end = 0;
  for (size_t characters = 0; end < utf8.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(utf8[end]) & 0xc0) != 0x80;
    if (begins && ++characters == count) break;
  }
  return utf8.substr(0, end) + "~";
}

struct Layout {
  std::vector<size_t> shown;   // columns
  std::vector<size_t> widths;  // of all columns

  size_t Width() const {
    size_t width = shown.empty() ? 0 : (shown.size() - 1) * kSpace;
    for (const size_t column : shown) width += widths[column];
    return width;
  }
};

// Cuts the widest of the columns with text until the line fits or none is wider
// than `least`.
void CutText(const std::vector<TextColumn>& columns, size_t width, size_t least,
             Layout* layout) {
  while (layout->Width() > width) {
    size_t widest = columns.size();
    for (const size_t column : layout->shown) {
      if (columns[column].side == TextColumn::kLeft &&
          layout->widths[column] > least &&
          (widest == columns.size() ||
           layout->widths[column] > layout->widths[widest])) {
        widest = column;
      }
    }
    if (widest == columns.size()) return;
    --layout->widths[widest];
  }
}

bool DropColumn(const std::vector<TextColumn>& columns, Layout* layout) {
  const auto first =
      std::max_element(layout->shown.begin(), layout->shown.end(),
                       [&columns](size_t a, size_t b) {
                         return columns[a].drop < columns[b].drop;
                       });
  if (first == layout->shown.end() || columns[*first].drop == 0) return false;
  layout->shown.erase(first);
  return true;
}

winsize TerminalSize() {
  winsize size = {};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
    return winsize();
  }
  return size;
}

}  // namespace

size_t TerminalWidth() { return TerminalSize().ws_col; }
size_t TerminalHeight() { return TerminalSize().ws_row; }

std::string TextTable::Format(size_t width) const {
  Layout layout;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t widest = CountCharacters(columns_[i].header);
    for (const auto& row : rows_) {
      widest = std::max(widest, CountCharacters(row[i]));
    }
    if (widest > 0) layout.shown.push_back(i);
    layout.widths.push_back(widest);
  }
  if (width > 0) {
    CutText(columns_, width, kEnough, &layout);
    while (layout.Width() > width && DropColumn(columns_, &layout)) {
    }
    CutText(columns_, width, kLeast, &layout);
  }
  std::vector<std::string> header;
  for (const TextColumn& column : columns_) header.push_back(column.header);
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (const size_t i : layout.shown) {
      const std::string cell = Cut(row[i], layout.widths[i]);
      const std::string fill(layout.widths[i] - CountCharacters(cell), ' ');
      if (i != layout.shown.front()) line.append(kSpace, ' ');
      line += columns_[i].side == TextColumn::kLeft ? cell + fill : fill + cell;
    }
    // A line of exactly the terminal's width needs no more.
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_row(header);
  for (const auto& row : rows_) add_row(row);
  return text;
}

}  // namespace internal
}  // namespace netmeter
