// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/destinations.h"

#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace netmeter {
namespace internal {
namespace {

// In the order of AllDestinationKinds().
constexpr nm_kind kKinds[] = {NM_KIND_SERVICE, NM_KIND_BINARY, NM_KIND_UNIT,
                              NM_KIND_CONTAINER};

}  // namespace

const std::vector<DestinationRule>& DefaultDestinationRules() {
  static const auto* const rules = [] {
    DestinationRule dns;
    dns.name = "dns";
    dns.port_first = dns.port_last = 53;
    return new std::vector<DestinationRule>{dns};
  }();
  return *rules;
}

bool HasAddress(const DestinationRule& rule) {
  return (rule.mask[0] | rule.mask[1] | rule.mask[2] | rule.mask[3]) != 0;
}

bool Covers(const DestinationRule& earlier, const DestinationRule& later) {
  for (int word = 0; word < 4; ++word) {
    const uint32_t mask = earlier.mask[word];
    if ((later.mask[word] & mask) != mask ||
        (later.address[word] & mask) != earlier.address[word]) {
      return false;
    }
  }
  return earlier.port_first <= later.port_first &&
         earlier.port_last >= later.port_last &&
         (earlier.protocol == 0 || earlier.protocol == later.protocol);
}

nm_rule RuleEntry(const DestinationRule& rule, uint32_t destination) {
  nm_rule value = {};
  memcpy(value.address, rule.address, sizeof(value.address));
  memcpy(value.mask, rule.mask, sizeof(value.mask));
  value.port_first = rule.port_first;
  value.port_last = rule.port_last;
  value.protocol = rule.protocol;
  value.yields = !rule.overrides_names;
  value.destination = static_cast<uint16_t>(destination);
  return value;
}

PortRange PortsBeyondTcp(const std::vector<DestinationRule>& rules) {
  uint32_t first = UINT32_MAX, last = 0;
  for (const DestinationRule& rule : rules) {
    if (rule.protocol == IPPROTO_TCP) continue;
    first = std::min<uint32_t>(first, rule.port_first);
    last = std::max<uint32_t>(last, rule.port_last);
  }
  PortRange range;
  if (first > last) return range;
  range.first = first;
  range.count = last - first + 1;
  return range;
}

const std::vector<std::string>& AllDestinationKinds() {
  static const auto* const kinds =
      new std::vector<std::string>{"service", "binary", "unit", "container"};
  return *kinds;
}

absl::Status CheckDestinationKinds(const std::vector<std::string>& kinds) {
  const auto& all = AllDestinationKinds();
  std::set<std::string> seen;
  for (const std::string& kind : kinds) {
    if (std::find(all.begin(), all.end(), kind) == all.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("destinations_of: '", kind.substr(0, 64), "': expected ",
                       absl::StrJoin(all, ", ")));
    }
    if (!seen.insert(kind).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("destinations_of: '", kind, "' is there twice"));
    }
  }
  return absl::OkStatus();
}

uint32_t BitsOfKinds(const std::vector<std::string>& kinds) {
  const auto& all = AllDestinationKinds();
  uint32_t bits = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::find(kinds.begin(), kinds.end(), all[i]) != kinds.end()) {
      bits |= 1u << kKinds[i];
    }
  }
  return bits;
}

}  // namespace internal
}  // namespace netmeter
