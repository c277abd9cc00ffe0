// SPDX-License-Identifier: BSD-3-Clause
// The results of Meter::ReadUplinks() (meter.h): what the interfaces of each uplink
// counted, and its parts. `netmeter uplinks` prints the sums.
//
//   const auto uplinks = meter->ReadUplinks();
//   if (uplinks.ok())
//     for (const netmeter::Uplink& uplink : *uplinks)
//       std::cout << uplink.name << " " << uplink.tx.interface_bytes << "\n";
//
// Bytes of packets are wire bytes, as in Sample: from the IP header on, without layer-2
// headers. Bytes of an interface have these headers, as `ip -s link` shows them. All
// counters are totals since counting began. They continue after an upgrade, and begin at
// 0 after `netmeter-loader unload`.
//
// Frozen for 1.x, as sample.h.
//
// Threads: as any plain struct.

#ifndef NETMETER_UPLINKS_H_
#define NETMETER_UPLINKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

// One direction of an uplink. If Uplink::unknown is empty, then
//   interface_bytes   = local_bytes + forwarded_bytes + layer2_header_bytes
//                       + unnamed_bytes
//   interface_packets = local_packets + forwarded_packets + unnamed_packets
struct UplinkCounts {
  // As the uplink's interfaces counted while they were in this uplink.
  uint64_t interface_bytes = 0;
  uint64_t interface_packets = 0;
  // What this host's own sockets had: the sum over the samples of ReadHost() with this
  // uplink.
  uint64_t local_bytes = 0;
  uint64_t local_packets = 0;
  // What this host forwarded. tx: it left by this uplink; rx: it came in by this one. 0
  // if Uplink::forwarded_unknown is not empty.
  uint64_t forwarded_bytes = 0;
  uint64_t forwarded_packets = 0;
  // The layer-2 headers of local and forwarded packets. 0 if their size is not known,
  // which Uplink::unknown says.
  uint64_t layer2_header_bytes = 0;
  // The rest, with its layer-2 headers: traffic without a socket, such as ARP, tunnels
  // and the kernel's pings. 0 if Uplink::unknown is not empty.
  uint64_t unnamed_bytes = 0;
  uint64_t unnamed_packets = 0;
};

// What one interface counted for the uplink. The sum over the interfaces is
// interface_bytes and interface_packets.
struct UplinkInterface {
  // Or a pattern of the configuration that matches no interface.
  std::string name;
  uint32_t index = 0;  // ifindex
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  // The layer-2 header that the interface counts with each packet. -1: unknown.
  int tx_header_bytes = -1;
  int rx_header_bytes = -1;
  // It is in this uplink no more. What it counted before still counts.
  bool has_left = false;
  // Why a configured interface counts nothing here, such as "no such interface" or "a
  // port of bridge br0: its packets count as those of br0". Empty: it counts.
  std::string not_counted;
};

// A part of forwarded_bytes and forwarded_packets, by the other interface that the
// packets passed. The sum over all parts is all of them.
struct ForwardedTraffic {
  // The interface by which the packets of tx came in, and those of rx left. "forwarded"
  // if it is not known, as of a multicast.
  std::string interface;
  // The address behind that interface, with `forwarded_clients` in the configuration.
  // Empty: all other traffic of the interface.
  std::string client;
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
};

struct Uplink {
  // As in Sample::uplink: the configuration's name, or "other".
  std::string name;
  // The configuration has the uplink, and it does not lead to clients. A sum over these
  // uplinks has each forwarded packet once.
  bool is_paid = false;
  // It is one of `forwarded_clients` of the configuration, or was.
  bool leads_to_clients = false;
  UplinkCounts tx;
  UplinkCounts rx;
  std::vector<UplinkInterface> interfaces;  // by name
  std::vector<ForwardedTraffic> forwarded;  // by interface and client
  // Why the unnamed traffic is not known, in one line, such as "wwan9 has gone, and what
  // it had counted with it". Then interface_bytes may also lack a part, or have one of
  // another uplink. Empty: it is known.
  std::string unknown;
  // Why forwarded traffic is not measured, such as that the kernel is older than 6.4.
  // Then it is in the unnamed traffic. Empty: it is measured.
  std::string forwarded_unknown;
  // Forwarded traffic is measured, but was not yet when interfaces began to count. What
  // was forwarded before is in the unnamed traffic.
  bool forwarded_began_later = false;
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_UPLINKS_H_
