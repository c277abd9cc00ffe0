// SPDX-License-Identifier: BSD-3-Clause
// What was counted since a moment, up to now: the history, and what the meter has
// counted since its last record.
//
// Threads: as Database.

#ifndef NETMETER_LIB_HISTORY_SINCE_H_
#define NETMETER_LIB_HISTORY_SINCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/history/history.h"
#include "lib/history/record.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// "2026-11-22", "2026-11-22 13:00", "13:00" of today, or "90m", "2h", "3d" before
// `now`, as Unix time. InvalidArgument for anything else, and for the future.
absl::StatusOr<int64_t> ParseSince(absl::string_view text, int64_t now);

struct SinceRead {
  // The hour, or day, of the history that it begins with; earlier where the meter's
  // last record is, or its load if it was never recorded.
  int64_t begin = 0;
  // Counters are differences, modulo 2^64: those of pending series may be below 0.
  std::vector<Sample> samples;
};

// The history has hours, so what is read begins with the whole hour that `since` is
// in; where it has only the day, with that. A meter that was never recorded counts
// from its load on. `read_meter` is called once, as by Record(): a record that comes
// meanwhile changes nothing. Errors as Database, and of `read_meter`.
absl::StatusOr<SinceRead> ReadSince(
    Database* history, int64_t since,
    const std::function<absl::StatusOr<Reading>()>& read_meter);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_HISTORY_SINCE_H_
