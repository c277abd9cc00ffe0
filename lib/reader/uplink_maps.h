// SPDX-License-Identifier: BSD-3-Clause
// The meter's maps of uplinks: their interfaces, and forwarded packets
// (bpf/forward.bpf.c). Each call opens the pins, because a load makes some of the maps
// anew.
//
//   absl::StatusOr<MeterLinks> links = ReadLinks(**maps);
//   absl::StatusOr<ForwardedReading> traffic = ReadForwarded(**maps);
//   ForwardedSamples samples = NameForwarded(*traffic, *links);
//
// Threads: any.

#ifndef NETMETER_LIB_READER_UPLINK_MAPS_H_
#define NETMETER_LIB_READER_UPLINK_MAPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/netlink/interfaces.h"
#include "lib/netlink/uplink_names.h"
#include "lib/reader/difference.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// Packets from one interface to another; 0 for an interface that is not known.
struct ForwardedPair {
  nm_forwarded_key key = {};
  nm_forwarded sum = {};  // over CPUs
};
using ForwardedPairs = std::vector<ForwardedPair>;

// Packets of an address; a part of those of its interface and uplink.
struct ForwardedClient {
  nm_client_key key = {};
  nm_client sum = {};  // over CPUs
};

struct ForwardedReading {
  ForwardedPairs pairs;
  std::vector<ForwardedClient> clients;  // none without forwarded_clients
};

// NotFound: the meter has never counted forwarded packets.
absl::StatusOr<ForwardedReading> ReadForwarded(const SharedMaps& maps);

// An uplink of the meter, also one that the configuration had before; or `other`.
struct MeterUplink {
  uint32_t number = 0;
  std::string name;
  bool is_paid = false;  // configured, and not in forwarded_clients
  bool leads_to_clients = false;
};

// Ascending by number, so `other` is the last. Anybody who may read the meter may read
// them.
std::vector<MeterUplink> ListUplinks(const SharedMaps& maps);

// The interfaces of the meter's network namespace, and the uplinks that they count for.
struct LinkReading {
  uint64_t network = 0;                   // inode of the namespace
  std::map<uint32_t, std::string> names;  // of uplinks, by number
  Uplinks patterns;
  std::vector<InterfaceEntry> entries;  // of the meter
  std::vector<Interface> interfaces;    // as they count now
};

struct MeterLinks : LinkReading {
  std::vector<MeterUplink> uplinks;  // as ListUplinks()
  uint64_t forwarded_since_ns = 0;   // as in nm_info
};

// Reads the maps, then the interfaces. NotFound: the meter never had uplinks.
// FailedPrecondition: its uplinks are those of another network namespace.
absl::StatusOr<MeterLinks> ReadLinks(const SharedMaps& maps);

// The names of interfaces by index, including those that have gone. An interface that was
// renamed keeps its first name here, so that its counters go on.
std::map<uint32_t, std::string> NamesOfInterfaces(const LinkReading& links);

// `links` has the names of uplinks and interfaces. The row of an interface without a
// client has what its clients do not have.
ForwardedSamples NameForwarded(const ForwardedReading& traffic,
                               const LinkReading& links);

// Says what to do.
absl::Status HasNoUplinks(const std::string& pin_dir);

// "wwan*" for a key of nm_uplink_names.
std::string PatternOf(const nm_uplink_key& key);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_UPLINK_MAPS_H_
