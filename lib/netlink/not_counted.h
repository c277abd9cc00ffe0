// SPDX-License-Identifier: BSD-3-Clause
// Finds uplinks of the configuration that count nothing: interfaces that do not exist,
// and interfaces whose packets pass another interface.
//
//   for (const NotCounted& one : FindNotCounted(uplinks, *ListInterfaces())) {
//     Print(one.uplink, one.interface, one.why);
//   }
//
// This is not an error: a modem may appear later.
//
// Threads: plain values.

#ifndef NETMETER_LIB_NETLINK_NOT_COUNTED_H_
#define NETMETER_LIB_NETLINK_NOT_COUNTED_H_

#include <string>
#include <vector>

#include "lib/netlink/interfaces.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {

struct NotCounted {
  std::string uplink;
  std::string interface;  // or a pattern without a match
  std::string why;
};

std::vector<NotCounted> FindNotCounted(
    const Uplinks& uplinks, const std::vector<Interface>& interfaces);

// The interface that `interface` is on, such as that of a VLAN, or a port of it, if both
// are in one uplink: both count the same packets. Null if there is none.
const Interface* FindBelow(const Interface& interface, const Uplinks& uplinks,
                           const std::vector<Interface>& interfaces);

// "uplinks: satellite: sta0: no such interface".
std::string NoteOf(const NotCounted& not_counted);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_NOT_COUNTED_H_
