// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/text_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kSpace = 2;
// Text is never cut to fewer columns than this.
constexpr size_t kLeast = 6;

std::string Cut(absl::string_view utf8, size_t width) {
  if (DisplayWidth(utf8) <= width) return std::string(utf8);
  return absl::StrCat(CutToWidth(utf8, width - 1), "~");
}

std::vector<absl::string_view> CellsOf(absl::string_view row) {
  std::vector<absl::string_view> cells;
  while (!row.empty()) {
    cells.push_back(row.substr(0, row.find('\0')));
    row.remove_prefix(cells.back().size() + 1);
  }
  return cells;
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

TextLayout::TextLayout(std::vector<TextColumn> columns, size_t width)
    : columns_(std::move(columns)), cuts_(width > 0) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    TextColumn& column = columns_[i];
    column.width = std::max(column.width, DisplayWidth(column.header));
    if (column.width > 0) shown_.push_back(i);
  }
  if (width == 0) return;
  while (Width(/*at_least=*/true) > width && DropColumn()) {
  }
  CutText(width, /*to_least=*/true);
  CutText(width, /*to_least=*/false);
}

// The width of a line. With `at_least`, its width after its text is cut to the minimum.
size_t TextLayout::Width(bool at_least) const {
  size_t width = shown_.empty() ? 0 : (shown_.size() - 1) * kSpace;
  for (const size_t i : shown_) {
    const TextColumn& column = columns_[i];
    width += at_least && column.side == TextColumn::kLeft
                 ? std::min(column.width, column.least)
                 : column.width;
  }
  return width;
}

// Cuts the widest text column until the line fits or all text columns have their minimum.
void TextLayout::CutText(size_t width, bool to_least) {
  while (Width(/*at_least=*/false) > width) {
    TextColumn* widest = nullptr;
    for (const size_t i : shown_) {
      TextColumn& column = columns_[i];
      if (column.side == TextColumn::kLeft &&
          column.width > (to_least ? column.least : kLeast) &&
          (widest == nullptr || column.width > widest->width)) {
        widest = &column;
      }
    }
    if (widest == nullptr) return;
    --widest->width;
  }
}

bool TextLayout::DropColumn() {
  const auto first = std::max_element(
      shown_.begin(), shown_.end(), [this](size_t a, size_t b) {
        return columns_[a].drop < columns_[b].drop;
      });
  if (first == shown_.end() || columns_[*first].drop == 0) return false;
  shown_.erase(first);
  return true;
}

std::string TextLayout::Header() const {
  std::vector<absl::string_view> cells;
  for (const TextColumn& column : columns_) cells.push_back(column.header);
  return Line(cells);
}

std::string TextLayout::Line(
    const std::vector<absl::string_view>& cells) const {
  std::string line;
  for (const size_t i : shown_) {
    const TextColumn& column = columns_[i];
    const bool left = column.side == TextColumn::kLeft;
    const std::string cell =
        cuts_ && left ? Cut(cells[i], column.width) : std::string(cells[i]);
    const size_t fill =
        column.width - std::min(column.width, DisplayWidth(cell));
    if (i != shown_.front()) line.append(kSpace, ' ');
    if (!left) line.append(fill, ' ');
    line.append(cell);
    if (left) line.append(fill, ' ');
  }
  // Trailing blanks would wrap a line that has exactly the terminal's width.
  line.erase(line.find_last_not_of(' ') + 1);
  line.push_back('\n');
  return line;
}

std::string TextTable::RowOf(const std::vector<std::string>& cells) {
  std::string row;
  for (const std::string& cell : cells) {
    row += cell;
    row.push_back('\0');
  }
  return row;
}

void TextTable::AddRow(std::string row) {
  const std::vector<absl::string_view> cells = CellsOf(row);
  for (size_t i = 0; i < columns_.size(); ++i) {
    columns_[i].width = std::max(columns_[i].width, DisplayWidth(cells[i]));
  }
  row.shrink_to_fit();
  rows_.push_back(std::move(row));
}

std::string TextTable::Format(size_t width, size_t indent) const {
  const TextLayout layout(columns_, width);
  const std::string blanks(indent, ' ');
  const bool headers = std::any_of(
      columns_.begin(), columns_.end(),
      [](const TextColumn& column) { return !column.header.empty(); });
  std::string text = headers ? blanks + layout.Header() : "";
  for (const std::string& row : rows_) {
    absl::StrAppend(&text, blanks, layout.Line(CellsOf(row)));
  }
  return text;
}

}  // namespace internal
}  // namespace netmeter
