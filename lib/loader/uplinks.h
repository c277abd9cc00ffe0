// SPDX-License-Identifier: BSD-3-Clause
// Uplinks at a load: the number of each name, the uplink of each interface, and the
// counters so far. bpf/uplink.bpf.h explains how a packet finds its uplink.
//
// An uplink keeps its number as long as the meter is loaded, because series have the
// number.
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

// A text of all that decides, besides the configuration, which packets belong to which
// uplink: the network namespace of this process, the interfaces that match an uplink by
// an alternative name, and all interfaces if the programs read no names. "" without
// uplinks.
absl::StatusOr<std::string> PlaceOfUplinks(const Uplinks& uplinks);

// Call before the load: an upgrade keeps the data on interfaces.
absl::Status ReuseInterfaces(const PinDir& pins, MeterObject* object);

// Call after the load, and before packets are counted. `existing` is the info of the
// meter that is upgraded, or empty. If that meter was loaded in another network
// namespace, the links for forwarded packets are removed, because their packets belong to
// no uplink here. ResourceExhausted: no number is left.
absl::Status FillUplinks(const Uplinks& uplinks, const nm_info& existing,
                         const PinDir& pins, MeterObject* object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_UPLINKS_H_
