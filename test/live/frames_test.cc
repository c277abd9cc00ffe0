// SPDX-License-Identifier: BSD-3-Clause
// Frames that no kernel makes by itself: a packet socket at the other end of a link of
// two writes them. Whatever they claim, and however they are hidden, they count once.

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kPort = 4711;

// Of linux/virtio_net.h, which is no C++.
constexpr uint8_t kNeedsChecksum = 1;  // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr uint8_t kTcpOverIpv4 = 1;    // VIRTIO_NET_HDR_GSO_TCPV4
struct VirtioHeader {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t hdr_len;
  uint16_t gso_size;
  uint16_t csum_start;
  uint16_t csum_offset;
};

class FramesTest : public LiveTest {
 protected:
  FramesTest() {
    Join({&host_, "v0", MacAddress(1), {Address("10.78.0.1")}},
         {&peer_, "v1", MacAddress(2), {}});
  }

  static void Append(const void* bytes, size_t size, std::string* to) {
    to->append(static_cast<const char*>(bytes), size);
  }

  static std::string Ethernet(const Mac& to, uint16_t type) {
    ethhdr header = {};
    std::memcpy(header.h_dest, to.data(), to.size());
    std::memcpy(header.h_source, MacAddress(2).data(), 6);
    header.h_proto = __builtin_bswap16(type);
    std::string frame;
    Append(&header, sizeof(header), &frame);
    return frame;
  }

  // RFC 1071: of 16-bit words as they stand in memory.
  static uint16_t Checksum(const void* data, size_t size, uint32_t sum = 0) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i + 1 < size; i += 2)
      sum += bytes[i] | static_cast<uint32_t>(bytes[i + 1]) << 8;
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(sum);
  }

  // As a virtual machine hands frames to its host, by the same header.
  void Send(const VirtioHeader& header, const std::string& frame,
            int count) const {
    RunChild(nullptr, peer_, [&] {
      const int fd = OpenSocket(AF_PACKET, SOCK_RAW);
      SetOption(fd, SOL_PACKET, PACKET_VNET_HDR, 1);
      sockaddr_ll address = {};
      address.sll_family = AF_PACKET;
      address.sll_protocol = __builtin_bswap16(ETH_P_ALL);
      address.sll_ifindex = static_cast<int>(if_nametoindex("v1"));
      Check(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            "bind");
      std::string all;
      Append(&header, sizeof(header), &all);
      all += frame;
      for (int i = 0; i < count; ++i)
        Check(send(fd, all.data(), all.size(), 0), "send a frame");
    });
  }

  static Totals ReceivedBy(const std::string& service) {
    return World::ClientMeter().TotalOf(Kind::kService, service);
  }

  NetNamespace host_, peer_;
};

// The bug: on a link like veth the kernel counts the segments that such a frame claims,
// and 60,000 bytes of segments of one byte counted as 2.5 MB.
TEST_F(FramesTest, AFrameThatClaimsTinySegmentsIsNoMoreBehindALink) {
  constexpr int kPayload = 60000;
  Child listener(World::ClientMeter().cgroup(), host_,
                 [&](Child::Parent& parent) {
                   Register("frames-listener");
                   const int fd = OpenSocket(AF_INET, SOCK_STREAM);
                   Bind(fd, Address("10.78.0.1"), kPort);
                   Check(listen(fd, 1), "listen");
                   parent.Send(0);
                   parent.Receive<int>();
                 });
  listener.Receive<int>();
  const Totals before = ReceivedBy("frames-listener");
  iphdr ip = {};
  ip.version = 4;
  ip.ihl = 5;
  ip.tot_len = htons(sizeof(ip) + sizeof(tcphdr) + kPayload);
  ip.ttl = 64;
  ip.protocol = IPPROTO_TCP;
  ip.saddr = inet_addr("10.78.0.2");
  ip.daddr = inet_addr("10.78.0.1");
  ip.check = static_cast<uint16_t>(~Checksum(&ip, sizeof(ip)));
  tcphdr tcp = {};
  tcp.source = htons(1234);
  tcp.dest = htons(kPort);
  tcp.doff = sizeof(tcp) / 4;
  tcp.ack = 1;
  // The sum of the pseudo header: the device computes the rest.
  tcp.check =
      Checksum(&ip.saddr, 8,
               uint32_t{htons(IPPROTO_TCP)} + htons(sizeof(tcphdr) + kPayload));
  VirtioHeader header = {};
  header.flags = kNeedsChecksum;
  header.gso_type = kTcpOverIpv4;
  header.gso_size = 1;
  header.hdr_len = sizeof(ethhdr) + sizeof(ip) + sizeof(tcp);
  header.csum_start = sizeof(ethhdr) + sizeof(ip);
  header.csum_offset = offsetof(tcphdr, check);
  std::string frame = Ethernet(MacAddress(1), ETH_P_IP);
  Append(&ip, sizeof(ip), &frame);
  Append(&tcp, sizeof(tcp), &frame);
  Send(header, frame + std::string(kPayload, 'x'), 3);
  Totals after;
  for (int i = 0; i < 1000; ++i) {
    after = ReceivedBy("frames-listener");
    if (after.rx_bytes - before.rx_bytes >= 3 * (kPayload + 40)) break;
    usleep(10000);
  }
  EXPECT_GE(after.rx_bytes - before.rx_bytes, 3 * (kPayload + 40));
  EXPECT_LE(after.rx_bytes - before.rx_bytes, 3 * 2 * (kPayload + 40));
  EXPECT_LE(after.rx_packets - before.rx_packets, 3 * (kPayload / 40 + 1));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
