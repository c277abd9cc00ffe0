// SPDX-License-Identifier: BSD-3-Clause
// Reads samples together with the times at which their meter was loaded and began to
// count. All of them belong to one load of one meter, whatever happens during the read.
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

// Calls `read` between two reads of the health. Repeats this if the meter was unloaded,
// loaded or upgraded in between. Unavailable if that happened three times in a row. Also
// returns errors of `read` and of Meter::ReadHealth().
absl::Status ReadConsistently(const Meter& meter,
                              const std::function<absl::Status()>& read,
                              Health* health);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_CONSISTENT_READ_H_
