// SPDX-License-Identifier: BSD-3-Clause
// The fast path for plain packets (bpf/fast_path.bpf.h): it counts each packet that it
// takes as the full path would, and it takes the packets that it is made for.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "test/program/one_socket.h"

namespace netmeter {
namespace internal {
namespace {

using P = Packet;

constexpr uint32_t kTcpSlot = NM_SLOT_FIRST;
constexpr uint32_t kUdpSlot = NM_SLOT_FIRST + 1;
constexpr uint32_t kPendingSlot = NM_SLOT_FIRST + 2;
constexpr uint16_t kService = NM_NAME_FIRST;
constexpr uint16_t kProxyPort = 8443;

std::string Text(const Counters& counters) {
  std::string text;
  for (const auto& entry : counters) {
    const nm_cell& cell = entry.second;
    text += "slot " + std::to_string(entry.first);
    for (uint64_t value : {cell.tx_bytes, cell.rx_bytes, cell.tx_packets,
                           cell.rx_packets, cell.tx_payload_bytes,
                           cell.rx_payload_bytes, cell.tx_retransmit_bytes}) {
      text += " " + std::to_string(value);
    }
    text += "; ";
  }
  return text;
}

// Without the cookie, which differs in each run.
std::string Text(const nm_socket& socket) {
  std::string text = "slot " + std::to_string(NM_WORD_SLOT(socket.word));
  for (uint32_t value :
       {socket.tx_end, socket.rx_ack, socket.rx_fin, uint32_t{socket.tx_valid},
        uint32_t{socket.rx_valid}, uint32_t{socket.rx_fin_seen},
        uint32_t{socket.rx_fin_counted}, uint32_t{socket.rx_rst_seen},
        uint32_t{socket.wire_protocol}}) {
    text += " " + std::to_string(value);
  }
  return text;
}

class FastPath : public testing::Test {
 protected:
  void SetUp() override {
    both_ = Load(NM_WAYS_BOTH);
    full_ = Load(NM_WAYS_FULL);
    fast_ = Load(NM_WAYS_FAST);
    // A connection in its middle.
    socket_.word = kTcpSlot;
    socket_.tx_end = 1000;
    socket_.rx_ack = 2000;
    socket_.tx_valid = socket_.rx_valid = 1;
  }

  std::unique_ptr<Programs> Load(nm_ways ways) {
    ProgramOptions options;
    options.ways = ways;
    options.proxy_ports = {kProxyPort};
    std::unique_ptr<Programs> programs = LoadOrFail(options);
    if (programs == nullptr) return programs;
    WriteHead(*programs, kTcpSlot, kService, NM_KIND_SERVICE, NM_TRANSPORT_TCP);
    WriteHead(*programs, kUdpSlot, kService, NM_KIND_SERVICE, NM_TRANSPORT_UDP);
    WriteHead(*programs, kPendingSlot, kService, NM_KIND_PENDING,
              NM_TRANSPORT_TCP);
    return programs;
  }

  // Runs the packet with each of enum nm_ways. Returns whether the fast path took it.
  bool Compare(Direction direction, const Packet& packet,
               const RunOptions& options = RunOptions()) {
    nm_socket both = socket_, long_way = socket_, plain = socket_;
    const Counters expected =
        PassOn(*full_, &long_way, direction, packet, options);
    EXPECT_EQ(Text(PassOn(*both_, &both, direction, packet, options)),
              Text(expected));
    EXPECT_EQ(Text(both), Text(long_way));
    const Counters counted = PassOn(*fast_, &plain, direction, packet, options);
    if (counted.empty()) {
      EXPECT_EQ(Text(plain), Text(socket_)) << "changed, but not counted";
      return false;
    }
    EXPECT_EQ(Text(counted), Text(expected));
    EXPECT_EQ(Text(plain), Text(long_way));
    return true;
  }

  bool Send(const Packet& packet, const RunOptions& options = RunOptions()) {
    return Compare(Direction::kEgress, packet, options);
  }
  bool Receive(const Packet& packet, const RunOptions& options = RunOptions()) {
    return Compare(Direction::kIngress, packet, options);
  }

  static Packet Tcp(Packet ip, uint8_t flags = P::kAck) {
    return ip.Tcp(40000, 443, 12).Seq(1000).Ack(2500).Flags(flags).Payload(700);
  }

  const OnOneCpu on_one_cpu_;
  std::unique_ptr<Programs> both_, full_, fast_;
  nm_socket socket_ = {};
};

TEST_F(FastPath, DataAndAcknowledgementsOfAConnectionTakeIt) {
  for (const Packet& ip : {P::Ipv4(), P::Ipv6()}) {
    EXPECT_TRUE(Send(Tcp(ip)));
    EXPECT_TRUE(Send(Tcp(ip, P::kAck | P::kPush)));
    EXPECT_TRUE(Receive(Tcp(ip)));
    RunOptions segments;
    segments.gso_segs = 3;
    segments.gso_size = 300;
    EXPECT_TRUE(Send(Tcp(ip), segments));
    EXPECT_TRUE(Receive(Tcp(ip), segments));
  }
}

TEST_F(FastPath, DatagramsTakeIt) {
  socket_ = nm_socket();
  socket_.word = kUdpSlot;
  for (Packet ip : {P::Ipv4(), P::Ipv6()}) {
    const Packet packet = ip.Udp(5000, 53).Payload(99);
    EXPECT_TRUE(Send(packet));
    EXPECT_TRUE(Receive(packet));
  }
}

// Packets over loopback that are not to or from a proxy are not counted, in either
// direction. The fast path ends early for the packets that the full path leaves out, and
// only for those: the test compares the counts of truncated headers.
TEST_F(FastPath, LoopbackWithoutAProxyIsNotCountedEitherWay) {
  RunOptions loopback;
  loopback.ifindex = Programs::kLoopback;
  for (const Packet& ip : {P::Ipv4(), P::Ipv6(), P::Ipv4(4)}) {
    std::vector<Packet> packets;
    for (const auto& ports :
         {std::make_pair(40000, 443), std::make_pair(40000, int{kProxyPort}),
          std::make_pair(int{kProxyPort}, 40000)}) {
      const auto source = static_cast<uint16_t>(ports.first);
      const auto target = static_cast<uint16_t>(ports.second);
      for (uint32_t length = 20; length <= 70; ++length) {
        packets.push_back(
            Packet(ip).Tcp(source, target).Payload(20).Truncate(length));
        packets.push_back(
            Packet(ip).Udp(source, target).Payload(20).Truncate(length));
      }
    }
    for (const Packet& packet : packets) {
      if (!packet.HasIpHeader()) continue;
      for (const Direction direction :
           {Direction::kEgress, Direction::kIngress}) {
        const uint64_t both = both_->ReadStats().header_errors;
        const uint64_t long_way = full_->ReadStats().header_errors;
        Compare(direction, packet, loopback);
        // A packet runs again if another socket took its cookie, so the numbers may
        // differ.
        EXPECT_EQ(both_->ReadStats().header_errors > both,
                  full_->ReadStats().header_errors > long_way);
      }
    }
  }
  EXPECT_GT(full_->ReadStats().header_errors, 0u);
}

TEST_F(FastPath, PlainEndsOfAConnectionTakeIt) {
  // For a request, in a listener's name.
  EXPECT_TRUE(Send(Tcp(P::Ipv4(), P::kSyn | P::kAck)));
  EXPECT_TRUE(Receive(Tcp(P::Ipv4(), P::kSyn)));
  EXPECT_TRUE(Receive(Tcp(P::Ipv4(), P::kSyn | P::kAck)));
  EXPECT_TRUE(Send(Tcp(P::Ipv4(), P::kFin | P::kAck)));
  EXPECT_TRUE(Receive(Tcp(P::Ipv4(), P::kFin | P::kAck)));
  EXPECT_TRUE(Receive(Tcp(P::Ipv4(), P::kRst)));
  // The peer's FIN has to be subtracted.
  for (const uint32_t fin : {2000u, 2001u, 2500u, 2501u}) {
    socket_.rx_fin_seen = 1;
    socket_.rx_fin = fin;
    EXPECT_TRUE(Send(Tcp(P::Ipv4())));
    EXPECT_TRUE(Send(Tcp(P::Ipv4(), P::kFin | P::kAck)));
  }
  socket_.rx_fin_counted = 1;
  EXPECT_TRUE(Send(Tcp(P::Ipv4())));
}

TEST_F(FastPath, OtherEndsOfAConnectionDoNot) {
  for (const uint8_t flags : {0, 0 + P::kSyn, 0 + P::kFin, 0 + P::kRst}) {
    EXPECT_FALSE(Send(P::Ipv4().Tcp(40000, 443).Seq(1000).Flags(flags)));
  }
  EXPECT_FALSE(Send(Tcp(P::Ipv4(), P::kRst)));
  EXPECT_FALSE(Receive(Tcp(P::Ipv4(), P::kSyn | P::kFin)));
  // The numbers are not known yet.
  for (nm_u8 nm_socket::*field : {&nm_socket::tx_valid, &nm_socket::rx_valid}) {
    nm_socket before = socket_;
    socket_.*field ^= 1;
    EXPECT_FALSE(Send(Tcp(P::Ipv4())));
    socket_ = before;
  }
}

TEST_F(FastPath, OptionsFragmentsAndOtherTransportsDoNot) {
  EXPECT_FALSE(Send(Tcp(P::Ipv4(4))));
  EXPECT_FALSE(Send(Tcp(P::Ipv6().HopByHop())));
  EXPECT_FALSE(Send(Tcp(P::Ipv4().Ipv4Fragment(10, false))));
  EXPECT_FALSE(Send(P::Ipv4().Sctp(1, 2).Payload(10)));
  EXPECT_FALSE(Receive(P::Ipv6().Icmpv6().Payload(10)));
  // A GSO packet whose number of segments is not known.
  RunOptions unknown;
  unknown.gso_size = 300;
  EXPECT_FALSE(Send(Tcp(P::Ipv4()), unknown));
  // A GSO packet whose number of segments may be a peer's claim.
  unknown.gso_segs = 70;
  unknown.gso_size = 10;
  EXPECT_FALSE(Receive(Tcp(P::Ipv4()), unknown));
}

TEST_F(FastPath, ASocketWithoutASlotOrOfAnotherSeriesDoesNot) {
  for (uint32_t slot : {0u, kUdpSlot, kPendingSlot}) {
    socket_.word = slot;
    EXPECT_FALSE(Send(Tcp(P::Ipv4()))) << slot;
    EXPECT_FALSE(Receive(Tcp(P::Ipv4()))) << slot;
  }
}

// Random packets and sockets.
TEST_F(FastPath, AnyPacketCountsTheSameBothWays) {
  std::mt19937 random(1);
  auto below = [&random](uint32_t limit) {
    return static_cast<uint32_t>(random() % limit);
  };
  int plain = 0, other = 0;
  for (int i = 0; i < 2500 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    socket_ = nm_socket();
    socket_.word = below(16) == 0  ? kPendingSlot
                   : below(4) == 0 ? kUdpSlot
                                   : kTcpSlot;
    // The sequence space wraps around.
    socket_.tx_end = below(2) ? random() : below(3000) - 1500;
    socket_.rx_ack = below(2) ? random() : below(3000) - 1500;
    socket_.tx_valid = below(10) != 0;
    socket_.rx_valid = below(10) != 0;
    if (below(10) == 0) {
      socket_.rx_fin_seen = 1;
      socket_.rx_fin = socket_.rx_ack + below(2000) - 500;
      socket_.rx_fin_counted = below(2);
    }
    const bool ipv6 = below(2) != 0;
    Packet packet = ipv6 ? P::Ipv6() : P::Ipv4(below(8) ? 0 : 8);
    if (below(12) == 0) packet.Fragment(below(2), true);
    switch (below(8)) {
      case 0:
        packet.Sctp(1, 2);
        break;
      case 1:
      case 2:
        packet.Udp(1000, 53);
        break;
      default:
        packet.Tcp(40000, 443, 4 * below(11))
            .Seq(socket_.tx_end + below(4000) - 2000)
            .Ack(socket_.rx_ack + below(4000) - 1000)
            .Flags(below(4) ? P::kAck | P::kPush
                            : static_cast<uint8_t>(below(32)));
    }
    packet.Payload(below(4) ? below(1400) : 0);
    if (below(20) == 0) packet.Truncate(20 + below(60));
    if (!packet.HasIpHeader()) continue;
    // Each run has its own socket, and equal bytes would count as a duplicate
    // (bpf/duplicates.bpf.h). A number makes them differ.
    packet.Byte(ipv6 ? 2 : 4, static_cast<uint8_t>(i >> 8))
        .Byte(ipv6 ? 3 : 5, static_cast<uint8_t>(i));
    RunOptions options;
    if (below(4) == 0) {
      options.gso_size = 1 + below(1000);
      options.gso_segs = below(5);
    }
    const bool taken =
        below(2) ? Send(packet, options) : Receive(packet, options);
    ++(taken ? plain : other);
  }
  EXPECT_GT(plain, 700);
  EXPECT_GT(other, 700);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
