// SPDX-License-Identifier: BSD-3-Clause
// The meter's maps of uplinks: their interfaces, and forwarded packets
// (bpf/forward.bpf.c). Only root may read them.
//
//   absl::StatusOr<MeterLinks> links = ReadLinks("/run/netmeter");
//   absl::StatusOr<ForwardedTraffic> traffic = ReadForwarded("/run/netmeter");
//   SumByUplink(traffic->pairs)[1].tx_bytes;  // bytes that left by uplink 1
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_UPLINK_MAPS_H_
#define NETMETER_LIB_TOOLS_UPLINK_MAPS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bpf/internal.h"
#include "lib/history/bill.h"
#include "lib/history/links.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

// The counters of an uplink: rx arrived on it to be forwarded, tx left on it. Wire
// bytes, without layer-2 headers.
struct ForwardedCounts {
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
};

using Forwarded =
    std::map<uint32_t, ForwardedCounts>;  // by the uplink's number

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

struct ForwardedTraffic {
  ForwardedPairs pairs;
  std::vector<ForwardedClient> clients;  // none without forwarded_clients
};

// NotFound: the meter has never counted forwarded packets.
absl::StatusOr<ForwardedTraffic> ReadForwarded(const std::string& pin_dir);

Forwarded SumByUplink(const ForwardedPairs& pairs);

// Which of the meter's uplinks are on a bill. Anybody who may read the meter may read
// them. Errors as SharedMaps::Open().
absl::StatusOr<UplinkSides> ReadUplinkSides(const std::string& pin_dir);

// CheckUplink() for the values of an option: the meter's uplinks are known. OK if the
// meter cannot be read, because its other readers say why.
absl::Status CheckUplinks(const std::string& pin_dir,
                          const std::vector<std::string>& uplinks);

struct MeterLinks : LinkReading {
  bool late = false;  // forwarded packets count for less time than interfaces
};

// Reads the maps, then the interfaces. NotFound: the meter never had uplinks.
// FailedPrecondition: its uplinks are those of another network namespace.
absl::StatusOr<MeterLinks> ReadLinks(const std::string& pin_dir);

// `links` has the names of uplinks and interfaces. The row of an interface without a
// client has what its clients do not have.
ForwardedSamples NameForwarded(const ForwardedTraffic& traffic,
                               const LinkReading& links);

// The two reads above. Errors as there.
absl::StatusOr<ForwardedSamples> ReadForwardedSamples(
    const std::string& pin_dir);

// Adds rows of kind kForwardedRow. After an error there are none: the sums over uplinks
// lack forwarded traffic, and the message says why, and what to do.
absl::Status AddForwardedRows(const std::string& pin_dir,
                              std::vector<Sample>* rows);

// The uplinks of the configuration, without those of forwarded_clients: what is forwarded
// for a client passes one of those, too. Needs no root. Empty without uplinks.
std::set<std::string> ReadPaidUplinks(const std::string& pin_dir);

// Says what to do.
absl::Status HasNoUplinks(const std::string& pin_dir);

// "wwan*" for a key of nm_uplink_names.
std::string PatternOf(const nm_uplink_key& key);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_UPLINK_MAPS_H_
