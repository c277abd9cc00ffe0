// SPDX-License-Identifier: BSD-3-Clause
// Adds to the history the traffic that the meter has counted since its last record.
//
//   auto recorded = Record(history.get(), options, reader);
//
// Threads: as Database. Several processes may record at once.

#ifndef NETMETER_LIB_APPS_HISTORY_RECORD_H_
#define NETMETER_LIB_APPS_HISTORY_RECORD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/apps/history/bill.h"
#include "lib/apps/history/history.h"
#include "lib/apps/history/links.h"
#include "lib/base/text.h"
#include "lib/reader/difference.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// A read of the meter, and all other input of Record().
struct Reading {
  int64_t now = 0;       // CLOCK_REALTIME, in seconds
  int64_t boottime = 0;  // CLOCK_BOOTTIME, in seconds
  std::string boot_id;   // /proc/sys/kernel/random/boot_id
  int64_t start_ns = 0;  // Health::start_time_ns, of CLOCK_BOOTTIME
  std::string cgroup;    // Health::cgroup
  std::vector<Sample> samples;
  SizeUnits size_units = SizeUnits::kBinary;  // of the configuration
  // Forwarded traffic. None if it is not counted, or if it cannot be read.
  bool has_forwarded = false;
  ForwardedSamples forwarded;
  // Whose an address behind an interface is now, as it stands in the history. Null: each
  // address is itself.
  std::function<std::string(const std::string& address,
                            const std::string& interface)>
      client_of;
  // The interfaces of uplinks, read after the above. None without uplinks, or if
  // they cannot be read.
  std::optional<LinkReading> links;
  UplinkSides sides;

  // The start of counting, in seconds since 1970, by the present clock.
  int64_t start() const { return now - boottime + start_ns / 1000000000; }
};

struct RecordOptions {
  std::string pin_dir;          // of the meter: a history has only one
  int keep_hours_days = 60;     // number of days with hours
  int keep_days = 5 * 365 + 2;  // number of further days
};

struct Recorded {
  int64_t bytes = 0;  // sent and received, on a bill, since the last record
  int series = 0;     // with any traffic
  bool new_meter = false;
};

// Calls `read` while no other process can record. Uses one transaction: after an error,
// or a kill, the history is unchanged, and the next record adds everything. Errors of
// `read`, of Database, and
//   FailedPrecondition  the clock is not set; or the history is of another meter
absl::StatusOr<Recorded> Record(
    Database* history, const RecordOptions& options,
    const std::function<absl::StatusOr<Reading>()>& read);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_RECORD_H_
