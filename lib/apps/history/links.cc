// SPDX-License-Identifier: BSD-3-Clause
// The kernel counts for each interface from its creation on. A record adds what an
// interface counted since the last record to the uplink that it is in now. Events between
// two records:
//
// - An interface appears: it counts from 0.
// - The first record of a boot: each existing interface counts from what it had at the
//   load, which the loader wrote into the meter's map `interfaces`.
// - An unload and a load: the interface has counted in between, for the uplink of the
//   last record until the load, and then for its uplink in the new meter.
// - Loads move an interface between uplinks: the map has each of its stays, and what it
//   had counted when the stay began and ended.
// - An interface is renamed, so that it is in another uplink: the former one has what the
//   meter counted there since the last record, and the new one has the rest.
// - An interface goes away, or begins to count again. What it counted since the last
//   record is not known. It is at least what the meter counted there, so the sum of the
//   uplink grows by that.
//
// The index identifies an interface: the kernel gives a new one to each new device
// (dev_index_reserve() in net/core/dev.c), unless it is asked for a number. A device that
// was asked for by the number of a former one counts from 0, so that a counter is lower.
#include "lib/apps/history/links.h"

#include <string.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "lib/netlink/not_counted.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t nm_interface_counts::*kCounts[] = {
    &nm_interface_counts::tx_bytes, &nm_interface_counts::rx_bytes,
    &nm_interface_counts::tx_packets, &nm_interface_counts::rx_packets};
constexpr size_t kLinkCounters = std::size(kCounts);
static_assert(kRecordedCounters[3].field == &Sample::rx_packets);

bool AnyBelow(const nm_interface_counts& a, const nm_interface_counts& b) {
  return std::any_of(std::begin(kCounts), std::end(kCounts),
                     [&](auto count) { return a.*count < b.*count; });
}

// What was counted after both `from` and `base`, and until `end`.
nm_interface_counts Between(const nm_interface_counts& from,
                            const nm_interface_counts& base,
                            const nm_interface_counts& end) {
  nm_interface_counts part = {};
  for (const auto count : kCounts) {
    const uint64_t begin = std::max(from.*count, base.*count);
    if (end.*count > begin) part.*count = end.*count - begin;
  }
  return part;
}

class Counting {
 public:
  explicit Counting(const LinkReading& reading) : reading_(reading) {
    for (const Interface& one : reading.interfaces) {
      if (one.index == kLoopbackIndex) continue;
      present_[one.index] = &one;
      indexes_.insert(one.index);
    }
    for (const InterfaceEntry& entry : reading.entries) {
      entries_[entry.first.ifindex].push_back(&entry);
      indexes_.insert(entry.first.ifindex);
    }
  }

  LinkCounts Run(SeenLinks* seen) {
    for (const auto& last : *seen) indexes_.insert(last.first);
    if (!seen->empty()) {
      for (const auto& here : present_) {
        const std::string& name = here.second->name;
        seen->insert({here.first, {name, UplinkOf(*here.second), {}}});
      }
    }
    for (const uint32_t index : indexes_) {
      const auto here = present_.find(index);
      if (here == present_.end()) {
        CountGone(index, seen);
      } else {
        CountPresent(*here->second, seen);
      }
    }
    return std::move(counts_);
  }

 private:
  void CountPresent(const Interface& here, SeenLinks* seen) {
    const std::string uplink = UplinkOf(here);
    const auto last = seen->find(here.index);
    nm_interface_counts from = {};
    if (last != seen->end() && !AnyBelow(here.counts, last->second.counts)) {
      from = last->second.counts;
      nm_interface_counts rest = Between(from, from, here.counts);
      // A load divides what it counted, a rename does not.
      bool is_divided = last->second.uplink == uplink, is_renamed = false;
      const nm_interface_counts* loaded = nullptr;
      for (const InterfaceEntry* entry : entries_[here.index]) {
        const nm_interface& value = entry->second;
        const bool is_last = NameOf(*entry) == last->second.uplink;
        if (!AnyBelow(value.begin, from) &&
            (loaded == nullptr || AnyBelow(value.begin, *loaded))) {
          loaded = &value.begin;
        }
        if (value.ended_ns == 0) {
          is_renamed |= is_last;
          continue;
        }
        const nm_interface_counts part = Between(from, value.begin, value.end);
        Add(NameOf(*entry), here.name, here.header, part);
        is_divided |= is_last && !AnyBelow(value.end, from);
        for (const auto count : kCounts) rest.*count -= part.*count;
      }
      if (!is_divided && !is_renamed && loaded != nullptr) {
        // The meter is newer than the last record.
        is_divided = true;
        if (!last->second.uplink.empty()) {  // it had not gone
          const nm_interface_counts part = Between(from, from, *loaded);
          Add(last->second.uplink, last->second.name, here.header, part);
          for (const auto count : kCounts) rest.*count -= part.*count;
        }
      }
      Add(uplink, here.name, here.header, rest);
      if (!is_divided) {
        End(last->second.uplink, last->second.name, {uplink, here.name});
      }
    } else if (last != seen->end()) {
      End(last->second.uplink, last->second.name);
      Add(uplink, here.name, here.header, here.counts);
    } else {
      // A program that saw it renamed does not know its base: another entry does.
      for (const InterfaceEntry* entry : entries_[here.index]) {
        if (entry->second.ended_ns != 0) {
          Add(NameOf(*entry), here.name, here.header,
              Between({}, entry->second.begin, entry->second.end));
        } else if (!AnyBelow(here.counts, entry->second.begin) &&
                   !AnyBelow(entry->second.begin, from)) {
          from = entry->second.begin;
        }
      }
      Add(uplink, here.name, here.header, Between(from, from, here.counts));
    }
    (*seen)[here.index] = {here.name, uplink, here.counts};
  }

  void CountGone(uint32_t index, SeenLinks* seen) {
    const auto last = seen->find(index);
    // This record is the first one without it.
    const bool is_news = last == seen->end() || !last->second.uplink.empty();
    if (!is_news) return;
    SeenLink gone;
    if (last != seen->end()) gone = last->second;
    bool named = gone.uplink != kOtherUplink && !gone.uplink.empty();
    if (named) End(gone.uplink, gone.name);
    for (const InterfaceEntry* entry : entries_[index]) {
      const std::string uplink = NameOf(*entry);
      if (uplink == kOtherUplink || uplink.empty()) continue;
      named = true;
      if (last == seen->end()) gone.name = entry->second.name;
      if (entry->second.ended_ns != 0) {
        Add(uplink, gone.name, HeaderOf(entry->second),
            Between(gone.counts, entry->second.begin, entry->second.end));
      } else {
        End(uplink, gone.name);
      }
    }
    if (named) {
      gone.uplink.clear();
      (*seen)[index] = gone;
    } else if (last != seen->end()) {
      seen->erase(last);
    }
  }

  std::string NameOf(const InterfaceEntry& entry) const {
    const auto name = reading_.names.find(entry.first.uplink);
    return name == reading_.names.end() ? kOtherUplink : name->second;
  }

  // kOtherUplink: it is in no uplink of the configuration, or on another interface of
  // its own uplink, such as a VLAN, or a bridge on its port.
  std::string UplinkOf(const Interface& here) const {
    return FindBelow(here, reading_.patterns, reading_.interfaces) == nullptr
               ? FindUplink(reading_.patterns, here.name)
               : kOtherUplink;
  }

  void Add(const std::string& uplink, const std::string& interface,
           const LinkHeader& header, const nm_interface_counts& counts) {
    if (uplink == kOtherUplink) return;
    LinkCount& sum = counts_[{uplink, interface}];
    for (size_t i = 0; i < kLinkCounters; ++i) {
      sum.counted.value[i] += static_cast<int64_t>(counts.*kCounts[i]);
    }
    const auto remove = [](int size, uint64_t packets, int64_t* bytes,
                           int64_t* headers) {
      constexpr int kMostHeader = 14;
      const auto all = static_cast<int64_t>(packets);
      if (size == kUnknownHeader) {
        *headers += kMostHeader * all;
      } else {
        *bytes -= size * all;
      }
    };
    remove(header.tx, counts.tx_packets, &sum.counted.value[0],
           &sum.tx_headers);
    remove(header.rx, counts.rx_packets, &sum.counted.value[1],
           &sum.rx_headers);
  }

  void End(const std::string& uplink, const std::string& interface,
           const std::pair<std::string, std::string>& moved_to = {}) {
    if (uplink.empty() || uplink == kOtherUplink) return;
    LinkCount& ended = counts_[{uplink, interface}];
    ended.ended = true;
    ended.moved_to = moved_to;
  }

  const LinkReading& reading_;
  std::map<uint32_t, const Interface*> present_;
  std::map<uint32_t, std::vector<const InterfaceEntry*>> entries_;
  std::set<uint32_t> indexes_;
  LinkCounts counts_;
};

SeriesName SeriesOf(const std::string& kind, const std::string& name,
                    const std::string& path, const std::string& uplink) {
  return {kind, name, "", TransportName(Transport::kOther), path, uplink};
}

SeriesName NameOfUnnamed(const std::string& uplink) {
  return SeriesOf(kUnnamedKind, kUnnamedName, PathName(Path::kDirect), uplink);
}

}  // namespace

LinkCounts CountLinks(const LinkReading& reading, SeenLinks* seen) {
  return Counting(reading).Run(seen);
}

void AddLinks(LinkCounts counts, const Totals& before, Totals* now) {
  // By uplink: what its interfaces counted less what the meter counted.
  std::map<std::string, Counters> rest;
  for (const auto& series : before) {
    if (series.first.kind != kInterfaceKind) continue;
    rest[series.first.uplink] += series.second;
    (*now)[series.first] = series.second;
  }
  for (const auto& link : counts) rest[link.first.first] += link.second.counted;
  for (const auto& series : *now) {
    const auto uplink = rest.find(series.first.uplink);
    if (series.first.path != PathName(Path::kDirect)) continue;
    if (uplink != rest.end()) uplink->second -= series.second;
  }
  const auto last_of = [&](const std::string& uplink) {
    const auto last = before.find(NameOfUnnamed(uplink));
    return last == before.end() ? Counters() : last->second;
  };
  for (auto& link : counts) {
    const auto to = counts.find(link.second.moved_to);
    if (to == counts.end()) continue;
    Counters& unnamed = rest[link.first.first];
    const Counters last = last_of(link.first.first);
    for (size_t i = 0; i < kLinkCounters; ++i) {
      const int64_t part =
          std::max<int64_t>(0, std::min(last.value[i] - unnamed.value[i],
                                        to->second.counted.value[i]));
      link.second.counted.value[i] += part;
      unnamed.value[i] += part;
      to->second.counted.value[i] -= part;
      rest[to->first.first].value[i] -= part;
    }
  }
  for (auto& uplink : rest) {
    Counters& unnamed = uplink.second;
    std::fill(unnamed.value.begin() + kLinkCounters, unnamed.value.end(), 0);
    const Counters last = last_of(uplink.first);
    for (const auto& link : counts) {
      if (link.first.first != uplink.first) continue;
      Counters counted = link.second.counted;
      const int64_t headers[] = {link.second.tx_headers,
                                 link.second.rx_headers};
      for (size_t i = 0; i < kLinkCounters; ++i) {
        const int64_t grown = unnamed.value[i] - last.value[i];
        int64_t correction = 0;
        if (i < std::size(headers) && grown > 0) {
          correction = -std::min(headers[i], grown);
        }
        if (link.second.ended && grown < 0) correction = -grown;
        counted.value[i] += correction;
        unnamed.value[i] += correction;
      }
      (*now)[SeriesOf(kInterfaceKind, link.first.second, kInterfacePath,
                      uplink.first)] += counted;
    }
    (*now)[NameOfUnnamed(uplink.first)] = unnamed;
  }
}

}  // namespace internal
}  // namespace netmeter
