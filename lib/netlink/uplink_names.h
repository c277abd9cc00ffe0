// SPDX-License-Identifier: BSD-3-Clause
// Uplinks in the configuration: patterns by the name of the uplink. A pattern is the name
// of an interface, an alternative name, or the beginning of names and a star.
//
//   Uplinks uplinks = {{"satellite", {"sat0", "wwan*"}}, {"lan", {"eth1"}}};
//   FindUplink(uplinks, "wwan3");  // "satellite"
//
// Threads: plain values.

#ifndef NETMETER_LIB_NETLINK_UPLINK_NAMES_H_
#define NETMETER_LIB_NETLINK_UPLINK_NAMES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// Patterns by uplink.
using Uplinks = std::map<std::string, std::vector<std::string>>;

// The uplink of interfaces that match no pattern.
constexpr char kOtherUplink[] = "other";

// Checks the names, the patterns and their numbers. InvalidArgument.
absl::Status CheckUplinks(const Uplinks& uplinks);

// The key of a pattern in nm_uplink_names.
nm_uplink_key UplinkKey(absl::string_view pattern);

// Whether a pattern equals a name, or matches its beginning.
bool FitsUplink(absl::string_view pattern, absl::string_view name);

// The uplink of an interface, from the pattern that fits best; a whole name fits best of
// all. kOtherUplink if none fits. `alternatives` are its other names. Without them this
// finds what the programs find: the loader tells them which name has alternatives.
std::string FindUplink(const Uplinks& uplinks, absl::string_view interface,
                       const std::vector<std::string>& alternatives = {});

// Whether a pattern can match the name of an interface. Only alternative names are
// longer.
bool FitsInterfaceName(absl::string_view pattern);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_UPLINK_NAMES_H_
