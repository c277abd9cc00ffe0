// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/balance.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

std::string NameOf(const nm_interface& entry) {
  return std::string(entry.name, strnlen(entry.name, sizeof(entry.name)));
}

void AddNote(const std::string& note, UplinkBalance* balance) {
  if (balance->unknown.empty()) balance->unknown = note;
}

void AddCounts(const nm_interface_counts& now, const nm_interface_counts& base,
               const std::string& name, UplinkBalance* balance) {
  if (now.tx_bytes < base.tx_bytes || now.rx_bytes < base.rx_bytes ||
      now.tx_packets < base.tx_packets || now.rx_packets < base.rx_packets) {
    AddNote(absl::StrCat(name, " has begun to count again"), balance);
    return;
  }
  balance->tx.interface_bytes += now.tx_bytes - base.tx_bytes;
  balance->rx.interface_bytes += now.rx_bytes - base.rx_bytes;
  balance->tx.interface_packets += now.tx_packets - base.tx_packets;
  balance->rx.interface_packets += now.rx_packets - base.rx_packets;
}

bool HasCounted(const nm_interface& ended) {
  return ended.end.tx_packets != ended.base.tx_packets ||
         ended.end.rx_packets != ended.base.rx_packets;
}

class Balancer {
 public:
  explicit Balancer(const BalanceInput& input) : input_(input) {
    for (const Interface& interface : input.interfaces) {
      by_index_[interface.index] = &interface;
    }
    for (const InterfaceEntry& entry : input.entries) {
      known_.insert({entry.first.ifindex, entry.first.uplink});
      if (!entry.second.ended) ++open_[entry.first.ifindex];
    }
  }

  UplinkBalance Of(uint32_t number, const std::string& name) const {
    UplinkBalance balance;
    balance.name = name;
    LinkHeaders headers;
    for (const InterfaceEntry& entry : input_.entries) {
      if (entry.first.uplink != number) continue;
      if (entry.second.ended) {
        AddEnded(entry, &headers, &balance);
        continue;
      }
      const auto found = by_index_.find(entry.first.ifindex);
      if (found == by_index_.end()) {
        AddNote(absl::StrCat(NameOf(entry.second),
                             " has gone, and what it had counted with it"),
                &balance);
        continue;
      }
      const Interface& interface = *found->second;
      balance.interfaces.push_back(interface.name);
      headers.Add(interface);
      AddCounts(interface.counts, entry.second.base, interface.name, &balance);
      if (open_.at(interface.index) > 1 ||
          FindUplink(input_.patterns, interface.name) != name) {
        const std::string name = NameOf(entry.second);
        AddNote(
            absl::StrCat(name, name == interface.name
                                   ? " counted for two uplinks: a load was "
                                     "interrupted"
                                   : absl::StrCat(" is called ", interface.name,
                                                  " now: it counted for two "
                                                  "uplinks")),
            &balance);
      }
    }
    // Interfaces that came later, and on which no socket had a packet yet.
    for (const Interface& interface : input_.interfaces) {
      if (known_.count({interface.index, number}) != 0 ||
          open_.count(interface.index) != 0 ||
          interface.index == kLoopbackIndex ||
          FindUplink(input_.patterns, interface.name) != name) {
        continue;
      }
      balance.interfaces.push_back(interface.name);
      headers.Add(interface);
      AddCounts(interface.counts, {}, interface.name, &balance);
    }
    // Elements of a hash table have no order.
    std::sort(balance.interfaces.begin(), balance.interfaces.end());
    AddLocal(&balance);
    AddForwarded(number, &balance);
    if (headers.mixed) {
      AddNote(
          "its interfaces have layer-2 headers of different or unknown sizes",
          &balance);
    } else if (!headers.size.known() && !headers.gone.empty()) {
      AddNote(absl::StrCat(headers.gone,
                           " has left this uplink and the host, and nothing "
                           "tells the size of its layer-2 headers"),
              &balance);
    }
    const bool known = !headers.mixed && headers.size.known();
    Close(known ? headers.size : LinkHeader{0, 0}, &balance);
    return balance;
  }

 private:
  // The layer-2 headers of an uplink's interfaces, which must have one size.
  struct LinkHeaders {
    LinkHeader size;
    bool mixed = false;
    // An interface that was in the uplink and has left the host. Its header size is
    // that of the uplink's other interfaces, if there are any.
    std::string gone;

    void Add(const Interface& interface) {
      mixed |= size.known() && !(size == interface.header);
      mixed |= !interface.header.known();
      size = interface.header;
    }
  };

  // An interface that was in this uplink until a load.
  void AddEnded(const InterfaceEntry& entry, LinkHeaders* headers,
                UplinkBalance* balance) const {
    const std::string name = NameOf(entry.second);
    AddCounts(entry.second.end, entry.second.base, name, balance);
    const auto now = by_index_.find(entry.first.ifindex);
    // It may be in another uplink now, or in none: its layer-2 headers have not
    // changed.
    if (now != by_index_.end() && now->second->name == name) {
      headers->Add(*now->second);
    } else if (HasCounted(entry.second)) {
      headers->gone = name;
    }
    if (now != by_index_.end() &&
        FindUplink(input_.patterns, now->second->name) == balance->name) {
      AddNote(absl::StrCat(now->second->name,
                           " is in this uplink again, which no load has seen"),
              balance);
    }
  }

  // Also notes why the sum may differ from the traffic on the uplink.
  void AddLocal(UplinkBalance* balance) const {
    for (const Sample& sample : input_.samples) {
      if (sample.uplink != balance->name || sample.path != Path::kDirect) {
        continue;
      }
      balance->tx.local_bytes += sample.tx_bytes;
      balance->rx.local_bytes += sample.rx_bytes;
      balance->tx.local_packets += sample.tx_packets;
      balance->rx.local_packets += sample.rx_packets;
    }
    const bool overflows = std::any_of(
        input_.samples.begin(), input_.samples.end(), [](const Sample& sample) {
          return sample.kind == Kind::kOverflow &&
                 sample.path == Path::kDirect &&
                 sample.tx_packets + sample.rx_packets != 0;
        });
    if (overflows) {
      AddNote("local packets are in overflow, which has no uplink", balance);
    }
  }

  void AddForwarded(uint32_t number, UplinkBalance* balance) const {
    const auto found = input_.forwarded.find(number);
    if (!input_.counts_forwarded || found == input_.forwarded.end()) return;
    balance->tx.forwarded_bytes = found->second.tx_bytes;
    balance->rx.forwarded_bytes = found->second.rx_bytes;
    balance->tx.forwarded_packets = found->second.tx_packets;
    balance->rx.forwarded_packets = found->second.rx_packets;
  }

  static void Close(const LinkHeader& header, UplinkBalance* balance) {
    for (DirectionBalance* one : {&balance->tx, &balance->rx}) {
      const int size = one == &balance->tx ? header.tx : header.rx;
      const uint64_t packets = one->local_packets + one->forwarded_packets;
      one->header_bytes = static_cast<uint64_t>(size) * packets;
      const uint64_t ours =
          one->local_bytes + one->forwarded_bytes + one->header_bytes;
      if (one->interface_packets < packets || one->interface_bytes < ours) {
        AddNote(absl::StrCat(
                    "the interface counted ", one->interface_packets,
                    one->forwarded_packets != 0
                        ? " packets, but local services and others had "
                        : " packets, but local services had ",
                    packets, " on the link: it counts GSO packets, or not all"),
                balance);
      }
      one->rest_bytes = one->interface_bytes - ours;
      one->rest_packets = one->interface_packets - packets;
    }
    if (balance->unknown.empty()) return;
    for (DirectionBalance* one : {&balance->tx, &balance->rx}) {
      one->rest_bytes = one->rest_packets = 0;
    }
  }

  const BalanceInput& input_;
  std::map<uint32_t, const Interface*> by_index_;
  std::set<std::pair<uint32_t, uint32_t>> known_;
  std::map<uint32_t, int> open_;  // open entries
};

}  // namespace

std::vector<UplinkBalance> BalanceUplinks(const BalanceInput& input) {
  const Balancer balancer(input);
  std::vector<UplinkBalance> all;
  for (const auto& uplink : input.names) {
    UplinkBalance balance = balancer.Of(uplink.first, uplink.second);
    if (balance.interfaces.empty() && balance.unknown.empty() &&
        balance.tx.interface_packets + balance.rx.interface_packets == 0 &&
        input.patterns.count(uplink.second) == 0) {
      continue;
    }
    all.push_back(std::move(balance));
  }
  return all;
}

}  // namespace internal
}  // namespace netmeter
