// SPDX-License-Identifier: BSD-3-Clause
// A screen is a list of lines, made from the model and from the choices of the user.
// top_command.cc writes it, and reads the keys.
#include "lib/apps/netmeter/top/top_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/base/text.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kMinute[] = "LAST MINUTE";
constexpr size_t kMinuteFrom = 80;  // the terminal's columns

constexpr char kKeys[] =
    "q quit  p pause  s sort  i idle  / filter  t processes  Enter, Backspace  "
    "? "
    "help";

constexpr const char* kHelp[] = {
    "KEYS AND COLUMNS",
    "up, down, page up, page down, home, end   choose a row",
    "Enter       its destinations, then the sockets of one",
    "Backspace   back (also: left)",
    "t           processes, by their open TCP connections, and back",
    ("s           next order: rate, total, retransmissions, rtt, connections, "
     "name"),
    "i           hides rows without traffic in LAST MINUTE, and shows them",
    "/           shows only names with these letters; Escape removes the "
    "filter",
    "p, space    pauses and continues",
    "q           quits",
    "",
    "UPLINK          if the configuration has uplinks: a row for each; "
    "(proxy):",
    "                traffic over loopback to a proxy",
    "SENT/S, RECV/S  bytes a second on the network, headers included; of a",
    "                socket: TCP's payload",
    "SHARE           part of the total above in the last interval; -: in no "
    "total",
    "RESENT          retransmitted TCP payload, a second",
    "RTT             mean of the round trips measured in the last interval",
    "CONN            TCP connections open now, in all network namespaces",
    "LAST MINUTE     scaled for each row: the highest bar is its maximum",
};

bool IsIdle(const TopRow& row) {
  return row.history == decltype(row.history)();
}

// Cuts or pads `text` to this width.
std::string Fit(absl::string_view text, size_t width) {
  const absl::string_view cut = CutToWidth(text, width);
  return absl::StrCat(cut, std::string(width - DisplayWidth(cut), ' '));
}

std::string RttText(double us) { return us < 0 ? "-" : HumanMilliseconds(us); }

// Puts items onto lines of this width.
std::vector<std::string> Wrap(const std::vector<std::string>& items,
                              const char* separator, size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& item : items) {
    std::string longer =
        absl::StrCat(lines.back(), lines.back().empty() ? "" : separator, item);
    if (width > 0 && !lines.back().empty() && DisplayWidth(longer) > width) {
      lines.push_back(item);
    } else {
      lines.back() = std::move(longer);
    }
  }
  return lines;
}

std::string NameOf(const TopRow& row) {
  std::string name = ToTerminal(row.name);
  if (row.path == Path::kProxy) name += " (proxy)";
  return name;
}

// With the name of a client.
std::string DestinationOf(const TopRow& row) {
  if (row.client_name.empty()) return ToTerminal(row.destination);
  return absl::StrCat(ToTerminal(row.destination), " (",
                      ToTerminal(row.client_name), ")");
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// The lines of a table, with the last minute of each row if there is room.
std::vector<std::string> LinesWithMinute(const std::vector<TopRow>& rows,
                                         bool uplinks, size_t width, bool utf8,
                                         SizeUnits units) {
  const TextTable table = TopTable(rows, uplinks, units);
  if (width < kMinuteFrom) return Lines(table.Format(width));
  std::vector<std::string> lines =
      Lines(table.Format(width - DisplayWidth(kMinute) - 2));
  size_t widest = 0;
  for (const std::string& line : lines) {
    widest = std::max(widest, DisplayWidth(line));
  }
  for (size_t i = 0; i < lines.size(); i++) {
    lines[i] =
        Fit(lines[i], widest + 2) +
        (i == 0 ? kMinute
                : Sparkline(rows[i - 1].history, width - widest - 2, utf8));
  }
  return lines;
}

}  // namespace

TextTable TopTable(const std::vector<TopRow>& rows, bool uplinks,
                   SizeUnits units) {
  const bool proxies =
      std::any_of(rows.begin(), rows.end(),
                  [](const TopRow& row) { return row.path == Path::kProxy; });
  constexpr auto kLeft = TextColumn::kLeft, kRight = TextColumn::kRight;
  // Columns are as wide as most numbers, so that they do not move each second.
  TextTable table({{"NAME", kLeft, 0, uplinks || proxies ? 12u : 18u, 18},
                   {uplinks   ? "UPLINK"
                    : proxies ? "PATH"
                              : "",
                    kLeft, 0, 10},
                   {"SENT/S", kRight, 0, 0, 6},
                   {"RECV/S", kRight, 0, 0, 6},
                   {"SHARE", kRight, 3},
                   {"RESENT", kRight, 2, 0, 6},
                   {"RTT", kRight, 2, 0, 8},
                   {"CONN", kRight, 1, 0, 5},
                   {"TOTAL", kRight, 4, 0, 6},
                   {"KIND", kLeft, 4, 12}});
  for (const TopRow& row : rows) {
    table.Add(
        {row.destination.empty() ? ToTerminal(row.name) : DestinationOf(row),
         row.path == Path::kProxy ? "(proxy)"
         : !uplinks               ? (proxies ? PathName(row.path) : "")
         : row.uplink.empty()     ? "-"
                                  : ToTerminal(row.uplink),
         ShortBytes(row.tx_rate, units), ShortBytes(row.rx_rate, units),
         row.share < 0 ? "-" : HumanPercent(row.share, 1, 0),
         ShortBytes(row.retransmit_rate, units), RttText(row.rtt_us),
         absl::StrCat(row.connections),
         ShortBytes(static_cast<double>(row.tx_bytes) +
                        static_cast<double>(row.rx_bytes),
                    units),
         KindName(row.kind)});
  }
  return table;
}

std::vector<std::string> TopHead(const TopModel& model, bool has_forwarded,
                                 SizeUnits units, size_t width) {
  const TopRow all = model.All();
  std::string who = "direct";
  if (!model.paid().empty()) who = absl::StrJoin(model.paid(), " + ");
  if (!model.paid().empty() && !has_forwarded) who += " without forwarded";
  std::vector<std::string> lines =
      Wrap({absl::StrCat("total of ", ToTerminal(who), ": sent ",
                         ShortBytes(all.tx_rate, units), "/s"),
            absl::StrCat("received ", ShortBytes(all.rx_rate, units), "/s")},
           ", ", width);
  std::vector<std::string> items = {
      absl::StrCat("resent ", ShortBytes(all.retransmit_rate, units), "/s"),
      absl::StrCat("rtt ", RttText(all.rtt_us)),
      absl::StrCat(all.connections,
                   all.connections == 1 ? " connection" : " connections")};
  const char* before = "in no total: ";
  for (const std::string& name : model.not_summed()) {
    items.push_back(absl::StrCat(std::exchange(before, ""), ToTerminal(name)));
  }
  for (std::string& line : Wrap(items, ", ", width)) {
    lines.push_back(std::move(line));
  }
  return lines;
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
                              const std::string name =
                                  level_ == Level::kServices
                                      ? row.name
                                      : DestinationOf(row);
                              return !absl::StrContains(name, filter_) ||
                                     (hides_idle_ && IsIdle(row));
                            }),
             rows.end());
  return rows;
}

std::vector<TopSocket> TopView::MatchingSockets() const {
  std::vector<TopSocket> rows;
  for (const TopSocket& row : sockets_.rows) {
    if (std::any_of(row.cells.begin(), row.cells.end(),
                    [this](const std::string& cell) {
                      return absl::StrContains(cell, filter_);
                    })) {
      rows.push_back(row);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [this](const TopSocket& a, const TopSocket& b) {
                     switch (sort_) {
                       case TopSort::kRate:
                         return a.rate > b.rate;
                       case TopSort::kTotal:
                         return a.bytes > b.bytes;
                       case TopSort::kRetransmissions:
                         return a.retransmits > b.retransmits;
                       case TopSort::kRtt:
                         return a.rtt_us > b.rtt_us;
                       case TopSort::kConnections:
                       case TopSort::kName:
                         return a.cells < b.cells;
                     }
                     return false;
                   });
  return rows;
}

size_t TopView::Count(const TopModel& model) const {
  return HasSockets() ? MatchingSockets().size() : Rows(model).size();
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
  if (HasSockets()) return;
  const std::vector<TopRow> rows = Rows(model);
  if (selected_ >= rows.size()) return;
  TopRow row = rows[selected_];
  // What is forwarded has no sockets here.
  if (level_ == Level::kDestinations && row.kind == kForwardedRow) return;
  if (level_ == Level::kServices) {
    service_ = row;
    level_ = Level::kDestinations;
  } else {
    if (row.destination == "-") row.destination.clear();
    destination_ = row;
    sockets_ = TopSockets();
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
      if (character == 'i') hides_idle_ = !hides_idle_;
      if (character == '/') editing_ = true;
      if (character == '?' || character == 'h') help_ = true;
      if (character == 't') {
        level_ =
            level_ == Level::kProcesses ? Level::kServices : Level::kProcesses;
        selected_ = first_ = 0;
        filter_.clear();
        sockets_ = TopSockets();
      }
      if (character == 's') {
        sort_ = static_cast<TopSort>((static_cast<int>(sort_) + 1) % kTopSorts);
      }
      break;
    case TopKey::kNone:
      break;
  }
  return true;
}

std::vector<std::string> TopView::Status(double interval, size_t width) const {
  std::string where = level_ == Level::kProcesses ? "processes" : "services";
  if (level_ == Level::kDestinations || level_ == Level::kSockets) {
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
  std::vector<std::string> items = {where,
                                    absl::StrFormat("every %g s", interval),
                                    absl::StrCat("by ", TopSortName(sort_))};
  if (paused_) items.push_back("PAUSED");
  if (hides_idle_) items.push_back("without idle rows");
  if (editing_ || !filter_.empty()) {
    items.push_back(
        absl::StrCat("/", ToTerminal(filter_), editing_ ? "_" : ""));
  }
  return Wrap(items, "  ", width);
}

// The lines above a table. For rows: the sums. For sockets: how many connections the
// meter counts, how many the table has, and why others are missing.
std::vector<std::string> TopView::Summary(const TopModel& model,
                                          size_t width) const {
  if (level_ == Level::kProcesses) {
    std::vector<std::string> lines = {
        "payload of TCP connections that are open now, without loopback"};
    if (!sockets_.error.empty()) {
      lines.push_back(absl::StrCat("(", sockets_.error, ")"));
    }
    return lines;
  }
  if (level_ != Level::kSockets) {
    return TopHead(model, has_forwarded_, units_, width);
  }
  uint64_t here = 0, of_service = 0;
  for (const TopRow& row : model.Destinations(service_, TopSort::kName)) {
    of_service += row.connections;
    if (row.destination == destination_.destination) here = row.connections;
  }
  std::string text = absl::StrCat("connections: ", here, " counted");
  if (!sockets_.error.empty()) {
    return {text, absl::StrCat("(sockets: ", sockets_.error, ")")};
  }
  absl::StrAppend(&text, ", ", sockets_.connections, " shown");
  if (sockets_.other_networks > 0) {
    absl::StrAppend(&text, ", ", sockets_.other_networks,
                    " of these in other network namespaces");
  }
  std::vector<std::string> lines = {text};
  const auto more = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
  const uint64_t missing = more(here, sockets_.connections);
  const uint64_t hidden =
      std::min(missing, more(of_service, sockets_.of_service));
  if (sockets_.connections > here) {
    lines.push_back(absl::StrCat(
        "(", sockets_.connections - here,
        " shown here were opened before they had this destination)"));
  }
  if (missing > hidden) {
    lines.push_back(absl::StrCat("(", missing - hidden,
                                 " opened here have another destination "
                                 "now: Backspace)"));
  }
  if (hidden > 0) {
    lines.push_back(absl::StrCat("(", hidden,
                                 " not found: just ended, or in a network "
                                 "namespace that cannot be found or"));
    lines.push_back(
        " entered; netmeter flows prints each connection when it ends)");
  } else if (sockets_.rows.empty()) {
    lines.push_back("(short connections: netmeter flows --follow)");
  }
  return lines;
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
  for (const std::string& text : Status(interval, columns)) {
    add(text, true, false);
  }
  for (const std::string& text : Summary(model, columns)) {
    add(text, false, false);
  }
  // The header comes before the rows.
  std::vector<std::string> texts;
  if (help_) {
    texts.assign(std::begin(kHelp), std::end(kHelp));
  } else if (HasSockets()) {
    TextTable table(sockets_.columns);
    for (const TopSocket& row : MatchingSockets()) table.Add(row.cells);
    texts = Lines(table.Format(columns));
  } else {
    texts = LinesWithMinute(Rows(model), model.has_uplinks(), columns, utf8_,
                            units_);
  }
  if (texts.empty()) texts.emplace_back();  // no sockets were read yet
  add(texts[0], true, false);
  texts.erase(texts.begin());
  // The last line lists the keys.
  page_ = static_cast<size_t>(
      std::max(1, height - static_cast<int>(lines.size()) - 1));
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
  if (static_cast<int>(lines.size()) > height - 1) {
    lines.resize(static_cast<size_t>(std::max(0, height - 1)));
  }
  add(message_.empty() ? kKeys : message_, false, false);
  return lines;
}

}  // namespace internal
}  // namespace netmeter
