// SPDX-License-Identifier: BSD-3-Clause
// Whether what a round of the soak sent is under the names of its senders. That no
// byte is missing in the sum is another question (measurement.h).

#ifndef NETMETER_TEST_LIVE_SOAK_NAMES_H_
#define NETMETER_TEST_LIVE_SOAK_NAMES_H_

#include <cstdint>
#include <map>

#include "test/live/measurement.h"
#include "test/live/soak_traffic.h"

namespace netmeter {
namespace internal {

// By kind. What was evicted is of the kind that it had.
using SoakKinds = std::map<Kind, Totals>;
SoakKinds KindsOf(const Measurement& measurement);

// After Finish(). `sent` is what the workers know of this round.
void ExpectNames(const Measurement& measurement, const SoakCounts& sent);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOAK_NAMES_H_
