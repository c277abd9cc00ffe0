// SPDX-License-Identifier: BSD-3-Clause
// The screen of `netmeter top`: the effect of keys, and the lines to show.
// lib/apps/netmeter/top/top_command.cc has the terminal.
//
//   services -> destinations of one -> sockets of one destination
//   processes
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_NETMETER_TOP_TOP_VIEW_H_
#define NETMETER_LIB_APPS_NETMETER_TOP_TOP_VIEW_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/apps/netmeter/top/top_model.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"

namespace netmeter {
namespace internal {

enum class TopKey {
  kNone,
  kCharacter,  // any other printable one
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kEnter,
  kBack,  // backspace, or left
  kEscape,
};

struct ScreenLine {
  std::string text;  // UTF-8, safe for a terminal
  bool bold = false;
  bool reverse = false;
};

// A socket of the open row: a line of the table, and the numbers that order the lines.
struct TopSocket {
  std::vector<std::string> cells;
  double rate = 0;  // payload bytes a second, both directions
  uint64_t bytes = 0;
  uint64_t retransmits = 0;
  uint64_t rtt_us = 0;
};

// The sockets of the open row; or the processes, each with the sum over its sockets.
struct TopSockets {
  std::vector<TextColumn> columns;
  std::vector<TopSocket> rows;
  uint64_t connections = 0;     // rows that TopRow::connections also counts
  uint64_t other_networks = 0;  // those in other network namespaces
  uint64_t of_service = 0;  // connections of all destinations of the service
  std::string error;        // why there are no rows
};

class TopView {
 public:
  enum class Level { kServices, kDestinations, kSockets, kProcesses };

  TopView(bool utf8, SizeUnits units) : utf8_(utf8), units_(units) {}

  // Returns false to quit.
  bool Press(TopKey key, char character, const TopModel& model);

  bool paused() const { return paused_; }
  Level level() const { return level_; }
  const TopRow& service() const { return service_; }
  const TopRow& destination() const { return destination_; }

  // For levels kSockets and kProcesses.
  void SetSockets(TopSockets sockets) { sockets_ = std::move(sockets); }
  void SetHasForwarded(bool has) { has_forwarded_ = has; }
  // A message in place of the keys, until the next key; "" for none.
  void SetMessage(std::string message) { message_ = std::move(message); }

  // At most `height` lines of at most `width` columns.
  std::vector<ScreenLine> Render(const TopModel& model, int width, int height,
                                 double interval);

  // The rows of this level, filtered and sorted.
  std::vector<TopRow> Rows(const TopModel& model) const;

 private:
  bool HasSockets() const { return level_ >= Level::kSockets; }
  bool Edit(TopKey key, char character);
  void Move(int by, const TopModel& model);
  void Open(const TopModel& model);
  void Back();
  size_t Count(const TopModel& model) const;
  std::vector<std::string> Status(double interval, size_t width) const;
  // Filtered and sorted.
  std::vector<TopSocket> MatchingSockets() const;
  std::vector<std::string> Summary(const TopModel& model, size_t width) const;

  const bool utf8_;
  const SizeUnits units_;
  Level level_ = Level::kServices;
  TopSort sort_ = TopSort::kRate;
  TopRow service_, destination_;
  TopSockets sockets_;
  std::string filter_, message_;
  bool editing_ = false, paused_ = false, help_ = false;
  bool has_forwarded_ = true;
  bool hides_idle_ = false;  // rows without traffic in the last minute
  size_t selected_ = 0, first_ = 0;
  size_t page_ = 10;  // rows that fit
};

// A table of rows, without their last minute.
TextTable TopTable(const std::vector<TopRow>& rows, bool uplinks,
                   SizeUnits units);

// The sums over the rows, and which rows are in them: two lines, or more if these do not
// fit the width; 0: any. `has_forwarded`: whether forwarded traffic could be read.
std::vector<std::string> TopHead(const TopModel& model, bool has_forwarded,
                                 SizeUnits units, size_t width);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_TOP_TOP_VIEW_H_
