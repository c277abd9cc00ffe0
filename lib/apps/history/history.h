// SPDX-License-Identifier: BSD-3-Clause
// The history: what the meter counted, by hour and day, in an SQLite database that
// outlives meters and reboots. docs/history.md has its tables; the top of record.cc
// explains why nothing is counted twice.
//
//   auto history = OpenHistory(path, Database::Mode::kRead);
//   if (!history.ok()) return history.status();
//   auto usage = ReadUsage(history->get(), query);
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_HISTORY_H_
#define NETMETER_LIB_APPS_HISTORY_HISTORY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/sqlite.h"
#include "lib/base/text.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

constexpr char kDefaultHistory[] = "/var/lib/netmeter/history.db";

// Opens the history; with kCreate makes missing tables. Errors as Database::Open(), and
//   NotFound            there is no history
//   FailedPrecondition  it is another program's database, or of a newer version
absl::StatusOr<std::unique_ptr<Database>> OpenHistory(
    const std::string& path, Database::Mode mode,
    std::chrono::milliseconds timeout = Database::kTimeout);

// size_units of the meter that was recorded last; binary if the history does not have it.
absl::StatusOr<SizeUnits> ReadSizeUnits(Database* history);

// SQL for a history without a host id. A version is Unix time or later, so it begins with
// the newest hour.
extern const char kNewIdentity[];

// The version of what a transaction is going to write: each hour, day, sample and gap has
// that of its last change. `now` is Unix time, which versions follow, but they also grow
// if the clock goes back. Call in a transaction.
absl::StatusOr<int64_t> NextVersion(Database* history, int64_t now);

// The newest version; 0: an earlier netmeter made this history, and none has recorded
// since.
absl::StatusOr<int64_t> ReadVersion(Database* history);

// Adds what the series `old` counted to the series `new`, for each row of the temporary
// table `moved`. The former rows stay with zeros, and their hours and days get a new
// version each, because an export has to send them again. Call in a transaction.
absl::Status MoveTraffic(Database* history);

// Deletes series that nothing refers to.
absl::Status DropUnusedSeries(Database* history);

// "tx_bytes, rx_bytes, ...": the columns of the counters. Each is inserted into `format`
// in place of "$".
std::string CounterColumns(absl::string_view format);
// SQL: whether any counter of the row is not 0.
std::string AnyCounter();

// A period whose traffic is not completely known.
struct Gap {
  int64_t begin = 0;  // Unix time
  int64_t end = 0;
  // lost     one meter ended and another one began: traffic counted after the first
  //          one's last record is lost, and between the two nothing was counted
  // delayed  nothing was recorded: the traffic of that time is booked in the hour in
  //          which the gap ends
  // clock    the clock was set, from `begin` to `end`
  std::string what;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_HISTORY_H_
