// SPDX-License-Identifier: BSD-3-Clause
// Which series have destinations, and the rules that name them: what the kernel
// part is told of both (bpf/destination.bpf.h).
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_LOADER_DESTINATIONS_H_
#define NETMETER_LIB_LOADER_DESTINATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

// The first rule that matches the remote end names the destination.
struct DestinationRule {
  std::string name;
  uint32_t address[4] = {};  // network byte order; IPv4 as ::ffff:a.b.c.d
  uint32_t mask[4] = {};
  uint16_t port_first = 0;
  uint16_t port_last = 65535;
  uint8_t protocol = 0;  // IPPROTO_*, 0: any
  // Also of a connection that gives a name itself. By default where there is an
  // address: who says which host it is knows better than a port.
  bool overrides_names = false;
};

bool HasAddress(const DestinationRule& rule);

// Whether nothing is left for `later` where `earlier` comes before it. A rule that
// yields to names is the first that matches, too.
bool Covers(const DestinationRule& earlier, const DestinationRule& later);

// Those that there are by default: what a host asks its name servers has no other
// name.
const std::vector<DestinationRule>& DefaultDestinationRules();

// The entry of nm_rules for it; `destination` is the id of its name.
nm_rule RuleEntry(const DestinationRule& rule, uint32_t destination);

// The ports of all rules that may match a packet that is not TCP's, as in
// nm_config. The kernel part looks at the rules for packets with such ports
// only. No rule: none. A rule without a port: all.
struct PortRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
PortRange PortsBeyondTcp(const std::vector<DestinationRule>& rules);

// The words of `destinations_of`: the values of `kind` that may be in it, all of
// which are by default.
const std::vector<std::string>& AllDestinationKinds();

// InvalidArgument: a word that is unknown, or there twice.
absl::Status CheckDestinationKinds(const std::vector<std::string>& kinds);

// As in nm_config: a bit for each, 1 << nm_kind.
uint32_t BitsOfKinds(const std::vector<std::string>& kinds);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_DESTINATIONS_H_
