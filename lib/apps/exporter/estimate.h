// SPDX-License-Identifier: BSD-3-Clause
// The cost of publishing a meter: bytes in a reply, and gigabytes in a month.
//
//   const auto text = Estimate(*meter, flags);
//   if (text.ok()) std::fputs(text->c_str(), stdout);
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_EXPORTER_ESTIMATE_H_
#define NETMETER_LIB_APPS_EXPORTER_ESTIMATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "lib/apps/exporter/exporter_flags.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// A table for people. It has the size of a reply with the present series, for each set
// of families and for those that the flags choose; and the bytes in a day, for each
// profile of a fleet. Errors are those of ReadScope().
absl::StatusOr<std::string> Estimate(const Meter& meter,
                                     const ExporterFlags& flags);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_ESTIMATE_H_
