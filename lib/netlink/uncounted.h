// SPDX-License-Identifier: BSD-3-Clause
// What the configuration has among its uplinks and yet counts nothing: interfaces that do
// not exist, and such whose packets pass another interface.
//
//   for (const Uncounted& one : FindUncounted(uplinks, *ListInterfaces())) {
//     Print(one.uplink, one.interface, one.why);
//   }
//
// No error: a modem appears later.
//
// Threads: plain values.

#ifndef NETMETER_LIB_NETLINK_UNCOUNTED_H_
#define NETMETER_LIB_NETLINK_UNCOUNTED_H_

#include <string>
#include <vector>

#include "lib/netlink/interfaces.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {

struct Uncounted {
  std::string uplink;
  std::string interface;  // or a pattern that fits none
  std::string why;
};

std::vector<Uncounted> FindUncounted(const Uplinks& uplinks,
                                     const std::vector<Interface>& interfaces);

// "uplinks: satellite: sta0: no such interface".
std::string NoteOf(const Uncounted& uncounted);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_UNCOUNTED_H_
