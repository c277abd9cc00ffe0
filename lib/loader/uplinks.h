// SPDX-License-Identifier: BSD-3-Clause
// Uplinks at a load: which name has which number, which interface is in which
// uplink, and what each has counted so far. bpf/uplink.bpf.h tells how a packet
// finds its uplink.
//
// An uplink that has had a number keeps it for as long as the meter is loaded:
// series have the number.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_UPLINKS_H_
#define NETMETER_LIB_LOADER_UPLINKS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/netlink/uplink_names.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// What says, beside the configuration, which packets are in which uplink, as text: the
// network namespace of this process, the interfaces that are in an uplink by another
// name, and all interfaces where programs read no names.
// "" without uplinks.
absl::StatusOr<std::string> PlaceOfUplinks(const Uplinks& uplinks);

// Before the load: what is known of interfaces stays known through an upgrade.
absl::Status ReuseInterfaces(const PinDir& pins, MeterObject* object);

// After it, and before packets are counted. `existing` is of the meter that is
// upgraded, or empty. If what is known is of another network namespace than this one,
// the links of forwarded packets go: their packets are of no uplink here.
// ResourceExhausted: no number is left.
absl::Status FillUplinks(const Uplinks& uplinks, const nm_info& existing,
                         const PinDir& pins, MeterObject* object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_UPLINKS_H_
