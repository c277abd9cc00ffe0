// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/balance.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/netlink/interfaces.h"
#include "lib/netlink/not_counted.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {
namespace {

void AddNote(const std::string& note, Uplink* uplink) {
  if (uplink->unknown.empty()) uplink->unknown = note;
}

// The row of an interface that counts for the uplink.
UplinkInterface* RowOf(uint32_t index, const std::string& name,
                       Uplink* uplink) {
  for (UplinkInterface& row : uplink->interfaces) {
    if (row.index == index) return &row;
  }
  uplink->interfaces.emplace_back();
  UplinkInterface* const row = &uplink->interfaces.back();
  row->index = index;
  row->name = name;
  row->has_left = true;
  return row;
}

void AddCounts(const nm_interface_counts& now, const nm_interface_counts& base,
               UplinkInterface* row, Uplink* uplink) {
  if (now.tx_bytes < base.tx_bytes || now.rx_bytes < base.rx_bytes ||
      now.tx_packets < base.tx_packets || now.rx_packets < base.rx_packets) {
    AddNote(absl::StrCat(row->name, " has begun to count again"), uplink);
    return;
  }
  row->tx_bytes += now.tx_bytes - base.tx_bytes;
  row->rx_bytes += now.rx_bytes - base.rx_bytes;
  row->tx_packets += now.tx_packets - base.tx_packets;
  row->rx_packets += now.rx_packets - base.rx_packets;
}

void SetHeader(const LinkHeader& header, UplinkInterface* row) {
  row->tx_header_bytes = header.tx;
  row->rx_header_bytes = header.rx;
}

std::string WasInterrupted(const std::string& name) {
  return absl::StrCat(name, " counted for two uplinks: a load was interrupted");
}

bool HasCounted(const nm_interface& ended) {
  return ended.end.tx_packets != ended.begin.tx_packets ||
         ended.end.rx_packets != ended.begin.rx_packets;
}

class Balancer {
 public:
  explicit Balancer(const BalanceInput& input)
      : input_(input),
        not_counted_(FindNotCounted(input.patterns, input.interfaces)) {
    for (const Interface& interface : input.interfaces) {
      by_index_[interface.index] = &interface;
    }
    for (const InterfaceEntry& entry : input.entries) {
      known_.insert({entry.first.ifindex, entry.first.uplink});
      if (entry.second.ended_ns != 0) continue;
      ++open_[entry.first.ifindex];
      const std::string name = NameOf(entry.second);
      const auto here = by_index_.find(entry.first.ifindex);
      if (here != by_index_.end() && here->second->name != name) {
        former_names_[entry.first.ifindex] = name;
      }
      open_in_.insert({entry.first.ifindex, entry.first.uplink});
    }
  }

  Uplink Of(const MeterUplink& asked) const {
    Uplink uplink;
    uplink.name = asked.name;
    uplink.is_paid = asked.is_paid;
    uplink.leads_to_clients = asked.leads_to_clients;
    LinkHeaders headers;
    for (const InterfaceEntry& entry : input_.entries) {
      if (entry.first.uplink != asked.number) continue;
      uplink.forwarded_began_later |=
          entry.second.began_ns < input_.forwarded_since_ns;
      if (entry.second.interrupted != 0) {
        AddNote(WasInterrupted(NameOf(entry.second)), &uplink);
      }
      const auto found = by_index_.find(entry.first.ifindex);
      if (entry.second.ended_ns != 0) {
        // A row that loses its last stay would go back: it goes as a whole.
        if (found != by_index_.end() || !IsOpen(entry.first)) {
          AddEnded(entry, &headers, &uplink);
        }
        continue;
      }
      if (found == by_index_.end()) {
        AddNote(absl::StrCat(NameOf(entry.second),
                             " has gone, and what it had counted with it"),
                &uplink);
        continue;
      }
      const Interface& interface = *found->second;
      const std::string was = NameOf(entry.second);
      const bool has_left =
          FindUplink(input_.patterns, interface.name) != asked.name;
      if (has_left || open_.at(interface.index) > 1) {
        const auto former = former_names_.find(interface.index);
        AddNote(
            former == former_names_.end()
                ? WasInterrupted(was)
                : absl::StrCat("interface ", interface.index, " was ",
                               former->second, " and is ", interface.name,
                               " now: renamed, or another one with its number"),
            &uplink);
      }
      if (!has_left) {
        Add(interface, entry.second.begin, &headers, &uplink);
        continue;
      }
      AddPresent(interface, entry.second.begin, &headers, &uplink);
      UplinkInterface* const row = RowOf(interface.index, was, &uplink);
      row->name = was;
      row->has_left = true;
    }
    // Interfaces that came later, and on which no socket had a packet yet. Without
    // uplinks there is no `other`.
    for (const Interface& interface : input_.interfaces) {
      if (input_.patterns.empty()) break;
      if (known_.count({interface.index, asked.number}) != 0 ||
          open_.count(interface.index) != 0 ||
          interface.index == kLoopbackIndex ||
          FindUplink(input_.patterns, interface.name) != asked.name) {
        continue;
      }
      Add(interface, {}, &headers, &uplink);
    }
    AddNotCounted(&uplink);
    // Elements of a hash table have no order.
    std::sort(uplink.interfaces.begin(), uplink.interfaces.end(),
              [](const UplinkInterface& a, const UplinkInterface& b) {
                return std::tie(a.name, a.index) < std::tie(b.name, b.index);
              });
    for (const UplinkInterface& row : uplink.interfaces) {
      uplink.tx.interface_bytes += row.tx_bytes;
      uplink.rx.interface_bytes += row.rx_bytes;
      uplink.tx.interface_packets += row.tx_packets;
      uplink.rx.interface_packets += row.rx_packets;
    }
    AddLocal(&uplink);
    AddForwarded(&uplink);
    if (headers.mixed) {
      AddNote(
          "its interfaces have layer-2 headers of different or unknown sizes",
          &uplink);
    }
    const bool known = !headers.mixed && headers.size.known();
    Close(known ? headers.size : LinkHeader{0, 0}, &uplink);
    return uplink;
  }

 private:
  bool IsOpen(const nm_interface_key& key) const {
    return open_in_.count({key.ifindex, key.uplink}) != 0;
  }

  // The layer-2 headers of an uplink's interfaces, which must have one size.
  struct LinkHeaders {
    LinkHeader size;
    bool mixed = false;

    void Add(const LinkHeader& header) {
      mixed |= size.known() && !(size == header);
      mixed |= !header.known();
      size = header;
    }
  };

  // Two interfaces of one uplink may have the same packets. These count once.
  void Add(const Interface& interface, const nm_interface_counts& base,
           LinkHeaders* headers, Uplink* uplink) const {
    const Interface* const below =
        uplink->name == kOtherUplink
            ? nullptr
            : FindBelow(interface, input_.patterns, input_.interfaces);
    if (below == nullptr) {
      AddPresent(interface, base, headers, uplink);
      return;
    }
    uplink->interfaces.emplace_back();
    uplink->interfaces.back().name = interface.name;
    uplink->interfaces.back().not_counted =
        absl::StrCat("its packets count as those of ", below->name);
    headers->Add(interface.header);
  }

  static void AddPresent(const Interface& interface,
                         const nm_interface_counts& base, LinkHeaders* headers,
                         Uplink* uplink) {
    UplinkInterface* const row = RowOf(interface.index, interface.name, uplink);
    row->name = interface.name;
    row->has_left = false;
    SetHeader(interface.header, row);
    headers->Add(interface.header);
    AddCounts(interface.counts, base, row, uplink);
  }

  // An interface that was in this uplink until a load.
  void AddEnded(const InterfaceEntry& entry, LinkHeaders* headers,
                Uplink* uplink) const {
    const auto now = by_index_.find(entry.first.ifindex);
    if (HasCounted(entry.second)) {
      UplinkInterface* const row =
          RowOf(entry.first.ifindex, NameOf(entry.second), uplink);
      AddCounts(entry.second.end, entry.second.begin, row, uplink);
      if (row->has_left) SetHeader(HeaderOf(entry.second), row);
      headers->Add(HeaderOf(entry.second));
    }
    if (now != by_index_.end() && !IsOpen(entry.first) &&
        FindUplink(input_.patterns, now->second->name) == uplink->name) {
      AddNote(absl::StrCat(now->second->name,
                           " is in this uplink again, which no load has seen"),
              uplink);
    }
  }

  void AddNotCounted(Uplink* uplink) const {
    for (const NotCounted& one : not_counted_) {
      if (one.uplink != uplink->name) continue;
      const auto row =
          std::find_if(uplink->interfaces.begin(), uplink->interfaces.end(),
                       [&](const UplinkInterface& has) {
                         return has.name == one.interface;
                       });
      if (row != uplink->interfaces.end()) {
        row->not_counted = one.why;
        continue;
      }
      uplink->interfaces.emplace_back();
      uplink->interfaces.back().name = one.interface;
      uplink->interfaces.back().not_counted = one.why;
    }
  }

  // Also notes why the sum may differ from the traffic on the uplink.
  void AddLocal(Uplink* uplink) const {
    for (const Sample& sample : input_.samples) {
      if (sample.uplink != uplink->name || sample.path != Path::kDirect) {
        continue;
      }
      uplink->tx.local_bytes += sample.tx_bytes;
      uplink->rx.local_bytes += sample.rx_bytes;
      uplink->tx.local_packets += sample.tx_packets;
      uplink->rx.local_packets += sample.rx_packets;
    }
    const bool overflows = std::any_of(
        input_.samples.begin(), input_.samples.end(), [](const Sample& sample) {
          return sample.kind == Kind::kOverflow &&
                 sample.path == Path::kDirect &&
                 sample.tx_packets + sample.rx_packets != 0;
        });
    if (overflows) {
      AddNote("local packets are in overflow, which has no uplink", uplink);
    }
  }

  void AddForwarded(Uplink* uplink) const {
    uplink->forwarded_unknown = input_.forwarded_unknown;
    for (const auto& part : input_.forwarded) {
      if (part.first.uplink != uplink->name || part.second.IsZero()) continue;
      ForwardedTraffic row;
      row.interface = part.first.interface;
      row.client = part.first.client;
      row.tx_bytes = static_cast<uint64_t>(part.second.value[0]);
      row.rx_bytes = static_cast<uint64_t>(part.second.value[1]);
      row.tx_packets = static_cast<uint64_t>(part.second.value[2]);
      row.rx_packets = static_cast<uint64_t>(part.second.value[3]);
      uplink->tx.forwarded_bytes += row.tx_bytes;
      uplink->rx.forwarded_bytes += row.rx_bytes;
      uplink->tx.forwarded_packets += row.tx_packets;
      uplink->rx.forwarded_packets += row.rx_packets;
      uplink->forwarded.push_back(std::move(row));
    }
  }

  static void Close(const LinkHeader& header, Uplink* uplink) {
    for (UplinkCounts* one : {&uplink->tx, &uplink->rx}) {
      const int size = one == &uplink->tx ? header.tx : header.rx;
      const uint64_t packets = one->local_packets + one->forwarded_packets;
      one->layer2_header_bytes = static_cast<uint64_t>(size) * packets;
      const uint64_t ours =
          one->local_bytes + one->forwarded_bytes + one->layer2_header_bytes;
      if (one->interface_packets < packets || one->interface_bytes < ours) {
        AddNote(absl::StrCat(
                    "the interface counted ", one->interface_packets,
                    one->forwarded_packets != 0
                        ? " packets, but local services and others had "
                        : " packets, but local services had ",
                    packets, " on the link: it counts GSO packets, or not all"),
                uplink);
      }
      one->unnamed_bytes = one->interface_bytes - ours;
      one->unnamed_packets = one->interface_packets - packets;
    }
    if (uplink->unknown.empty()) return;
    for (UplinkCounts* one : {&uplink->tx, &uplink->rx}) {
      one->unnamed_bytes = one->unnamed_packets = 0;
    }
  }

  const BalanceInput& input_;
  const std::vector<NotCounted> not_counted_;
  std::map<uint32_t, const Interface*> by_index_;
  // The name that an interface had in a stay which has not ended, if it is another one.
  std::map<uint32_t, std::string> former_names_;
  // Pairs of an interface and the number of an uplink.
  std::set<std::pair<uint32_t, uint32_t>> known_;
  std::set<std::pair<uint32_t, uint32_t>> open_in_;
  std::map<uint32_t, int> open_;  // stays that have not ended
};

}  // namespace

std::vector<Uplink> BalanceUplinks(const BalanceInput& input) {
  const Balancer balancer(input);
  std::vector<Uplink> all;
  for (const MeterUplink& one : input.uplinks) {
    Uplink uplink = balancer.Of(one);
    // `other` may be one of forwarded_clients.
    const bool is_configured =
        one.number != NM_UPLINK_OTHER && (one.is_paid || one.leads_to_clients);
    if (!is_configured && uplink.interfaces.empty() && uplink.unknown.empty()) {
      continue;
    }
    all.push_back(std::move(uplink));
  }
  return all;
}

}  // namespace internal
}  // namespace netmeter
