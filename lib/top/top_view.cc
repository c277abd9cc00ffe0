// SPDX-License-Identifier: BSD-3-Clause
// A screen is a list of lines, which is made anew, as a whole, from the model and from
// what the keys have chosen so far. top_command.cc writes it, and reads the keys.
#include "lib/top/top_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kWide = 110;       // there is room for KIND and TOTAL
constexpr int kLinesAround = 4;  // two above the header, it, and the last one
constexpr int kLeastName = 12;
constexpr int kUplinkWidth = 10;

constexpr char kKeys[] =
    "q quit  p pause  s sort  / filter  Enter open  Backspace back  ? help";

constexpr const char* kHelp[] = {
    "up, down, page up, page down, home, end   choose a row",
    "Enter       its destinations, then the sockets of one",
    "Backspace   back (also: left)",
    ("s           next order: rate, total, retransmissions, rtt, connections, "
     "name"),
    "/           shows only names with these letters; Escape takes it off",
    "p, space    stops and goes on",
    "q           ends",
    "",
    "UPLINK          where the configuration has uplinks: a row for each",
    "SENT/S, RECV/S  bytes a second on the network, headers included",
    "SHARE           of all that this path has had in the last interval",
    "RESENT          TCP payload sent again, a second",
    "RTT             mean of the round trips measured in the last interval",
    "CONN            TCP connections open now",
    "LAST MINUTE     of each row by itself: the highest is its largest",
};

// Up to so many characters of UTF-8; the rest is spaces.
std::string Fit(const std::string& text, size_t width) {
  size_t bytes = 0, characters = 0;
  while (bytes < text.size() && characters < width) {
    bytes++;
    while (bytes < text.size() && (text[bytes] & 0xc0) == 0x80) bytes++;
    characters++;
  }
  return text.substr(0, bytes) + std::string(width - characters, ' ');
}

// "812", "1.2K", "37.0M": powers of 1024, or of 1000.
std::string Short(double value, SizeUnits units) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  const double base = units == SizeUnits::kDecimal ? 1000 : 1024;
  size_t unit = 0;
  // 999.95 would be rounded to 1000.0.
  while (value >= 999.95 && unit + 1 < sizeof(kUnits) / sizeof(kUnits[0])) {
    value /= base;
    unit++;
  }
  return unit == 0 ? absl::StrFormat("%.0f", value)
                   : absl::StrFormat("%.1f%s", value, kUnits[unit]);
}

std::string RttText(double us) {
  if (us < 0) return "-";
  if (us < 10000) return absl::StrFormat("%.1fms", us / 1000);
  return absl::StrFormat("%.0fms", us / 1000);
}

std::string NameOf(const TopRow& row) {
  std::string name = ToTerminal(row.name);
  if (row.path == Path::kProxy) name += " (proxy)";
  return name;
}

// "" where there is no such column.
std::string UplinkCell(const std::string& text, bool uplinks) {
  if (!uplinks) return "";
  return " " + Fit(text, kUplinkWidth);
}

// The columns after the name, without the last minute.
std::string Columns(const std::string& tx, const std::string& rx,
                    const std::string& share, const std::string& resent,
                    const std::string& rtt, const std::string& connections,
                    const std::string& kind, const std::string& total,
                    int width) {
  std::string text = absl::StrFormat(" %7s %7s %5s %7s %7s %5s", tx, rx, share,
                                     resent, rtt, connections);
  if (width >= kWide) absl::StrAppendFormat(&text, " %8s %-12s", total, kind);
  return text;
}

struct Widths {
  size_t name, minute;
};

Widths WidthsOf(int width, bool uplinks) {
  const int columns =
      static_cast<int>(UplinkCell("", uplinks).size() +
                       Columns("", "", "", "", "", "", "", "", width).size());
  const int left = std::max(width - columns - 2, kLeastName);
  Widths widths;
  widths.name =
      static_cast<size_t>(std::max(kLeastName, std::min(40, left * 3 / 5)));
  widths.minute = static_cast<size_t>(std::max(
      0, std::min<int>(kTopHistory, left - static_cast<int>(widths.name))));
  return widths;
}

std::string Line(const std::string& name, const std::string& columns,
                 const std::string& minute, const Widths& widths) {
  return Fit(name, widths.name) + columns + "  " + Fit(minute, widths.minute);
}

}  // namespace

std::string TopHeader(int width, bool uplinks) {
  return Line("NAME",
              UplinkCell("UPLINK", uplinks) +
                  Columns("SENT/S", "RECV/S", "SHARE", "RESENT", "RTT", "CONN",
                          "KIND", "TOTAL", width),
              "LAST MINUTE", WidthsOf(width, uplinks));
}

std::string TopText(const TopRow& row, int width, bool utf8, bool uplinks,
                    SizeUnits units) {
  const Widths widths = WidthsOf(width, uplinks);
  const std::string uplink = row.uplink.empty() ? "-" : ToTerminal(row.uplink);
  const std::string name =
      row.destination.empty() ? NameOf(row) : ToTerminal(row.destination);
  return Line(
      name,
      UplinkCell(uplink, uplinks) +
          Columns(Short(row.tx_rate, units), Short(row.rx_rate, units),
                  absl::StrFormat("%.0f%%", row.share * 100),
                  Short(row.retransmit_rate, units), RttText(row.rtt_us),
                  absl::StrCat(row.connections), KindName(row.kind),
                  Short(static_cast<double>(row.tx_bytes) +
                            static_cast<double>(row.rx_bytes),
                        units),
                  width),
      Sparkline(row.history, widths.minute, utf8), widths);
}

std::vector<TopRow> TopView::Rows(const TopModel& model) const {
  std::vector<TopRow> rows;
  if (level_ == Level::kServices) rows = model.Services(sort_);
  if (level_ == Level::kDestinations) {
    rows = model.Destinations(service_, sort_);
    for (TopRow& row : rows) {
      if (row.destination.empty()) row.destination = "-";
    }
  }
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [this](const TopRow& row) {
                              const std::string& name =
                                  level_ == Level::kServices ? row.name
                                                             : row.destination;
                              return !absl::StrContains(name, filter_);
                            }),
             rows.end());
  return rows;
}

std::vector<std::string> TopView::MatchingSockets() const {
  std::vector<std::string> lines;
  for (size_t i = 1; i < sockets_.size(); i++) {
    if (absl::StrContains(sockets_[i], filter_)) lines.push_back(sockets_[i]);
  }
  return lines;
}

size_t TopView::Count(const TopModel& model) const {
  return level_ == Level::kSockets ? MatchingSockets().size()
                                   : Rows(model).size();
}

bool TopView::Edit(TopKey key, char character) {
  if (!editing_) return false;
  if (key == TopKey::kCharacter) {
    filter_ += character;
  } else if (key == TopKey::kBack) {
    if (!filter_.empty()) filter_.pop_back();
  } else {
    if (key == TopKey::kEscape) filter_.clear();
    editing_ = false;
  }
  selected_ = 0;
  return true;
}

void TopView::Move(int by, const TopModel& model) {
  const int count = static_cast<int>(Count(model));
  const int to = static_cast<int>(selected_) + by;
  selected_ = static_cast<size_t>(std::max(0, std::min(to, count - 1)));
}

void TopView::Open(const TopModel& model) {
  if (level_ == Level::kSockets) return;
  const std::vector<TopRow> rows = Rows(model);
  if (selected_ >= rows.size()) return;
  TopRow row = rows[selected_];
  if (level_ == Level::kServices) {
    service_ = row;
    level_ = Level::kDestinations;
  } else {
    if (row.destination == "-") row.destination.clear();
    destination_ = row;
    sockets_.clear();
    level_ = Level::kSockets;
  }
  selected_ = first_ = 0;
  filter_.clear();
}

void TopView::Back() {
  if (level_ == Level::kServices) return;
  level_ = level_ == Level::kSockets ? Level::kDestinations : Level::kServices;
  selected_ = first_ = 0;
  filter_.clear();
}

bool TopView::Press(TopKey key, char character, const TopModel& model) {
  if (key == TopKey::kNone) return true;
  message_.clear();
  if (Edit(key, character)) return true;
  if (help_) {
    help_ = false;
    return true;
  }
  const int page = static_cast<int>(page_);
  switch (key) {
    case TopKey::kUp:
      Move(-1, model);
      break;
    case TopKey::kDown:
      Move(1, model);
      break;
    case TopKey::kPageUp:
      Move(-page, model);
      break;
    case TopKey::kPageDown:
      Move(page, model);
      break;
    case TopKey::kHome:
      selected_ = 0;
      break;
    case TopKey::kEnd:
      Move(static_cast<int>(Count(model)), model);
      break;
    case TopKey::kEnter:
      Open(model);
      break;
    case TopKey::kBack:
      Back();
      break;
    case TopKey::kEscape:
      filter_.clear();
      break;
    case TopKey::kCharacter:
      if (character == 'q') return false;
      if (character == 'p' || character == ' ') paused_ = !paused_;
      if (character == '/') editing_ = true;
      if (character == '?' || character == 'h') help_ = true;
      if (character == 's') {
        sort_ = static_cast<TopSort>((static_cast<int>(sort_) + 1) % kTopSorts);
      }
      break;
    case TopKey::kNone:
      break;
  }
  return true;
}

std::string TopView::Status(double interval) const {
  std::string where = "services";
  if (level_ != Level::kServices) {
    absl::StrAppend(&where, " > ", NameOf(service_));
    if (!service_.uplink.empty()) {
      absl::StrAppend(&where, " on ", ToTerminal(service_.uplink));
    }
  }
  if (level_ == Level::kSockets) {
    absl::StrAppend(&where, " > ",
                    destination_.destination.empty()
                        ? "-"
                        : ToTerminal(destination_.destination));
  }
  std::string text = absl::StrFormat("%s  every %g s  by %s", where, interval,
                                     TopSortName(sort_));
  if (paused_) text += "  PAUSED";
  if (editing_ || !filter_.empty()) {
    absl::StrAppend(&text, "  /", ToTerminal(filter_), editing_ ? "_" : "");
  }
  return text;
}

std::vector<ScreenLine> TopView::Render(const TopModel& model, int width,
                                        int height, double interval) {
  std::vector<ScreenLine> lines;
  const size_t columns = static_cast<size_t>(std::max(width, 1));
  const auto add = [&](const std::string& text, bool bold, bool reverse) {
    ScreenLine line;
    line.text = Fit(text, columns);
    line.bold = bold;
    line.reverse = reverse;
    lines.push_back(line);
  };
  add(Status(interval), true, false);
  const TopRow all = model.All();
  add(absl::StrCat("all direct: sent ", Short(all.tx_rate, units_),
                   "/s, received ", Short(all.rx_rate, units_), "/s, resent ",
                   Short(all.retransmit_rate, units_), "/s, rtt ",
                   RttText(all.rtt_us), ", ", all.connections, " connections"),
      false, false);
  const int rows = std::max(1, height - kLinesAround);
  page_ = static_cast<size_t>(rows);
  std::vector<std::string> texts;
  if (help_) {
    add("KEYS AND COLUMNS", true, false);
    texts.assign(std::begin(kHelp), std::end(kHelp));
  } else if (level_ == Level::kSockets) {
    add(sockets_.empty() ? "" : sockets_[0], true, false);
    texts = MatchingSockets();
  } else {
    add(TopHeader(width, model.has_uplinks()), true, false);
    for (const TopRow& row : Rows(model)) {
      texts.push_back(TopText(row, width, utf8_, model.has_uplinks(), units_));
    }
  }
  if (selected_ >= texts.size())
    selected_ = texts.empty() ? 0 : texts.size() - 1;
  if (selected_ < first_) first_ = selected_;
  if (selected_ >= first_ + page_) first_ = selected_ - page_ + 1;
  const size_t first = help_ ? 0 : first_;
  for (size_t i = first; i < texts.size() && i < first + page_; i++) {
    add(texts[i], false, !help_ && i == selected_);
  }
  if (texts.empty()) add("(nothing)", false, false);
  while (static_cast<int>(lines.size()) < height - 1) add("", false, false);
  add(message_.empty() ? kKeys : message_, false, false);
  lines.resize(static_cast<size_t>(
      std::min<int>(height, static_cast<int>(lines.size()))));
  return lines;
}

}  // namespace internal
}  // namespace netmeter
