// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/pins.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {
namespace {

constexpr bool kKept = true, kRenewed = false;

constexpr std::array<MapPin, kMapPins> kMaps = {{
    {"counters", Entries::kPerCell, kCounters, kKept},
    {"tcp", Entries::kPerSeries, kTcp, kKept},
    {"names", Entries::kPerName, kNames, kKept},
    {"stats", Entries::kOne, kStats, kKept},
    {"series", Entries::kMostSeries, kRootOnly, kKept},
    {"name_ids", Entries::kMostNames, kRootOnly, kKept},
    {"free_slots", Entries::kMostSeries, kRootOnly, kKept},
    {"free_names", Entries::kMostNames, kRootOnly, kKept},
    {"wire_names", Entries::kMostNames, kRootOnly, kKept},
    {"users", Entries::kAsDeclared, kRootOnly, kKept},
    {"processes", Entries::kPerProcess, kRootOnly, kKept},
    {"sockets", Entries::kPerSocket, kRootOnly, kKept},
    {"owners", Entries::kAsDeclared, kRootOnly, kKept},
    {"namings", Entries::kAsDeclared, kRootOnly, kKept},
    {"rules", Entries::kAsDeclared, kRootOnly, kRenewed},
    {"binaries", Entries::kAsDeclared, kRootOnly, kRenewed},
    {"uplink_names", Entries::kAsDeclared, kUplinks, kRenewed},
    {"interfaces", Entries::kAsDeclared, kUplinks, kRenewed},
    {"listeners", Entries::kAsDeclared, kRootOnly, kRenewed},
    {"info", Entries::kOne, kInfo, kKept},
}};

constexpr std::array<ExtentPin, kExtentPins> kExtents = {{
    {"counters_1", kCounters, 1},
    {"counters_2", kCounters, 2},
    {"counters_3", kCounters, 3},
    {"tcp_1", kTcp, 1},
    {"tcp_2", kTcp, 2},
    {"tcp_3", kTcp, 3},
    {"names_1", kNames, 1},
    {"names_2", kNames, 2},
    {"names_3", kNames, 3},
}};

constexpr std::array<LinkPin, kLinkPins> kLinks = {{
    {"link_exit", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_fork", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_exec", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_setsockopt", NM_FEATURE_CONTROL, LinkStage::kSocket},
    {"link_sock_release", 0, LinkStage::kSocket},
    {"link_sockops", NM_FEATURE_SOCKET_TABLE, LinkStage::kSocket},
    // The programs above know all owners that it makes.
    {"link_sock_create", 0, LinkStage::kSocket},
    {"link_ingress", 0, LinkStage::kPacket},
    {"link_egress", 0, LinkStage::kPacket},
}};

// The last map belongs to a sweep (lib/evict/evict.h).
constexpr std::array<UnpinnedMap, 5> kUnpinned = {{
    {"nm_duplicates", Entries::kAsDeclared},
    {"nm_units", Entries::kAsDeclared},
    {"nm_registrants", Entries::kAsDeclared},
    {"nm_marks", Entries::kAsDeclared},
    {"nm_decisions", Entries::kAsDeclared},
}};

constexpr uint32_t kValueSizes[kSharedMaps] = {
    sizeof(nm_cell), sizeof(nm_name), sizeof(nm_info), sizeof(nm_stats),
    sizeof(nm_tcp)};

// Linear: a search of a few rows costs nothing beside the system calls around it.
const MapPin& Find(SharedMap map) {
  for (const MapPin& pin : kMaps) {
    if (pin.reader == map) return pin;
  }
  return kMaps.back();  // not reached: the table has every map
}

}  // namespace

uint32_t CeilingOf(uint32_t first) {
  const uint64_t most = uint64_t{first} << (NM_MAX_EXTENTS - 1);
  return most > NM_MAX_SERIES_LIMIT ? NM_MAX_SERIES_LIMIT
                                    : static_cast<uint32_t>(most);
}

uint32_t ExtentsFor(uint32_t first, uint32_t entries) {
  uint32_t extents = 1;
  while (extents < NM_MAX_EXTENTS &&
         nm_extent_start(first, extents) < entries) {
    extents++;
  }
  return extents;
}

uint64_t CountEntries(Entries entries, const TableSizes& sizes) {
  const uint32_t series =
      sizes.first_series != 0 ? sizes.first_series : sizes.max_series;
  const uint32_t names =
      sizes.first_names != 0 ? sizes.first_names : sizes.max_names;
  switch (entries) {
    case Entries::kAsDeclared:
      return 0;
    case Entries::kOne:
      return 1;
    case Entries::kPerCell:
      return uint64_t{series} * sizes.cells_per_series;
    case Entries::kPerSeries:
      return series;
    case Entries::kPerName:
      return names;
    case Entries::kMostSeries:
      return CeilingOf(series);
    case Entries::kMostNames:
      return CeilingOf(names);
    case Entries::kPerProcess:
      return sizes.max_processes;
    case Entries::kPerSocket:
      return sizes.max_sockets;
  }
  return 0;
}

uint64_t CountEntries(const ExtentPin& pin, const TableSizes& sizes) {
  const uint32_t first =
      pin.map == kNames ? sizes.first_names : sizes.first_series;
  return uint64_t{nm_extent_size(first, pin.extent)} *
         (pin.map == kCounters ? sizes.cells_per_series : 1);
}

const std::array<MapPin, kMapPins>& MapPins() { return kMaps; }

const std::array<ExtentPin, kExtentPins>& ExtentPins() { return kExtents; }

const std::array<LinkPin, kLinkPins>& LinkPins() { return kLinks; }

const std::array<UnpinnedMap, 5>& UnpinnedMaps() { return kUnpinned; }

const char* PinOf(SharedMap map) { return Find(map).pin; }

uint32_t ValueSizeOf(SharedMap map) { return kValueSizes[map]; }

uint32_t LeastValueSizeOf(SharedMap map) {
  if (map == kInfo) return NM_INFO_LEAST_BYTES;
  return map == kStats ? NM_STATS_LEAST_BYTES : ValueSizeOf(map);
}

Entries EntriesOf(SharedMap map) { return Find(map).entries; }

std::vector<SharedMap> OpeningOrder() {
  std::vector<SharedMap> order;
  for (auto pin = kMaps.rbegin(); pin != kMaps.rend(); ++pin) {
    if (pin->shared()) order.push_back(pin->reader);
  }
  return order;
}

std::string ObjectNameOf(absl::string_view pin) {
  return absl::StrCat("nm_", absl::StripPrefix(pin, "link_"));
}

}  // namespace internal
}  // namespace netmeter
