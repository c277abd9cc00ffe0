// SPDX-License-Identifier: BSD-3-Clause
// Uplinks for several commands: rows of forwarded traffic, and the check of --uplink.
//
//   std::vector<Sample> rows = ...;  // of Meter::ReadHost()
//   has_forwarded = AddForwardedRows(*meter, &rows).ok();
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_UPLINKS_H_
#define NETMETER_LIB_APPS_NETMETER_UPLINKS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/reader/difference.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// CheckUplink() for the values of an option: the meter's uplinks are known. OK if the
// meter cannot be read, because its other readers say why.
absl::Status CheckUplinks(const std::string& pin_dir,
                          const std::vector<std::string>& uplinks);

// What Meter::ReadUplinks() has of forwarded traffic. Errors as there, and Unimplemented:
// the meter does not measure it.
absl::StatusOr<ForwardedSamples> ReadForwarded(const Meter& meter);

// Adds rows of kind kForwardedRow. After an error there are none: the sums over uplinks
// lack forwarded traffic, and the message says why.
absl::Status AddForwardedRows(const Meter& meter, std::vector<Sample>* rows);

// The uplinks of the configuration, without those of forwarded_clients: what is forwarded
// for a client passes one of those, too. Needs no root. Empty without uplinks.
std::set<std::string> ReadPaidUplinks(const std::string& pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_UPLINKS_H_
