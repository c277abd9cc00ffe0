// SPDX-License-Identifier: BSD-3-Clause
// Finds the interfaces of the default route in this process's network namespace.
//
//   absl::StatusOr<std::vector<uint32_t>> indexes = FindDefaultRoute();
//
// Threads: any.

#ifndef NETMETER_LIB_NETLINK_ROUTES_H_
#define NETMETER_LIB_NETLINK_ROUTES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// The interfaces by which packets of IPv4 and IPv6 leave if no other route matches, each
// once, that of IPv4 first. Several for a route with several next hops. Empty without a
// default route. Looks up one route for each family, however many there are; needs no
// privilege.
absl::StatusOr<std::vector<uint32_t>> FindDefaultRoute();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_ROUTES_H_
