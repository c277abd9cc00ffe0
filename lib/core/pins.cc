// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/pins.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {
namespace {

constexpr bool kKept = true, kRenewed = false;
constexpr bool kGrows = true, kStays = false;

constexpr std::array<MapPin, kMapPins> kMaps = {{
    {"counters", Entries::kPerCell, kCounters, kKept, kGrows},
    {"tcp", Entries::kPerSeries, kTcp, kKept, kGrows},
    {"names", Entries::kPerName, kNames, kKept, kGrows},
    {"stats", Entries::kOne, kStats, kKept, kStays},
    {"series", Entries::kPerSeries, kRootOnly, kKept, kGrows},
    {"name_ids", Entries::kPerName, kRootOnly, kKept, kGrows},
    {"free_slots", Entries::kPerSeries, kRootOnly, kKept, kGrows},
    {"free_names", Entries::kPerName, kRootOnly, kKept, kGrows},
    {"processes", Entries::kPerProcess, kRootOnly, kKept, kStays},
    {"sockets", Entries::kPerSocket, kRootOnly, kKept, kStays},
    {"owners", Entries::kAsDeclared, kRootOnly, kKept, kStays},
    {"namings", Entries::kAsDeclared, kRootOnly, kKept, kStays},
    {"rules", Entries::kAsDeclared, kRootOnly, kRenewed, kStays},
    {"binaries", Entries::kAsDeclared, kRootOnly, kRenewed, kStays},
    {"uplink_names", Entries::kAsDeclared, kRootOnly, kRenewed, kStays},
    {"info", Entries::kOne, kInfo, kKept, kGrows},
}};

constexpr std::array<LinkPin, kLinkPins> kLinks = {{
    {"link_exit", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_fork", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_exec", NM_FEATURE_PROCESS_TRACKING, LinkStage::kProcess},
    {"link_setsockopt", NM_FEATURE_CONTROL, LinkStage::kSocket},
    {"link_sock_create", 0, LinkStage::kSocket},
    {"link_sock_release", 0, LinkStage::kSocket},
    {"link_sockops", NM_FEATURE_SOCKET_TABLE, LinkStage::kSocket},
    {"link_ingress", 0, LinkStage::kPacket},
    {"link_egress", 0, LinkStage::kPacket},
}};

// The first is as long as the names. nm_interfaces is pinned all the same
// (lib/loader/uplinks.h). Three belong to a growth (lib/loader/growth.h)
// and the last one to a sweep (lib/loader/retire.h): one entry each, unless there is
// one.
constexpr std::array<UnpinnedMap, 11> kUnpinned = {{
    {"nm_wire_names", Entries::kPerName},
    {"nm_users", Entries::kAsDeclared},
    {"nm_copies", Entries::kAsDeclared},
    {"nm_listeners", Entries::kAsDeclared},
    {"nm_units", Entries::kAsDeclared},
    {"nm_registrants", Entries::kAsDeclared},
    {"nm_interfaces", Entries::kAsDeclared},
    {"nm_old_counters", Entries::kAsDeclared},
    {"nm_old_tcp", Entries::kAsDeclared},
    {"nm_merged", Entries::kAsDeclared},
    {"nm_marks", Entries::kAsDeclared},
}};

constexpr uint32_t kValueSizes[kSharedMaps] = {
    sizeof(nm_cell), sizeof(nm_name), sizeof(nm_info), sizeof(nm_stats),
    sizeof(nm_tcp)};

// A few rows: a search costs nothing beside the system calls around it.
const MapPin& Find(SharedMap map) {
  for (const MapPin& pin : kMaps) {
    if (pin.reader == map) return pin;
  }
  return kMaps.back();  // not reached: each of them is in the table
}

}  // namespace

uint64_t CountEntries(Entries entries, const TableSizes& sizes) {
  switch (entries) {
    case Entries::kAsDeclared:
      return 0;
    case Entries::kOne:
      return 1;
    case Entries::kPerCell:
      return uint64_t{sizes.max_series} * sizes.cells_per_series;
    case Entries::kPerSeries:
      return sizes.max_series;
    case Entries::kPerName:
      return sizes.max_names;
    case Entries::kPerProcess:
      return sizes.max_processes;
    case Entries::kPerSocket:
      return sizes.max_sockets;
  }
  return 0;
}

const std::array<MapPin, kMapPins>& MapPins() { return kMaps; }

const std::array<LinkPin, kLinkPins>& LinkPins() { return kLinks; }

const std::array<UnpinnedMap, 11>& UnpinnedMaps() { return kUnpinned; }

const char* PinOf(SharedMap map) { return Find(map).pin; }

uint32_t ValueSizeOf(SharedMap map) { return kValueSizes[map]; }

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
