// SPDX-License-Identifier: BSD-3-Clause
// The balance of each uplink: the count of its interfaces since counting began, and its
// parts.
//
//   interface = local + forwarded + layer-2 headers + rest
//
// `local` is the traffic of the namespace's sockets, `forwarded` the meter's count of
// forwarded traffic, and `layer-2 headers` are those of both. The rest is the unnamed
// traffic of docs/counting.md. If the meter does not count forwarded traffic, that is
// in the rest with its layer-2 headers, because interfaces do not distinguish the two:
// if the namespace forwards, the rest is shown as forwarded, otherwise as unnamed.
// The rest is unknown if an interface has gone, was renamed while it counted, counts
// packets that were on no link, or has layer-2 headers of unknown size; or if local
// packets are also those of another namespace.
//
// Threads: plain values.

#ifndef NETMETER_LIB_READER_BALANCE_H_
#define NETMETER_LIB_READER_BALANCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/netlink/interfaces.h"
#include "lib/netlink/uplink_names.h"
#include "lib/reader/uplink_maps.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

struct BalanceInput : MeterLinks {
  std::string pin_dir;  // of the meter: for advice
  std::vector<Sample> samples;
  bool forwards =
      false;  // the namespace forwards, or a bridge has an interface
  bool counts_forwarded =
      false;  // the meter counts forwarded traffic in `forwarded`
  Forwarded forwarded;
};

// One direction.
struct DirectionBalance {
  uint64_t interface_bytes = 0;
  uint64_t interface_packets = 0;
  uint64_t local_bytes = 0;
  uint64_t local_packets = 0;
  uint64_t forwarded_bytes = 0;
  uint64_t forwarded_packets = 0;
  uint64_t header_bytes = 0;  // of local and forwarded packets
  uint64_t rest_bytes = 0;    // if the balance is known
  uint64_t rest_packets = 0;
};

struct UplinkBalance {
  std::string name;
  std::vector<std::string> interfaces;
  DirectionBalance tx, rx;
  // Why the rest is unknown; empty if it is known.
  std::string unknown;
};

// The configuration's uplinks that have or had an interface, and `other`.
std::vector<UplinkBalance> BalanceUplinks(const BalanceInput& input);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_BALANCE_H_
