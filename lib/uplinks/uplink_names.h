// SPDX-License-Identifier: BSD-3-Clause
// Uplinks as the configuration has them: names of interfaces, or what names begin
// with and a star, by the name of the uplink.
//
//   Uplinks uplinks = {{"satellite", {"sat0", "wwan*"}}, {"lan", {"eth1"}}};
//   FindUplink(uplinks, "wwan3");  // "satellite"
//
// Threads: plain values.

#ifndef NETMETER_LIB_UPLINKS_UPLINK_NAMES_H_
#define NETMETER_LIB_UPLINKS_UPLINK_NAMES_H_

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

// The uplink of an interface, as the programs find it: the pattern that fits best,
// the name itself best of all; kOtherUplink if none does.
std::string FindUplink(const Uplinks& uplinks, absl::string_view interface);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_UPLINKS_UPLINK_NAMES_H_
