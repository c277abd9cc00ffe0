// SPDX-License-Identifier: BSD-3-Clause
// What it costs to publish a meter: bytes of a reply, and gigabytes of a month.
//
//   const auto text = Estimate(*meter, flags);
//   if (text.ok()) std::fputs(text->c_str(), stdout);
//
// Threads: any.

#ifndef NETMETER_LIB_EXPORTER_ESTIMATE_H_
#define NETMETER_LIB_EXPORTER_ESTIMATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "lib/exporter/exporter_flags.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// A table for people: for each set of families, and for those that the flags
// choose, how large a reply is with the series that there are now; and for each
// profile of a fleet, what that is in a day. Errors as ReadScope().
absl::StatusOr<std::string> Estimate(const Meter& meter,
                                     const ExporterFlags& flags);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_ESTIMATE_H_
