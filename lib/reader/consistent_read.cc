// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/consistent_read.h"

namespace netmeter {
namespace internal {

absl::Status ReadConsistently(const Meter& meter,
                              const std::function<absl::Status()>& read,
                              Health* health) {
  constexpr int kAttempts = 3;
  for (int i = 0; i < kAttempts; ++i) {
    const auto before = meter.ReadHealth();
    if (!before.ok()) return before.status();
    const absl::Status status = read();
    if (!status.ok()) return status;
    const auto after = meter.ReadHealth();
    if (!after.ok()) return after.status();
    if (before->start_time_ns != after->start_time_ns ||
        before->load_time_ns != after->load_time_ns) {
      continue;
    }
    *health = *after;
    return absl::OkStatus();
  }
  return absl::UnavailableError("the meter is being replaced: try again");
}

}  // namespace internal
}  // namespace netmeter
