// SPDX-License-Identifier: BSD-3-Clause
// Uplinks as the configuration has them: names of interfaces, alternative ones among
// them, or what names begin with and a star, by the name of the uplink.
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
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

// Patterns by uplink.
using Uplinks = std::map<std::string, std::vector<std::string>>;

// What is in no uplink.
constexpr char kOtherUplink[] = "other";

// Names, patterns and their numbers. InvalidArgument.
absl::Status CheckUplinks(const Uplinks& uplinks);

// The key of a pattern in nm_uplink_names.
nm_uplink_key UplinkKey(absl::string_view pattern);

// Whether a pattern is, or begins, a name.
bool FitsUplink(absl::string_view pattern, absl::string_view name);

// The uplink of an interface: the pattern that fits best, a whole name best of all;
// kOtherUplink if none does. Without `alternatives`, its other names, as the programs
// find it: the loader tells them which name has them.
std::string FindUplink(const Uplinks& uplinks, absl::string_view interface,
                       const std::vector<std::string>& alternatives = {});

// Whether the name of an interface can fit. Longer ones are alternative names alone.
bool FitsInterfaceName(absl::string_view pattern);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_UPLINK_NAMES_H_
