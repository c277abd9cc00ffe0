// SPDX-License-Identifier: BSD-3-Clause
// Frames that no kernel makes by itself: a packet socket at the other end of a link of
// two writes them. Whatever they claim, and however they are hidden, they count once.

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
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
    host_.AddVeth({"v0", MacAddress(1)}, peer_, {"v1", MacAddress(2)});
    host_.SetUp("v0");
    peer_.SetUp("v1");
    host_.AddAddress("v0", Address("10.78.0.1"), 24);
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
    Child sender(nullptr, peer_, [&](Child::Parent&) {
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
    sender.Join();
  }

  static Totals ReceivedBy(const std::string& service) {
    return World::ClientMeter().TotalOf(Kind::kService, service);
  }

  NetNamespace host_, peer_;
};

// The bug: the kernel counts how many segments such a frame claims, where it hands it
// over a link like veth, and 60,000 bytes of segments of one byte weighed 2.5 MB.
TEST_F(FramesTest, AFrameThatClaimsTinySegmentsIsNoMoreBehindALink) {
  if (!MayReadKernelMemory()) {
    Measurement::NotOnThisKernel("how a frame is cut: lockdown");
    return;
  }
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
  // Of the pseudo header: the rest is the device's.
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
  usleep(100000);
  const Totals after = ReceivedBy("frames-listener");
  EXPECT_GE(after.rx_bytes - before.rx_bytes, 3 * (kPayload + 40));
  EXPECT_LE(after.rx_bytes - before.rx_bytes, 3 * 2 * (kPayload + 40));
  EXPECT_LE(after.rx_packets - before.rx_packets, 3 * (kPayload / 40 + 1));
}

// The bug: a multicast counted for each socket that received it, where the UDP header
// was behind more extension headers than the meter follows.
TEST_F(FramesTest, AMulticastBehindManyHeadersCountsOnce) {
  constexpr int kHeaders = 9, kPayload = 400, kCount = 10;
  const Address group("ff02::4711");
  const auto open = [&](Child::Parent& parent, const std::string& service) {
    Register(service);
    const int fd = OpenSocket(AF_INET6, SOCK_DGRAM);
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    Bind(fd, Address("::"), kPort);
    group_req request = {};
    request.gr_interface = if_nametoindex("v0");
    request.gr_group = group.WithPort(0);
    Check(setsockopt(fd, IPPROTO_IPV6, MCAST_JOIN_GROUP, &request,
                     sizeof(request)),
          "MCAST_JOIN_GROUP");
    parent.Send(0);
    parent.Receive<int>();
    int received = 0;
    char buffer[1024];
    while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) ++received;
    parent.Send(received);
  };
  const Cgroup* const cgroup = World::ClientMeter().cgroup();
  Child one(cgroup, host_,
            [&](Child::Parent& parent) { open(parent, "frames-one"); });
  Child two(cgroup, host_,
            [&](Child::Parent& parent) { open(parent, "frames-two"); });
  one.Receive<int>();
  two.Receive<int>();
  const Totals before = Sum(ReceivedBy("frames-one"), ReceivedBy("frames-two"));
  ip6_hdr ip = {};
  ip.ip6_vfc = 0x60;
  const size_t length = kHeaders * 8 + sizeof(udphdr) + kPayload;
  ip.ip6_plen = htons(static_cast<uint16_t>(length));
  ip.ip6_nxt = IPPROTO_DSTOPTS;
  ip.ip6_hlim = 1;
  std::memcpy(&ip.ip6_src, Address("fe80::2").data(), 16);
  std::memcpy(&ip.ip6_dst, group.data(), 16);
  udphdr udp = {};
  udp.source = udp.dest = htons(kPort);
  udp.len = htons(sizeof(udp) + kPayload);
  const std::string payload(kPayload, 'x');
  udp.check = Checksum(&ip.ip6_src, 32, uint32_t{htons(IPPROTO_UDP)} + udp.len);
  udp.check = Checksum(payload.data(), payload.size(), udp.check);
  udp.check = static_cast<uint16_t>(~Checksum(&udp, sizeof(udp)));
  std::string frame = Ethernet({0x33, 0x33, 0, 0, 0x47, 0x11}, ETH_P_IPV6);
  Append(&ip, sizeof(ip), &frame);
  for (int i = 0; i < kHeaders; ++i) {
    const bool last = i + 1 == kHeaders;
    // PadN of 6 bytes, RFC 8200, section 4.2
    const uint8_t header[8] = {
        static_cast<uint8_t>(last ? int{IPPROTO_UDP} : int{IPPROTO_DSTOPTS}), 0,
        1, 4};
    Append(header, sizeof(header), &frame);
  }
  Append(&udp, sizeof(udp), &frame);
  Send(VirtioHeader(), frame + payload, kCount);
  usleep(100000);
  for (Child* child : {&one, &two}) {
    child->Send(0);
    EXPECT_EQ(child->Receive<int>(), kCount);
  }
  const Totals after = Sum(ReceivedBy("frames-one"), ReceivedBy("frames-two"));
  EXPECT_EQ(after.rx_packets - before.rx_packets, kCount);
  EXPECT_EQ(after.rx_bytes - before.rx_bytes,
            static_cast<int64_t>(kCount * (sizeof(ip) + length)));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
