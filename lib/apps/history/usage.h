// SPDX-License-Identifier: BSD-3-Clause
// The traffic of some days in the history.
//
//   UsageQuery query;
//   query.period = PeriodAround(today, 15);
//   auto usage = ReadUsage(history.get(), query);
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_USAGE_H_
#define NETMETER_LIB_APPS_HISTORY_USAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/history.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

enum class UsageBy {
  kService,
  kDestination,
  kUplink,
  kHour,
  kDay,
  kWeek,
  kMonth,
  kYear,
  kNothing
};
// Whether rows are times.
bool IsByTime(UsageBy by);

struct UsageQuery {
  Period period;
  UsageBy by = UsageBy::kService;
  // `direct` has what is on a bill (bill.h), and with `uplink` all of that uplink. With
  // a service, a destination or their kind, it also has their traffic on no uplink, such
  // as that of containers, which is billed under the name of their bridge.
  std::string path = "direct";
  // "" stands for any. Names as `usage` prints them: "-" for no destination, "pending"
  // for traffic that has not named it yet.
  std::string service;
  std::string destination;
  std::string uplink;
  std::string kind;
  // Selects `kind`, and also its pending traffic, as in a row with with_pending.
  bool with_pending = false;
  // For a part of a sum: leaves out what that sum leaves out, whatever it selects.
  bool only_billed = false;
  // Selects only traffic that may have a destination; "" stands for none. A destination
  // may have the name "-" or "pending".
  bool exact_destination = false;
  // The time, for UsageRow::seconds and Usage::estimated; 0: without them.
  int64_t now = 0;
};

struct UsageRow {
  // By service: its kind. By destination: "pending", "forwarded" or "unnamed" for
  // traffic without one, because a destination may have its name. Else "".
  std::string kind;
  // The name of the service, destination or uplink; or the time: "2026-11-22 13:00",
  // "2026-11-22" (by week, its Monday), "2026-11" or "2026". By hour, a day whose hours
  // are gone has one row.
  std::string name;
  Counters counters;
  int64_t hour = 0;  // by hour: its start, as Unix time; 0 for a whole day
  // By time: its part of the period, as Unix time.
  int64_t begin = 0;
  int64_t end = 0;
  // By time: how much of it is over, within the period and the history.
  int64_t seconds = 0;
  bool with_pending = false;  // by service: includes pending traffic
  int64_t cost_micros = 0;    // set by ReadUsageCosts() of plans alone
  std::string client_name;    // set by the command usage alone
};

// The interfaces of an uplink counted less than the meter in this period. Its total is
// then that of the meter, and its unnamed traffic is not known.
struct Shortfall {
  std::string uplink;
  int64_t tx_bytes = 0;  // that are missing
  int64_t rx_bytes = 0;
};

struct Usage {
  std::vector<UsageRow> rows;  // most bytes first; times in their order
  Counters sum;
  bool has_client_names = false;  // rows may have one
  // The sum of the whole period, if it goes on as it did so far. Nothing if the period
  // does not run, or if too little of it is recorded.
  std::optional<Counters> estimated;
  // The sum by uplink, most bytes first.
  std::vector<UsageRow> uplinks;
  // By uplink, the selected traffic that is on no bill, and so not in the sum.
  std::vector<UsageRow> not_billed;
  std::vector<Shortfall> shortfalls;
  std::vector<Gap> gaps;  // those that overlap the period, oldest first
};

// By service, a service and a program of one name are two rows. Pending traffic is added
// to the row of its name, if there is only one. That row then has all that its owner
// counted, even if a connection named its destination in another period. If the query
// selects several owners of that name, or none, the history does not tell the owner. The
// traffic then has a row of kind "pending", which may be negative. By destination it has
// a row of its own, "pending", which may also be negative. Errors as Database.
absl::StatusOr<Usage> ReadUsage(Database* history, const UsageQuery& query);

// What a running period is still going to have.
struct Outlook {
  // As a multiple of its traffic until now; below 0: too little is recorded.
  double to_come = -1;
  int64_t known_at = 0;  // Unix time, when enough is recorded
};
Outlook OutlookOf(const Period& period, int64_t first_record, int64_t now);

// The hour at which the history begins, or the day if its hours were removed; 0: it is
// empty. Errors as Database.
absl::StatusOr<int64_t> FirstRecord(Database* history);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_USAGE_H_
