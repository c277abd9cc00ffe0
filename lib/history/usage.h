// SPDX-License-Identifier: BSD-3-Clause
// What the history has of some days.
//
//   UsageQuery query;
//   query.period = PeriodAround(today, 15);
//   auto usage = ReadUsage(history.get(), query);
//
// Threads: as Database.

#ifndef NETMETER_LIB_HISTORY_USAGE_H_
#define NETMETER_LIB_HISTORY_USAGE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/history/calendar.h"
#include "lib/history/history.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

enum class UsageBy { kService, kDestination, kUplink, kDay, kNothing };

struct UsageQuery {
  Period period;
  UsageBy by = UsageBy::kService;
  std::string path = "direct";
  // "" stands for any. Names as `usage` prints them: "-" for no destination, "pending"
  // for what has not named it yet.
  std::string service;
  std::string destination;
  std::string uplink;
  std::string kind;
  // Of `kind`, and what is pending besides: as a row that has it.
  bool with_pending = false;
  // Only what may have a destination, and "" stands for none. A destination may be
  // called "-" or "pending".
  bool exact_destination = false;
};

struct UsageRow {
  // By service: its kind. By destination: that of what has none, "pending" or
  // "forwarded", as a destination may have such a name. Else "".
  std::string kind;
  std::string name;  // of the service, the destination, the uplink or the day
  Counters counters;
  bool with_pending = false;  // by service: what is pending is among them
};

struct Usage {
  std::vector<UsageRow> rows;  // most bytes first; days in their order
  Counters sum;
  std::vector<Gap> gaps;  // those that overlap the period, oldest first
};

// By service, a service and a program of one name are two rows. What is pending counts
// for the one who is called so: with it that row is what its owner counted, even where a
// connection named its destination in another period. Where several are called so in
// what the query selects, nothing in the history tells whose it is: it is a row of kind
// "pending" then, as where nobody is, and may be below 0. By destination it has a row of
// its own, "pending", which may be below 0, too. Errors as Database.
absl::StatusOr<Usage> ReadUsage(Database* history, const UsageQuery& query);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_HISTORY_USAGE_H_
