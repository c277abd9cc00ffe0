// SPDX-License-Identifier: BSD-3-Clause
// A packet that several sockets receive counts once (duplicates.bpf.h). Each call
// of Programs::Run() is another socket, which receives the packet as often as
// `repeat` says. What raw sockets receive is in test/live/duplicates_test.cc.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "test/program/fixture.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint8_t kOspf = 89;
constexpr uint8_t kUdpLite = 136;

Packet Multicast4() {
  return Packet::Ipv4().Udp(5353, 5353).Payload(40).Byte(16, 239);
}
Packet Multicast6() {
  return Packet::Ipv6().Udp(5353, 5353).Payload(40).Byte(24, 0xff);
}

// The packet, to a group.
Packet ToMany4(Packet packet) { return packet.Byte(16, 239); }
Packet ToMany6(Packet packet) { return packet.Byte(24, 0xff); }

using Counts = std::vector<uint64_t>;

class Duplicates : public testing::Test {
 protected:
  void SetUp() override {
    programs_ = LoadOrFail(ProgramOptions());
    ASSERT_NE(programs_, nullptr);
    ASSERT_TRUE(PinToCpu(AllowedCpus().front()));
  }

  // Delivers the packet to one socket; returns how often it counted.
  uint64_t Receive(const Packet& packet, uint32_t repeat = 1) {
    const uint64_t before = Received();
    RunOptions options;
    options.repeat = repeat;
    EXPECT_EQ(programs_->Run(Direction::kIngress, packet, options).error, 0);
    return Received() - before;
  }

  // Delivers the packet to one socket after the other, to each as often as `repeats`
  // says, within the tenth of a second in which the same bytes are duplicates
  // (NM_DUPLICATES_NS). If the machine stood still for longer, it does so again.
  Counts ReceiveEach(const Packet& packet,
                     const std::vector<uint32_t>& repeats) {
    for (;;) {
      Counts counted;
      const auto begin = std::chrono::steady_clock::now();
      for (const uint32_t repeat : repeats)
        counted.push_back(Receive(packet, repeat));
      const auto took = std::chrono::steady_clock::now() - begin;
      if (took < std::chrono::milliseconds(100)) return counted;
      usleep(110000);
    }
  }

  // Counts as if the one remembered packet had come this number of times.
  void MakeManyOf(uint32_t times) {
    // Of struct nm_duplicates (maps.bpf.h): how often it counted, and for whom.
    constexpr size_t kCounted = 22, kTimes = 27;
    bpf_map* const map = programs_->skeleton()->maps.nm_duplicates;
    const size_t size = bpf_map__value_size(map) / sizeof(uint32_t);
    const auto cpus = static_cast<size_t>(libbpf_num_possible_cpus());
    std::vector<uint32_t> words(size * cpus);
    int changed = 0;
    for (uint32_t i = 0;
         bpf_map_lookup_elem(bpf_map__fd(map), &i, words.data()) == 0; ++i) {
      for (size_t cpu = 0; cpu < cpus; ++cpu) {
        uint32_t* const duplicates = &words[cpu * size];
        if (duplicates[kCounted] != 1 || duplicates[kTimes] != 1) continue;
        duplicates[kCounted] = duplicates[kTimes] = times;
        EXPECT_EQ(
            bpf_map_update_elem(bpf_map__fd(map), &i, words.data(), BPF_ANY),
            0);
        ++changed;
      }
    }
    EXPECT_EQ(changed, 1);
  }

 private:
  uint64_t Received() const {
    uint64_t packets = 0;
    for (const auto& entry : programs_->ReadCounters())
      packets += entry.second.rx_packets;
    return packets;
  }

  std::unique_ptr<Programs> programs_;
};

TEST_F(Duplicates, CountForTheFirstSocket) {
  for (const Packet& packet :
       {ToMany4(Packet::Ipv4().Protocol(kUdpLite).Payload(44)),
        ToMany6(Packet::Ipv6().Protocol(kUdpLite).Payload(44)), Multicast4(),
        Multicast6()}) {
    EXPECT_EQ(ReceiveEach(packet, {1, 1, 1}), Counts({1, 0, 0}));
  }
}

// The bug: for a new socket the same bytes were a duplicate, whatever their destination.
// Only one of the sockets that are not raw, as here, receives a packet to one host.
TEST_F(Duplicates, AreNotWhatNewSocketsReceiveOneAfterTheOther) {
  for (const Packet& packet :
       {Packet::Ipv4().Icmp().Payload(56), Packet::Ipv6().Icmpv6().Payload(56),
        Packet::Ipv4().Protocol(kOspf).Payload(44),
        Packet::Ipv6().Protocol(kOspf).Payload(44)}) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Receive(packet), 1u) << i;
  }
}

// The bug: they were duplicates again in a broadcast or multicast frame. Except for UDP
// and raw sockets, one socket receives these as well.
TEST_F(Duplicates, AreNotWhatOneSocketReceivesInAFrameToEverybody) {
  for (Packet packet :
       {Packet::Ipv4().Icmp().Payload(56), Packet::Ipv6().Icmpv6().Payload(56),
        Packet::Ipv6().Udp(1, 2).Payload(56),
        Packet::Ipv6().Protocol(kUdpLite).Payload(56),
        ToMany6(Packet::Ipv6().Icmpv6().Payload(56)),
        ToMany4(Packet::Ipv4().Protocol(kOspf).Payload(44))}) {
    packet.Broadcast();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Receive(packet), 1u) << i;
  }
}

// The bug: how often a packet was there began again at 0 after 2^32 times, and was less
// than before for ever.
TEST_F(Duplicates, AreNotWhatComesAfterFourBillionEqualPackets) {
  const Packet packet = Packet::Ipv6().Icmpv6().Payload(56);
  EXPECT_EQ(Receive(packet), 1u);
  MakeManyOf(UINT32_MAX - 1);
  EXPECT_EQ(Receive(packet, 5), 5u);
  EXPECT_EQ(Receive(packet, 5), 5u);
}

TEST_F(Duplicates, OfUnicastTcpUdpAndSctpThereAreNone) {
  for (const Packet& packet :
       {Packet::Ipv4().Udp(1, 2).Payload(40), Packet::Ipv6().Udp(1, 2),
        Packet::Ipv4().Tcp(1, 2).Payload(40), Packet::Ipv6().Tcp(1, 2),
        Packet::Ipv4().Sctp(1, 2).Payload(40)}) {
    EXPECT_EQ(Receive(packet), 1u);
    EXPECT_EQ(Receive(packet), 1u);
  }
}

// A sender that repeats itself: the socket that has the bytes already has
// another packet.
TEST_F(Duplicates, AreNotRepetitionsOfTheSameBytes) {
  EXPECT_EQ(Receive(Multicast4(), 5), 5u);
  EXPECT_EQ(Receive(Packet::Ipv6().Icmpv6().Payload(8), 7), 7u);
}

// The other socket missed the packets before the last one.
TEST_F(Duplicates, AreNotWhatTheOthersMissed) {
  EXPECT_EQ(ReceiveEach(Multicast6(), {5, 4}), Counts({5, 3}));
}

TEST_F(Duplicates, AreToldByMoreSocketsThanAreRemembered) {
  Counts expected(21, 0);
  expected[0] = 1;
  EXPECT_EQ(ReceiveEach(Multicast4(), std::vector<uint32_t>(21, 1)), expected);
}

// The bug: when the sockets that were remembered had gone, and one remained that
// was not, its repetitions of the bytes were duplicates for as long as they came.
TEST_F(Duplicates, AreNotWhatASocketReceivesThatOutlivesTheRemembered) {
  // If a socket repeats, the first delivery is a copy.
  EXPECT_EQ(ReceiveEach(Multicast4(), {1, 1, 1, 1, 1, 5, 5, 6}),
            Counts({1, 0, 0, 0, 0, 4, 4, 5}));
}

TEST_F(Duplicates, AreNotPacketsThatDifferInOneByte) {
  for (uint8_t i = 0; i < 50; ++i)
    EXPECT_EQ(Receive(Multicast4().Byte(5, i)), 1u) << int{i};
}

// The bug: a hash of the first bytes stood for them, and it could be inverted. A packet
// with bit 63 of one word and bits 63 and 31 of the next flipped had the same hash. So a
// sender could write packets, one for each socket, of which all but one counted as
// duplicates.
TEST_F(Duplicates, AreNotPacketsThatASenderMakesForTheSameHash) {
  constexpr uint8_t kFlipped = 'x' ^ 0x80;
  for (Packet packet :
       {Multicast4(), Multicast6(),
        ToMany4(Packet::Ipv4().Protocol(kUdpLite).Payload(56)),
        ToMany6(Packet::Ipv6().Protocol(kUdpLite).Payload(44))}) {
    EXPECT_EQ(Receive(packet), 1u);
    packet.Byte(48 + 7, kFlipped).Byte(56 + 3, kFlipped).Byte(56 + 7, kFlipped);
    EXPECT_EQ(ReceiveEach(packet, {1, 1}), Counts({1, 0}));
  }
}

// IPv6 extensions may be longer than the bytes that are remembered. Then the ports
// alone tell for whom a packet is.
TEST_F(Duplicates, AreNotForAnotherPortBehindLongExtensions) {
  for (uint16_t port = 1; port < 10; ++port) {
    Packet packet = Packet::Ipv6().DestinationOptions(4).Udp(5353, port);
    packet.Payload(40).Byte(24, 0xff);
    EXPECT_EQ(ReceiveEach(packet, {1, 1}), Counts({1, 0})) << port;
  }
}

// A packet that is shorter than the bytes that are remembered.
TEST_F(Duplicates, AreToldFromShortPacketsThatDiffer) {
  for (size_t size = 1; size < 10; ++size) {
    Packet packet = ToMany4(Packet::Ipv4().Protocol(kUdpLite).Payload(size));
    EXPECT_EQ(ReceiveEach(packet, {1, 1}), Counts({1, 0})) << size;
    packet.Byte(20 + size - 1, 1);
    EXPECT_EQ(ReceiveEach(packet, {1, 1}), Counts({1, 0})) << size;
  }
  EXPECT_EQ(Receive(Packet::Ipv4().Protocol(kOspf)), 1u);
}

// The bug that this prevents: a daemon that starts again, and receives the same hello
// as the one before it.
TEST_F(Duplicates, AreForgottenAfterATenthOfASecond) {
  const Packet hello = ToMany4(Packet::Ipv4().Protocol(kUdpLite).Payload(44));
  EXPECT_EQ(Receive(hello), 1u);
  usleep(120000);
  EXPECT_EQ(Receive(hello), 1u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
