// SPDX-License-Identifier: BSD-3-Clause
// Records every packet that passes one interface, by a packet socket and a
// thread. Stop() ends the test process if the kernel had to drop a record;
// StopAndCount() says how many.
//
//   Sniffer sniffer(router, "a1");
//   ... traffic ...
//   for (const Packet& packet : sniffer.Stop()) ...

#ifndef NETMETER_TEST_LIVE_SNIFFER_H_
#define NETMETER_TEST_LIVE_SNIFFER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "lib/testing/net_namespace.h"

namespace netmeter {
namespace internal {

// As on the link; numbers in host byte order.
struct Packet {
  bool outgoing = false;
  uint16_t ethertype = 0;
  uint32_t bytes = 0;      // without the layer-2 header
  uint32_t ip_header = 0;  // with options and extension headers
  uint32_t payload = 0;    // of the transport
  uint32_t fragment_offset = 0;
  bool fragment = false;
  uint8_t protocol = 0;
  uint8_t icmp_type = 0;
  uint8_t tcp_flags = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint32_t tcp_sequence = 0;
  uint32_t tcp_acknowledged = 0;
  uint8_t vxlan_protocol = 0;  // of the packet within VXLAN

  bool tcp() const { return protocol == 6; }
  bool fin() const { return tcp() && (tcp_flags & 0x01) != 0; }
  bool syn() const { return tcp() && (tcp_flags & 0x02) != 0; }
  bool rst() const { return tcp() && (tcp_flags & 0x04) != 0; }
  bool ack() const { return tcp() && (tcp_flags & 0x10) != 0; }
};

// frame begins with an Ethernet header; size may be less than length.
Packet ParseFrame(const uint8_t* frame, size_t size, size_t length);

class Sniffer {
 public:
  Sniffer(const NetNamespace& where, const std::string& link);
  ~Sniffer();

  // How many packets were recorded so far.
  size_t count() const { return count_; }

  // Ends the recording, once nothing waits to be recorded.
  const std::vector<Packet>& Stop();

  // Reads packets, and leaves drops to the caller: the number of packets that passed
  // while the socket had no room for their records (PACKET_STATISTICS).
  const std::vector<Packet>& StopAndCount(uint32_t* drops);

 private:
  void Loop();
  bool ReadOne();

  UniqueFd socket_;
  std::string link_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> count_{0};
  std::vector<Packet> packets_;
  std::thread thread_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SNIFFER_H_
