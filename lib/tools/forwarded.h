// SPDX-License-Identifier: BSD-3-Clause
// The meter's counters of forwarded packets, by uplink (bpf/forward.bpf.c), and the
// names of its uplinks.
//
//   absl::StatusOr<Forwarded> forwarded = ReadForwarded("/run/netmeter");
//   forwarded->at(1).tx_bytes;  // bytes that left by uplink 1
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_FORWARDED_H_
#define NETMETER_LIB_TOOLS_FORWARDED_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bpf/internal.h"
#include "lib/reader/shared_maps.h"

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

// NotFound: the meter has never counted forwarded packets. PermissionDenied: only root
// may read.
absl::StatusOr<Forwarded> ReadForwarded(const std::string& pin_dir);

// Sums by uplink. `pairs` is already summed over CPUs; its index is
// NM_FORWARDED_INDEX().
Forwarded SumByUplink(const std::vector<nm_forwarded>& pairs);

// The names of the uplinks that have counted since the load, and `other`, by their
// numbers in the maps.
std::map<uint32_t, std::string> ReadUplinkNames(const SharedMaps& maps);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_FORWARDED_H_
