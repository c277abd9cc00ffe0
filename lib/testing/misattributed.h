// SPDX-License-Identifier: BSD-3-Clause
// One row of Health::misattributed, for tests.
//
// Threads: pure.

#ifndef NETMETER_LIB_TESTING_MISATTRIBUTED_H_
#define NETMETER_LIB_TESTING_MISATTRIBUTED_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// The largest number if there is no such row.
inline uint64_t Misattributed(const Health& health, absl::string_view unit,
                              absl::string_view reason) {
  for (const Misattribution& row : health.misattributed) {
    if (row.unit == unit && row.reason == reason) return row.count;
  }
  return UINT64_MAX;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_MISATTRIBUTED_H_
