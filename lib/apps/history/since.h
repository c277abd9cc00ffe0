// SPDX-License-Identifier: BSD-3-Clause
// Traffic from a given time up to now: the history, and what the meter has counted since
// its last record. Forwarded traffic has the kind kForwardedRow.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_SINCE_H_
#define NETMETER_LIB_APPS_HISTORY_SINCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/apps/history/history.h"
#include "lib/apps/history/record.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// Parses "2026-11-22", "2026-11-22 13:00", "13:00" of today, or "90m", "2h", "3d" before
// `now`; returns Unix time. InvalidArgument for anything else, and for the future.
absl::StatusOr<int64_t> ParseSince(absl::string_view text, int64_t now);

struct SinceRead {
  // The start of the first hour, or day, that was read. Earlier if the meter's last
  // record is earlier, or its load if it was never recorded.
  int64_t begin = 0;
  // Counters are differences, modulo 2^64: those of pending series may be negative.
  std::vector<Sample> samples;
};

// The history has hours, so the result begins with the whole hour that contains `since`,
// or with the whole day if only days are left. A meter that was never recorded counts
// from its load on. Calls `read_meter` once, as Record() does: a record made meanwhile
// changes nothing. Errors as Database, and of `read_meter`.
absl::StatusOr<SinceRead> ReadSince(
    Database* history, int64_t since,
    const std::function<absl::StatusOr<Reading>()>& read_meter);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_SINCE_H_
