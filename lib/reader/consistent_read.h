// SPDX-License-Identifier: BSD-3-Clause
// Samples and the times at which their meter began to count and was loaded: of one
// meter, and of one load, whatever happens while they are read.
//
//   Health health;
//   std::vector<Sample> samples;
//   absl::Status status = ReadConsistently(
//       meter, [&] { return meter.ReadHost(&samples); }, &health);
//
// Threads: any.

#ifndef NETMETER_LIB_READER_CONSISTENT_READ_H_
#define NETMETER_LIB_READER_CONSISTENT_READ_H_

#include <functional>

#include "absl/status/status.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// Calls `read` between two reads of the health, and again where these tell that the
// meter was unloaded, loaded or upgraded in between. Unavailable: three times, one
// after the other. Errors of `read` and of Meter::ReadHealth().
absl::Status ReadConsistently(const Meter& meter,
                              const std::function<absl::Status()>& read,
                              Health* health);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_CONSISTENT_READ_H_
