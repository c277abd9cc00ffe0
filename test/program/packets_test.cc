// SPDX-License-Identifier: BSD-3-Clause
// What one packet counts: a table of packets, each run through nm_egress and nm_ingress.
// The sockets of a test run have no owner: all goes to `unattributed`.
#include <linux/if_ether.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ostream>
#include <random>
#include <vector>

#include "test/program/fixture.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint16_t kProxyPort = 8770;
constexpr uint16_t kOtherProxyPort = 50061;

// Of one packet in one run; ingress differs only as said in payload.
struct Expected {
  nm_transport transport = NM_TRANSPORT_OTHER;
  uint64_t bytes = 0;
  // TCP: on egress only; what ingress sees is counted when it is acknowledged.
  uint64_t payload = 0;
  uint64_t packets = 1;
  uint64_t retransmit = 0;
  uint64_t header_errors = 0;
  nm_path path = NM_PATH_DIRECT;
  bool counted = true;

  Expected& Packets(uint64_t value) {
    packets = value;
    return *this;
  }
  Expected& Retransmit(uint64_t value) {
    retransmit = value;
    return *this;
  }
  Expected& HeaderError() {
    header_errors = 1;
    return *this;
  }
  Expected& Proxy() {
    path = NM_PATH_PROXY;
    return *this;
  }
};

Expected Expect(nm_transport transport, uint64_t bytes, uint64_t payload) {
  Expected expected;
  expected.transport = transport;
  expected.bytes = bytes;
  expected.payload = payload;
  return expected;
}
Expected Tcp(uint64_t bytes, uint64_t payload) {
  return Expect(NM_TRANSPORT_TCP, bytes, payload);
}
Expected Udp(uint64_t bytes, uint64_t payload) {
  return Expect(NM_TRANSPORT_UDP, bytes, payload);
}
Expected Sctp(uint64_t bytes, uint64_t payload) {
  return Expect(NM_TRANSPORT_SCTP, bytes, payload);
}
Expected Icmp(uint64_t bytes, uint64_t payload) {
  return Expect(NM_TRANSPORT_ICMP, bytes, payload);
}
Expected Other(uint64_t bytes, uint64_t payload) {
  return Expect(NM_TRANSPORT_OTHER, bytes, payload);
}
Expected NotCounted() {
  Expected expected;
  expected.counted = false;
  return expected;
}

RunOptions Gso(uint32_t segments, uint32_t size) {
  RunOptions options;
  options.gso_segs = segments;
  options.gso_size = size;
  return options;
}
RunOptions Twice(RunOptions options = RunOptions()) {
  options.repeat = 2;
  return options;
}
RunOptions Loopback() {
  RunOptions options;
  options.ifindex = Programs::kLoopback;
  return options;
}

Packet Routings(Packet packet, int headers) {
  for (int i = 0; i < headers; ++i) packet.Routing();
  return packet;
}

struct Case {
  const char* description;
  Packet packet;
  Expected expected;
  RunOptions run = RunOptions();
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.description;
}

const std::vector<Case>& PlainPackets() {
  using P = Packet;
  static const auto* const cases = new std::vector<Case>{
      // --- IPv4 ---
      {"IPv4 header alone", P::Ipv4(), Other(20, 0)},
      {"IPv4 UDP", P::Ipv4().Udp(1000, 53).Payload(100), Udp(128, 100)},
      {"IPv4 UDP without payload", P::Ipv4().Udp(1000, 53), Udp(28, 0)},
      {"IPv4 UDP of one byte", P::Ipv4().Udp(1000, 53).Payload(1), Udp(29, 1)},
      {"IPv4 ihl 6", P::Ipv4(4).Udp(1, 2).Payload(9), Udp(41, 9)},
      {"IPv4 ihl 15", P::Ipv4(40).Udp(1, 2).Payload(9), Udp(77, 9)},
      {"IPv4 ihl 15 with TCP and its longest options",
       P::Ipv4(40).Tcp(1, 2, 40).Seq(7).Payload(9), Tcp(129, 9)},
      {"IPv4 first fragment",
       P::Ipv4().Ipv4Fragment(0, true).Udp(1, 2).Payload(92), Udp(120, 92)},
      {"IPv4 later fragment, whatever it looks like",
       P::Ipv4().Ipv4Fragment(100, true).Udp(1, 2).Payload(92),
       Other(120, 100)},
      {"IPv4 last fragment",
       P::Ipv4().Ipv4Fragment(8191, false).Protocol(IPPROTO_TCP).Payload(8),
       Other(28, 8)},
      {"IPv4 do not fragment is no fragment",
       P::Ipv4().Ipv4Fragment(0x4000, false).Udp(1, 2).Payload(5), Udp(33, 5)},

      // --- TCP ---
      {"TCP data", P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5).Payload(100),
       Tcp(140, 100)},
      {"TCP pure acknowledgement", P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5),
       Tcp(40, 0)},
      {"TCP SYN", P::Ipv4().Tcp(1, 2, 20).Seq(1000).Flags(P::kSyn), Tcp(60, 0)},
      {"TCP SYN again is no payload sent again",
       P::Ipv4().Tcp(1, 2, 20).Seq(1000).Flags(P::kSyn), Tcp(60, 0), Twice()},
      {"TCP SYN with data (Fast Open)",
       P::Ipv4().Tcp(1, 2, 40).Seq(1000).Flags(P::kSyn).Payload(300),
       Tcp(380, 300)},
      {"TCP SYN-ACK", P::Ipv4().Tcp(1, 2, 20).Seq(1000).Ack(5).Flags(P::kSyn),
       Tcp(60, 0)},
      {"TCP FIN", P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5).Flags(P::kFin),
       Tcp(40, 0)},
      {"TCP FIN again", P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5).Flags(P::kFin),
       Tcp(40, 0), Twice()},
      {"TCP FIN with data",
       P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5).Flags(P::kFin).Payload(10),
       Tcp(50, 10)},
      {"TCP RST", P::Ipv4().Tcp(1, 2).Seq(1000).Flags(P::kRst), Tcp(40, 0)},
      {"TCP data again", P::Ipv4().Tcp(1, 2).Seq(1000).Ack(5).Payload(100),
       Tcp(140, 100).Retransmit(100), Twice()},
      {"TCP options of 40 bytes", P::Ipv4().Tcp(1, 2, 40).Payload(1),
       Tcp(81, 1)},
      {"TCP header that claims more than there is",
       P::Ipv4().Tcp(1, 2).HeaderByte(12, 0xf0).Payload(10), Tcp(50, 0)},

      // --- Other transports ---
      {"SCTP", P::Ipv4().Sctp(1, 36412).Payload(100), Sctp(132, 100)},
      {"IPv6 SCTP", P::Ipv6().Sctp(1, 36412).Payload(100), Sctp(152, 100)},
      {"ICMP echo", P::Ipv4().Icmp().Payload(56), Icmp(84, 56)},
      {"ICMPv6 echo", P::Ipv6().Icmpv6().Payload(56), Icmp(104, 56)},
      {"ICMPv6 after a hop-by-hop header (MLD)",
       P::Ipv6().HopByHop().Icmpv6().Payload(20), Icmp(76, 20)},
      {"IGMP with the router alert option",
       P::Ipv4(4).Protocol(IPPROTO_IGMP).Payload(8), Other(32, 8)},
      {"GRE", P::Ipv4().Protocol(IPPROTO_GRE).Payload(40), Other(60, 40)},
      {"ESP", P::Ipv4().Protocol(IPPROTO_ESP).Payload(40), Other(60, 40)},
      {"IPv4 AH", P::Ipv4().Protocol(IPPROTO_AH).Payload(40), Other(60, 40)},
      {"IP in IP", P::Ipv4().Protocol(IPPROTO_IPIP).Payload(40), Other(60, 40)},
      {"UDP-Lite", P::Ipv4().Protocol(IPPROTO_UDPLITE).Payload(40),
       Other(60, 40)},
      {"DCCP", P::Ipv4().Protocol(IPPROTO_DCCP).Payload(40), Other(60, 40)},
      {"a protocol that does not exist", P::Ipv4().Protocol(253).Payload(40),
       Other(60, 40)},
      {"IPv4 protocol 0 is no hop-by-hop header",
       P::Ipv4().Protocol(0).Payload(40), Other(60, 40)},

      // --- IPv6 ---
      {"IPv6 header alone", P::Ipv6(), Other(40, 0)},
      {"IPv6 UDP", P::Ipv6().Udp(1000, 53).Payload(100), Udp(148, 100)},
      {"IPv6 TCP", P::Ipv6().Tcp(1, 2, 12).Seq(9).Ack(5).Payload(100),
       Tcp(172, 100)},
      {"IPv6 no next header", P::Ipv6().Payload(10), Other(50, 10)},
      {"IPv6 ESP", P::Ipv6().Protocol(IPPROTO_ESP).Payload(40), Other(80, 40)},
      {"IPv6 unknown next header", P::Ipv6().Protocol(254).Payload(40),
       Other(80, 40)},
      {"hop-by-hop", P::Ipv6().HopByHop().Udp(1, 2).Payload(10), Udp(66, 10)},
      {"hop-by-hop of 2048 bytes",
       P::Ipv6().HopByHop(255).Udp(1, 2).Payload(10), Udp(2106, 10)},
      {"routing header", P::Ipv6().Routing(2).Tcp(1, 2).Payload(10),
       Tcp(94, 10)},
      {"destination options",
       P::Ipv6().DestinationOptions(1).Udp(1, 2).Payload(10), Udp(74, 10)},
      {"IPv6 AH", P::Ipv6().Authentication().Udp(1, 2).Payload(10),
       Udp(82, 10)},
      {"IPv6 atomic fragment",
       P::Ipv6().Fragment(0, false).Tcp(1, 2).Payload(92), Tcp(160, 92)},
      {"IPv6 later fragment",
       P::Ipv6().Fragment(100, true).Udp(1, 2).Payload(92), Other(148, 100)},
      {"IPv6 later fragment after other headers",
       P::Ipv6().HopByHop().Routing().Fragment(1, false).Tcp(1, 2).Payload(5),
       Other(89, 25)},
      {"chain of 5, in the order that RFC 8200 recommends",
       P::Ipv6()
           .HopByHop()
           .DestinationOptions()
           .Routing()
           .Fragment(0, true)
           .Authentication()
           .Udp(1, 2)
           .Payload(10),
       Udp(114, 10)},

      {"chain of 8 extension headers",
       Routings(P::Ipv6().HopByHop(), 7).Udp(1, 2).Payload(10), Udp(122, 10)},
      {"chain of 9: the rest is payload of something",
       Routings(P::Ipv6().HopByHop(), 8).Udp(1, 2).Payload(10), Other(130, 26)},

      // --- GSO packets: every segment has headers of its own ---
      {"UDP GSO", P::Ipv4().Udp(1, 2).Payload(3000),
       Udp(3028 + 2 * 28, 3000).Packets(3), Gso(3, 1000)},
      {"IPv6 UDP GSO", P::Ipv6().Udp(1, 2).Payload(3000),
       Udp(3048 + 2 * 48, 3000).Packets(3), Gso(3, 1000)},
      {"IPv6 UDP GSO with an extension header",
       P::Ipv6().DestinationOptions().Udp(1, 2).Payload(3000),
       Udp(3056 + 2 * 56, 3000).Packets(3), Gso(3, 1000)},
      {"TCP GSO", P::Ipv4().Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2896),
       Tcp(2948 + 52, 2896).Packets(2), Gso(2, 1448)},
      {"TCP GSO again", P::Ipv4().Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2896),
       Tcp(2948 + 52, 2896).Packets(2).Retransmit(2896), Twice(Gso(2, 1448))},
      {"TCP GSO with IPv4 options",
       P::Ipv4(8).Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2896),
       Tcp(2956 + 60, 2896).Packets(2), Gso(2, 1448)},
      {"IPv6 TCP GSO with a FIN",
       P::Ipv6().Tcp(1, 2, 12).Seq(1).Ack(5).Flags(P::kFin).Payload(2856),
       Tcp(2928 + 72, 2856).Packets(2), Gso(2, 1428)},
      {"SCTP GSO", P::Ipv4().Sctp(1, 2).Payload(2400),
       Sctp(2432 + 32, 2400).Packets(2), Gso(2, 1200)},
      {"GSO of one segment", P::Ipv4().Udp(1, 2).Payload(900), Udp(928, 900),
       Gso(1, 1000)},
      {"segments without a segment size are none",
       P::Ipv4().Udp(1, 2).Payload(900), Udp(928, 900), Gso(3, 0)},
      {"TCP from a virtio peer, gso_segs unknown",
       P::Ipv4().Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2900),
       Tcp(2952 + 2 * 52, 2900).Packets(3), Gso(0, 1448)},
      {"UDP from a virtio peer, gso_segs unknown",
       P::Ipv4().Udp(1, 2).Payload(3000), Udp(3028 + 2 * 28, 3000).Packets(3),
       Gso(0, 1000)},
      {"TCP from a virtio peer who says that segments have 1 byte",
       P::Ipv4().Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2900),
       Tcp(2952 + 157 * 52, 2900).Packets(158), Gso(0, 1)},
      {"UDP from a virtio peer who says that datagrams have 1 byte",
       P::Ipv4().Udp(1, 2).Payload(3000),
       Udp(3028 + 127 * 28, 3000).Packets(128), Gso(0, 1)},
      {"gso_segs unknown, and one segment in all",
       P::Ipv4().Tcp(1, 2).Seq(1).Ack(5).Payload(700), Tcp(740, 700),
       Gso(0, 1448)},
      // The kernel takes the 8 bytes of the jumbo header out before the link.
      {"BIG TCP",
       P::Ipv6().JumboPayload(2876).Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2856),
       Tcp(2928 + 72, 2856).Packets(2), Gso(2, 1428)},
      {"a jumbo header of somebody else's, in a packet of one segment",
       P::Ipv6().JumboPayload(108).Udp(1, 2).Payload(100), Udp(156, 100)},
      {"hop-by-hop without jumbo in a GSO packet",
       P::Ipv6().HopByHop().Tcp(1, 2, 12).Seq(1).Ack(5).Payload(2856),
       Tcp(2936 + 80, 2856).Packets(2), Gso(2, 1428)},
      // SRv6: each segment has the headers around it, and those within.
      {"TCP GSO within a routing header's IPv6",
       P::Ipv6().Routing(2).Protocol(41).Payload(72 + 2856).Byte(70, 6).Byte(
           116, 0x80),
       Other(64 + 2928 + 136, 2928).Packets(2), Gso(2, 1428)},
      {"IPv4 TCP GSO within a routing header's IPv6",
       P::Ipv6()
           .Routing(2)
           .Protocol(4)
           .Payload(52 + 2896)
           .Byte(64, 0x45)
           .Byte(73, 6)
           .Byte(96, 0x80),
       Other(64 + 2948 + 116, 2948).Packets(2), Gso(2, 1448)},
      {"inner headers beyond the end, which were 4,294,967,278 segments",
       P::Ipv4().Protocol(4).Payload(42).Byte(20, 0x4f), Other(62, 42),
       Gso(0, 1)},

      // --- Cut short: counted all the same ---
      {"IPv4 of one byte", P::Ipv4().Truncate(1), Other(1, 0).HeaderError()},
      {"IPv4 of 19 bytes", P::Ipv4().Truncate(19), Other(19, 0).HeaderError()},
      {"IPv6 of 39 bytes", P::Ipv6().Truncate(39), Other(39, 0).HeaderError()},
      {"IPv4 options cut short", P::Ipv4(40).Udp(1, 2).Truncate(30),
       Udp(30, 0).HeaderError()},
      {"UDP of 7 bytes", P::Ipv4().Udp(1, 2).Truncate(27),
       Udp(27, 0).HeaderError()},
      {"TCP without a byte of its header", P::Ipv4().Tcp(1, 2).Truncate(20),
       Tcp(20, 0).HeaderError()},
      {"SCTP of 7 bytes", P::Ipv4().Sctp(1, 2).Truncate(27),
       Sctp(27, 0).HeaderError()},
      {"ICMP of 3 bytes", P::Ipv4().Icmp().Truncate(23), Icmp(23, 0)},
      {"hop-by-hop without a byte of it",
       P::Ipv6().HopByHop().Udp(1, 2).Truncate(40), Other(40, 0).HeaderError()},
      {"hop-by-hop of 3 bytes", P::Ipv6().HopByHop().Udp(1, 2).Truncate(43),
       Other(43, 3).HeaderError()},
      {"routing header that claims more than there is",
       P::Ipv6().Routing().HeaderByte(1, 255).Udp(1, 2).Payload(10),
       Udp(66, 0).HeaderError()},
      {"fragment header of 3 bytes",
       P::Ipv6().Fragment(0, true).Udp(1, 2).Truncate(43),
       Other(43, 3).HeaderError()},
      {"UDP cut short after extension headers",
       P::Ipv6().HopByHop().Routing().Udp(1, 2).Truncate(60),
       Udp(60, 0).HeaderError()},

      // --- Garbage ---
      {"IPv4 ihl 0", P::Ipv4().Udp(1, 2).Payload(10).Byte(0, 0x40),
       // The header is read from its start; no more can be said of it.
       Udp(38, 30)},
      {"IPv6 with version 4", P::Ipv6().Udp(1, 2).Payload(10).Byte(0, 0x40),
       Udp(58, 10)},
      {"all ones, IPv4", P::Raw(ETH_P_IP, std::vector<uint8_t>(64, 0xff)),
       Other(64, 4)},
      {"all ones, IPv6", P::Raw(ETH_P_IPV6, std::vector<uint8_t>(64, 0xff)),
       Other(64, 24)},
      {"all zeros, IPv4", P::Raw(ETH_P_IP, std::vector<uint8_t>(64, 0)),
       Other(64, 64)},
      {"all zeros, IPv6: hop-by-hop to the end",
       P::Raw(ETH_P_IPV6, std::vector<uint8_t>(64, 0)),
       Other(64, 0).HeaderError()},

      // --- Loopback, no proxy ports ---
      {"loopback is not counted", P::Ipv4().Udp(1, 2).Payload(10), NotCounted(),
       Loopback()},
      {"loopback is not even parsed", P::Ipv4().Udp(1, 2).Truncate(22),
       NotCounted(), Loopback()},
  };
  return *cases;
}

const std::vector<Case>& ProxyPackets() {
  using P = Packet;
  static const auto* const cases = new std::vector<Case>{
      {"loopback to a proxy port",
       P::Ipv4().Tcp(40000, kProxyPort).Seq(1).Ack(5).Payload(100),
       Tcp(140, 100).Proxy(), Loopback()},
      {"loopback from a proxy port",
       P::Ipv4().Tcp(kProxyPort, 40000).Seq(1).Ack(5).Payload(100),
       Tcp(140, 100).Proxy(), Loopback()},
      {"loopback to the second proxy port",
       P::Ipv6().Tcp(40000, kOtherProxyPort).Seq(1).Ack(5).Payload(100),
       Tcp(160, 100).Proxy(), Loopback()},
      {"loopback from the second proxy port, again",
       P::Ipv6().Tcp(kOtherProxyPort, 40000).Seq(1).Ack(5).Payload(100),
       Tcp(160, 100).Retransmit(100).Proxy(), Twice(Loopback())},
      {"loopback to a proxy port, UDP",
       P::Ipv4().Udp(40000, kProxyPort).Payload(100), Udp(128, 100).Proxy(),
       Loopback()},
      {"loopback to another port",
       P::Ipv4().Tcp(40000, 40001).Seq(1).Ack(5).Payload(100), NotCounted(),
       Loopback()},
      {"loopback without ports", P::Ipv4().Icmp().Payload(56), NotCounted(),
       Loopback()},
      {"loopback, a later fragment with the port's bytes",
       P::Ipv4().Ipv4Fragment(1, false).Udp(40000, kProxyPort).Payload(10),
       NotCounted(), Loopback()},
      {"loopback with the port in the wrong byte order",
       P::Ipv4().Udp(40000, (kProxyPort & 0xff) << 8 | kProxyPort >> 8),
       NotCounted(), Loopback()},
      {"a proxy port off loopback is as any other",
       P::Ipv4().Tcp(40000, kProxyPort).Seq(1).Ack(5).Payload(100),
       Tcp(140, 100)},
  };
  return *cases;
}

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.description;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

// True where newer kernels refuse, as they should, to run the packet.
bool IsRefused(const Packet& packet, const RunResult& result) {
  return result.error == -EINVAL && !packet.HasIpHeader();
}

// The programs are loaded once for all packets of a table.
template <typename Table>
class PacketTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    programs_ = LoadOrFail(Table::Options()).release();
  }
  static void TearDownTestSuite() {
    delete programs_;
    programs_ = nullptr;
  }

  void Check(Direction direction) {
    ASSERT_NE(programs_, nullptr);
    const Case& test = GetParam();
    const Expected& expected = test.expected;
    const bool egress = direction == Direction::kEgress;
    const bool tcp = expected.transport == NM_TRANSPORT_TCP;
    const uint64_t runs = test.run.repeat;

    const Counters before = programs_->ReadCounters();
    const nm_stats stats_before = programs_->ReadStats();
    const RunResult result = programs_->Run(direction, test.packet, test.run);
    const Counters counted = Difference(before, programs_->ReadCounters());
    if (IsRefused(test.packet, result)) {
      EXPECT_TRUE(counted.empty());
      return;
    }
    ASSERT_EQ(result.error, 0);
    EXPECT_EQ(result.retval, 1u) << "the packet was dropped";
    EXPECT_EQ(programs_->ReadStats().header_errors - stats_before.header_errors,
              expected.header_errors * runs);

    if (!expected.counted) {
      EXPECT_TRUE(counted.empty());
      return;
    }
    ASSERT_EQ(counted.size(), 1u);
    const nm_cell& cell = counted.begin()->second;
    EXPECT_EQ(counted.begin()->first,
              static_cast<uint32_t>(NM_SLOT_RESERVED(
                  NM_NAME_UNATTRIBUTED, expected.transport, expected.path)));
    EXPECT_EQ(cell.service, NM_NAME_UNATTRIBUTED);
    EXPECT_EQ(cell.destination, NM_NAME_EMPTY);
    EXPECT_EQ(cell.kind, NM_KIND_UNATTRIBUTED);
    EXPECT_EQ(cell.transport, expected.transport);
    EXPECT_EQ(cell.path, expected.path);

    EXPECT_EQ(egress ? cell.tx_bytes : cell.rx_bytes, expected.bytes * runs);
    EXPECT_EQ(egress ? cell.tx_packets : cell.rx_packets,
              expected.packets * runs);
    EXPECT_EQ(egress ? cell.rx_bytes : cell.tx_bytes, 0u);
    EXPECT_EQ(egress ? cell.rx_packets : cell.tx_packets, 0u);
    const uint64_t payload = tcp ? expected.payload : expected.payload * runs;
    EXPECT_EQ(cell.tx_payload_bytes, egress ? payload : 0);
    EXPECT_EQ(cell.rx_payload_bytes, egress || tcp ? 0 : payload);
    EXPECT_EQ(cell.tx_retransmit_bytes, egress ? expected.retransmit : 0);
  }

  static Programs* programs_;
};

template <typename Table>
Programs* PacketTest<Table>::programs_ = nullptr;

struct PlainTable {
  static ProgramOptions Options() { return ProgramOptions(); }
};
struct ProxyTable {
  static ProgramOptions Options() {
    ProgramOptions options;
    options.proxy_ports = {kProxyPort, kOtherProxyPort};
    return options;
  }
};
using PlainPacket = PacketTest<PlainTable>;
using ProxyPacket = PacketTest<ProxyTable>;

TEST_P(PlainPacket, IsCountedOnEgress) { Check(Direction::kEgress); }
TEST_P(PlainPacket, IsCountedOnIngress) { Check(Direction::kIngress); }
TEST_P(ProxyPacket, IsCountedOnEgress) { Check(Direction::kEgress); }
TEST_P(ProxyPacket, IsCountedOnIngress) { Check(Direction::kIngress); }

INSTANTIATE_TEST_SUITE_P(Table, PlainPacket, testing::ValuesIn(PlainPackets()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Table, ProxyPacket, testing::ValuesIn(ProxyPackets()),
                         NameOf);

// --- Garbage in bulk ---------------------------------------------------------

// Half of them noise from the first byte on, half of them packets of the table
// with some bytes changed and the end moved.
class Garbage {
 public:
  Packet Next() {
    const uint16_t type = Below(2) != 0 ? ETH_P_IP : ETH_P_IPV6;
    if (Below(2) != 0) return Packet::Raw(type, Bytes(1 + Below(2000)));
    const auto& table = PlainPackets();
    const std::vector<uint8_t> frame =
        table[Below(static_cast<uint32_t>(table.size()))].packet.Frame();
    std::vector<uint8_t> bytes(frame.begin() + ETH_HLEN, frame.end());
    for (uint32_t i = 1 + Below(8); i > 0; --i) {
      bytes[Below(static_cast<uint32_t>(std::min<size_t>(bytes.size(), 80)))] =
          static_cast<uint8_t>(random_());
    }
    if (Below(2) != 0) {
      bytes.resize(1 + Below(static_cast<uint32_t>(bytes.size())));
    }
    return Packet::Raw(frame[12] == 0x08 ? ETH_P_IP : ETH_P_IPV6, bytes);
  }

  uint32_t Below(uint32_t limit) { return random_() % limit; }

 private:
  std::vector<uint8_t> Bytes(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    return bytes;
  }

  std::mt19937 random_{20261120};
};

constexpr uint64_t kGarbagePackets = 10000;

TEST(Garbage, IsNeverDroppedAndEveryByteIsCountedOnce) {
  auto programs = LoadOrFail(ProgramOptions());
  ASSERT_NE(programs, nullptr);
  for (Direction direction : {Direction::kEgress, Direction::kIngress}) {
    const bool egress = direction == Direction::kEgress;
    Garbage garbage;
    const Counters before = programs->ReadCounters();
    uint64_t bytes = 0, packets = 0;
    while (packets < kGarbagePackets) {
      const Packet packet = garbage.Next();
      const RunResult result = programs->Run(direction, packet);
      if (IsRefused(packet, result)) continue;
      ASSERT_EQ(result.error, 0) << "packet " << packets;
      ASSERT_EQ(result.retval, 1u) << "packet " << packets;
      bytes += packet.size();
      packets += 1;
    }
    nm_cell sum = {};
    for (const auto& entry : Difference(before, programs->ReadCounters())) {
      const nm_cell& cell = entry.second;
      EXPECT_EQ(cell.kind, NM_KIND_UNATTRIBUTED);
      EXPECT_LT(entry.first, static_cast<uint32_t>(NM_SLOT_FIRST));
      sum.tx_bytes += cell.tx_bytes;
      sum.rx_bytes += cell.rx_bytes;
      sum.tx_packets += cell.tx_packets;
      sum.rx_packets += cell.rx_packets;
      EXPECT_LE(cell.tx_payload_bytes + cell.tx_retransmit_bytes,
                cell.tx_bytes);
    }
    EXPECT_EQ(egress ? sum.tx_bytes : sum.rx_bytes, bytes);
    EXPECT_EQ(egress ? sum.tx_packets : sum.rx_packets, packets);
    EXPECT_EQ(egress ? sum.rx_bytes : sum.tx_bytes, 0u);
  }
  const nm_stats stats = programs->ReadStats();
  EXPECT_EQ(stats.storage_failed_packets, 0u);
  EXPECT_EQ(stats.storage_failed_sockets, 0u);
  EXPECT_EQ(stats.series_full, 0u);
  EXPECT_GT(stats.header_errors, 0u);
}

TEST(Garbage, IsNeverDroppedWithProxyPortsAndSegments) {
  ProgramOptions options;
  options.proxy_ports = {kProxyPort};
  auto programs = LoadOrFail(options);
  ASSERT_NE(programs, nullptr);
  Garbage garbage;
  for (uint64_t i = 0; i < kGarbagePackets; ++i) {
    const Packet packet = garbage.Next();
    RunOptions run;
    if (garbage.Below(2) != 0) run.ifindex = Programs::kLoopback;
    if (garbage.Below(2) != 0) {
      run.gso_segs = garbage.Below(20);
      run.gso_size = garbage.Below(2000);
    }
    run.repeat = 1 + garbage.Below(3);
    for (Direction direction : {Direction::kEgress, Direction::kIngress}) {
      const RunResult result = programs->Run(direction, packet, run);
      if (IsRefused(packet, result)) continue;
      ASSERT_EQ(result.error, 0) << "packet " << i;
      ASSERT_EQ(result.retval, 1u) << "packet " << i;
    }
  }
}

// The kernel refuses to run a program on nothing, or it is a packet of no bytes.
TEST(Garbage, PacketOfNoBytesIsNotDropped) {
  auto programs = LoadOrFail(ProgramOptions());
  ASSERT_NE(programs, nullptr);
  for (Direction direction : {Direction::kEgress, Direction::kIngress}) {
    const RunResult result =
        programs->Run(direction, Packet::Ipv4().Truncate(0));
    if (result.error == -EINVAL) continue;
    EXPECT_EQ(result.retval, 1u);
  }
  for (const auto& entry : programs->ReadCounters()) {
    EXPECT_EQ(entry.second.tx_bytes + entry.second.rx_bytes, 0u);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
