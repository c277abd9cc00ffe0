// SPDX-License-Identifier: BSD-3-Clause
// The table of all maps and links of a meter, with the properties of each. Loader,
// readers and tests all use it; lib/loader/object_test.cc compares it with the BPF
// object. lib/loader/pin_dir.h has the pins of work in progress.
//
// A pin's file name gives the name of its object. The map pinned as `counters` is
// nm_counters. The link pinned as `link_egress` holds the program nm_egress, or a variant
// of it for another kernel, such as nm_egress_claim.
//
//   for (const MapPin& map : MapPins()) Open(pin_dir + "/" + map.pin);
//
// Includes neither libbpf nor the object, so that readers can use it.
//
// Threads: any; nothing here changes.

#ifndef NETMETER_LIB_BASE_PINS_H_
#define NETMETER_LIB_BASE_PINS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// The maps that readers need, in the order in which `netmeter-fds` sends them.
enum SharedMap { kCounters, kNames, kInfo, kStats, kTcp, kSharedMaps };
constexpr SharedMap kRootOnly = kSharedMaps;  // not for readers
// For readers, which look elements up instead of mapping it: a map of uplinks.
constexpr SharedMap kUplinks = static_cast<SharedMap>(kSharedMaps + 1);

// How many entries a map has.
enum class Entries {
  kAsDeclared,  // in bpf/maps.bpf.h
  kOne,
  kPerCell,  // of the first extent: one per CPU of each series, and its shared one
  kPerSeries,   // of the first extent
  kPerName,     // of the first extent
  kMostSeries,  // the maximum of all extents: it does not grow
  kMostNames,
  kPerProcess,
  kPerSocket,
};

// The sizes of a meter: nm_info has the same numbers.
struct TableSizes {
  uint32_t cells_per_series = 0;  // the possible CPUs, and the shared one
  uint32_t max_series = 0;
  uint32_t max_names = 0;
  uint32_t max_processes = 0;
  uint32_t max_sockets = 0;   // a power of two
  uint32_t first_series = 0;  // of the first extent; 0: max_series
  uint32_t first_names = 0;
};

// The maximum of all extents together.
uint32_t CeilingOf(uint32_t first);
// The number of extents for this number of entries.
uint32_t ExtentsFor(uint32_t first, uint32_t entries);

// 0 for kAsDeclared. May exceed the limit of a map.
uint64_t CountEntries(Entries entries, const TableSizes& sizes);

struct MapPin {
  const char* pin;
  Entries entries;
  // The readers' map, or kRootOnly. A shared map can be mapped by mmap(2), is frozen
  // before it is pinned, and its pin is readable by the group.
  SharedMap reader;
  // Whether an upgrade keeps the map. Otherwise each load makes a new one, because its
  // contents come from the configuration.
  bool kept;

  bool shared() const { return reader < kSharedMaps; }
  bool is_uplinks() const { return reader == kUplinks; }
};

// A map that continues a table: extents 1 to NM_MAX_EXTENTS - 1 of counters, tcp and
// names. They exist once a load has asked for more than the first extent has.
struct ExtentPin {
  const char* pin;  // "counters_1"
  SharedMap map;    // kCounters, kTcp or kNames
  uint32_t extent;
};
constexpr size_t kExtentPins = 3 * (NM_MAX_EXTENTS - 1);
const std::array<ExtentPin, kExtentPins>& ExtentPins();
uint64_t CountEntries(const ExtentPin& pin, const TableSizes& sizes);

// What the program of a link learns or counts.
enum class LinkStage {
  kProcess,  // a tracing program: on a tracepoint, not on the cgroup
  kSocket,
  kPacket,
};

struct LinkPin {
  const char* pin;
  // The NM_FEATURE_ that is missing without this link. 0: a meter needs the link.
  uint64_t feature;
  LinkStage stage;

  bool tracing() const { return stage == LinkStage::kProcess; }
};

// Maps in the order in which a load pins them. `info` comes last, so a meter with an
// `info` is complete. Readers open it first for the same reason.
constexpr size_t kMapPins = 20;
const std::array<MapPin, kMapPins>& MapPins();

// Links in the order in which a load attaches them. The name of a process must be known
// before a socket's owner is looked up, and the owner before packets are counted.
constexpr size_t kLinkPins = 9;
const std::array<LinkPin, kLinkPins>& LinkPins();

// Links of netfilter, and maps, that count forwarded packets if there are uplinks
// (lib/loader/hooks.h). They are not in these tables.
constexpr std::array<const char*, 2> kForwardLinks = {"link_forward4",
                                                      "link_forward6"};
constexpr char kForwardedPin[] = "forwarded";
constexpr char kForwardedByPin[] = "forwarded_by";
constexpr char kClientsPin[] = "clients";
constexpr char kForwardersPin[] = "forwarders";

// The file name of a shared map's pin, and the size of its values. The size is fixed
// within a major version of the ABI, except those of `info` and `stats`.
const char* PinOf(SharedMap map);
uint32_t ValueSizeOf(SharedMap map);
// The least size that a map of another minor version may have. Other maps than `info` and
// `stats` have ValueSizeOf().
uint32_t LeastValueSizeOf(SharedMap map);
Entries EntriesOf(SharedMap map);

// The shared maps in the order in which a reader opens them. `info` is first: if `info`
// is new, all others are at least as new.
std::vector<SharedMap> OpeningOrder();

// "nm_counters" for the pin "counters", "nm_egress" for "link_egress".
std::string ObjectNameOf(absl::string_view pin);

// Maps of the object that are never pinned as a part of a meter.
struct UnpinnedMap {
  const char* name;  // in the object
  Entries entries;
};
const std::array<UnpinnedMap, 5>& UnpinnedMaps();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PINS_H_
