// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/not_counted.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

// A port has no packets of sockets or of routes: they pass the interface that it is a
// port of. The programs see a packet only there.
bool IsPort(const Interface& interface) {
  return interface.port_of == "bridge" || interface.port_of == "bond" ||
         interface.port_of == "team" || interface.port_of == "openvswitch";
}

std::string NameOf(uint32_t index, const std::vector<Interface>& interfaces) {
  const auto found = std::find_if(
      interfaces.begin(), interfaces.end(),
      [index](const Interface& one) { return one.index == index; });
  return found == interfaces.end() ? absl::StrCat("interface ", index)
                                   : found->name;
}

// Why the packets of this interface are counted at another one; "" if they are not.
std::string WhyNotCounted(const Interface& interface,
                          const std::vector<Interface>& interfaces) {
  if (interface.index == kLoopbackIndex) return "loopback is in no uplink";
  if (!IsPort(interface)) return "";
  // All switches of Open vSwitch are behind one interface, which has no packets.
  if (interface.port_of == "openvswitch") {
    return "a port of Open vSwitch: name the interface that has the address";
  }
  const std::string master = NameOf(interface.master, interfaces);
  return absl::StrCat("a port of ", interface.port_of, " ", master,
                      ": its packets count as those of ", master);
}

bool Fits(const std::string& pattern, const Interface& interface) {
  return FitsUplink(pattern, interface.name) ||
         std::any_of(interface.alternatives.begin(),
                     interface.alternatives.end(),
                     [&](const std::string& name) {
                       return FitsUplink(pattern, name);
                     });
}

}  // namespace

std::vector<NotCounted> FindNotCounted(
    const Uplinks& uplinks, const std::vector<Interface>& interfaces) {
  std::vector<NotCounted> all;
  for (const auto& uplink : uplinks) {
    for (const std::string& pattern : uplink.second) {
      bool any = false;
      for (const Interface& interface : interfaces) {
        if (!Fits(pattern, interface)) continue;
        any = true;
        // A pattern such as "e*" is meant for the interfaces that count.
        if (absl::EndsWith(pattern, "*")) break;
        const std::string why = WhyNotCounted(interface, interfaces);
        if (!why.empty()) all.push_back({uplink.first, pattern, why});
      }
      if (!any) all.push_back({uplink.first, pattern, "no such interface"});
    }
  }
  return all;
}

const Interface* FindBelow(const Interface& interface, const Uplinks& uplinks,
                           const std::vector<Interface>& interfaces) {
  const std::string uplink = FindUplink(uplinks, interface.name);
  const auto found = std::find_if(
      interfaces.begin(), interfaces.end(), [&](const Interface& other) {
        return (other.index == interface.lower ||
                other.master == interface.index) &&
               FindUplink(uplinks, other.name) == uplink;
      });
  return found == interfaces.end() ? nullptr : &*found;
}

std::string NoteOf(const NotCounted& not_counted) {
  return absl::StrCat("uplinks: ", ToTerminal(not_counted.uplink), ": ",
                      ToTerminal(not_counted.interface), ": ", not_counted.why);
}

}  // namespace internal
}  // namespace netmeter
