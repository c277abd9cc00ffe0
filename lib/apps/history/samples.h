// SPDX-License-Identifier: BSD-3-Clause
// The bytes of each uplink in five minutes, and the 95th percentile of these, by which
// transit providers bill ("95/5").
//
//   auto rates = ReadPercentiles(history, period, 95, time(nullptr));
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_SAMPLES_H_
#define NETMETER_LIB_APPS_HISTORY_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/history.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

// Adds what was counted from `begin` to `end` (Unix time), with this version. An interval
// of several samples is spread evenly over them, because the time of its bytes is not
// known.
absl::Status AddToSamples(Database* history, const Totals& difference,
                          int64_t version, int64_t begin, int64_t end);

// Deletes samples from before the first hour that the history has.
absl::Status DropSamples(Database* history);

struct UplinkRate {
  std::string uplink;  // "": traffic without an uplink
  // In bits a second.
  int64_t sent = 0;
  int64_t received = 0;
  int64_t samples =
      0;  // of the period, up to now; those without traffic included
};

// The rate that `percent` of the five-minute samples do not exceed, for each direction.
// Samples without traffic have rate 0. Samples from before the history's first one do not
// count. FailedPrecondition: the history has none yet. Errors as Database.
absl::StatusOr<std::vector<UplinkRate>> ReadPercentiles(Database* history,
                                                        const Period& period,
                                                        int percent,
                                                        int64_t now);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_SAMPLES_H_
