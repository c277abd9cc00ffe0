// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/late_packets.h"

#include <gtest/gtest.h>
#include <linux/if_ether.h>

#include <utility>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

constexpr uint8_t kFin = 0x01, kRst = 0x04, kAck = 0x10;

Packet Received(uint8_t flags, uint32_t bytes, uint32_t acknowledged) {
  Packet packet;
  packet.ethertype = ETH_P_IP;
  packet.protocol = 6;
  packet.tcp_flags = flags;
  packet.bytes = bytes;
  packet.source_port = 7777;
  packet.destination_port = 40000;
  packet.tcp_acknowledged = acknowledged;
  return packet;
}

Packet ResetOf(const Packet& cause) {
  Packet packet = cause;
  packet.outgoing = true;
  packet.tcp_flags = kRst;
  packet.bytes = 40;
  std::swap(packet.source_port, packet.destination_port);
  packet.tcp_sequence = cause.tcp_acknowledged;
  packet.tcp_acknowledged = 0;
  return packet;
}

// Two CPUs took the FIN and a D-SACK of 12 bytes more in another order than they passed
// the interface in: the balance of an hour on 5.10 was 12 bytes too much for it.
TEST(LatePacketsTest, EitherOfTwoThatAcknowledgeTheSameMayHaveFoundNoSocket) {
  const Packet fin = Received(kFin | kAck, 52, 1000);
  const Packet dsack = Received(kAck, 64, 1000);
  const std::vector<Packet> packets = {fin, dsack, ResetOf(fin)};
  const std::vector<const char*> names = FindLatePackets(packets, true);
  EXPECT_EQ(names[0], nullptr);
  ASSERT_STREQ(names[1], "late");
  LatePair pair = {};
  ASSERT_TRUE(FindLateInstead(packets, names, true, 12, &pair));
  EXPECT_EQ(pair.named, 1u);
  EXPECT_EQ(pair.other, 0u);
  EXPECT_FALSE(FindLateInstead(packets, names, true, -12, &pair));
  EXPECT_FALSE(FindLateInstead(packets, names, true, 24, &pair));
}

TEST(LatePacketsTest, OtherPacketsExplainNoDifference) {
  const Packet dsack = Received(kAck, 64, 1000);
  Packet other_number = Received(kAck, 52, 2000);
  Packet other_port = Received(kAck, 52, 1000);
  other_port.destination_port = 40001;
  Packet reset = Received(kRst | kAck, 52, 1000);
  Packet payload = Received(kAck, 52, 1000);
  payload.payload = 1;
  Packet sent = Received(kAck, 52, 1000);
  sent.outgoing = true;
  for (const Packet& other : {other_number, other_port, reset, payload, sent}) {
    LatePair pair = {};
    EXPECT_FALSE(
        FindLateInstead({other, dsack}, {nullptr, "late"}, true, 12, &pair));
  }
}

// In an hour of the host one packet of 72 bytes was more than the interface had: what the
// test takes for a TIME_WAIT socket was one that close(2) still held.
TEST(LatePacketsTest, TheSecondOfTwoMayHaveFoundTheSocketThatTheFirstEnds) {
  Packet fin = ResetOf(Received(kAck, 72, 0));
  fin.tcp_flags = kFin | kAck;
  fin.tcp_sequence = 999;
  const Packet ack = Received(kAck, 72, 1000);
  size_t named = 0;
  ASSERT_TRUE(FindStillOpen({fin, ack, ack}, {nullptr, nullptr, "time-wait"},
                            true, 72, &named));
  EXPECT_EQ(named, 2u);
  const Packet their_fin = Received(kFin | kAck, 72, 1000);
  const Packet other_number = Received(kAck, 72, 999);
  const std::vector<const char*> names = {nullptr, nullptr, "time-wait"};
  EXPECT_FALSE(FindStillOpen({fin, ack, ack}, names, true, 52, &named));
  // Whose answer the hook would have seen, too.
  EXPECT_FALSE(FindStillOpen({fin, ack, their_fin}, names, true, 72, &named));
  EXPECT_FALSE(
      FindStillOpen({fin, other_number, ack}, names, true, 72, &named));
  // Something was sent in between.
  EXPECT_FALSE(FindStillOpen({ack, fin, ack}, names, true, 72, &named));
  EXPECT_FALSE(FindStillOpen(
      {fin, ack, ack}, {nullptr, "time-wait", "time-wait"}, true, 72, &named));
  named = 0;
  ASSERT_TRUE(FindStillOpen({fin, ack, their_fin, their_fin},
                            {nullptr, nullptr, "time-wait", "time-wait"}, true,
                            72, &named));
  EXPECT_EQ(named, 2u);
}

// In an hour of 5.10, on a host with five times as much to do, the meter had one packet
// more each way, of 52 bytes.
TEST(LatePacketsTest, ASocketInFinWait2MayHaveAnsweredTheFin) {
  Packet fin = Received(kFin | kAck, 52, 1000);
  fin.tcp_sequence = 7;
  Packet answer = ResetOf(Received(kAck, 52, 0));
  answer.tcp_flags = kAck;
  answer.bytes = 52;
  answer.tcp_acknowledged = 8;
  const std::vector<const char*> names = {"time-wait", "time-wait"};
  AnsweredFin found = {};
  ASSERT_TRUE(FindAnsweredFin({fin, answer}, names, true, 52, 52, &found));
  EXPECT_EQ(found.fin, 0u);
  EXPECT_EQ(found.answer, 1u);
  EXPECT_FALSE(FindAnsweredFin({fin, answer}, names, true, 72, 52, &found));
  EXPECT_FALSE(FindAnsweredFin({fin, answer}, names, true, 52, 72, &found));
  EXPECT_FALSE(FindAnsweredFin({answer, fin}, names, true, 52, 52, &found));
  // What the hook is known to have seen.
  EXPECT_FALSE(FindAnsweredFin({fin, answer}, {nullptr, "time-wait"}, true, 52,
                               52, &found));
  EXPECT_FALSE(FindAnsweredFin({fin, answer}, {"time-wait", nullptr}, true, 52,
                               52, &found));
  Packet other_number = answer, other_port = answer;
  other_number.tcp_acknowledged = 7;
  other_port.source_port = 40001;
  for (const Packet& other : {other_number, other_port}) {
    EXPECT_FALSE(FindAnsweredFin({fin, other}, names, true, 52, 52, &found));
  }
}

// Once, on 7.2, the link had a packet of 52 bytes more than the meter each way, and of
// the late packets only a RST had a name. The peer had acknowledged our FIN before it
// sent its own, which found no whole socket any more; its answer found none either.
TEST(LatePacketsTest, AFinMayComeToASocketThatHasLeftFinWait2) {
  Packet fin = ResetOf(Received(kAck, 52, 0));
  fin.tcp_flags = kFin | kAck;
  fin.bytes = 52;
  fin.tcp_sequence = 999;
  fin.tcp_acknowledged = 7;
  Packet ack = Received(kAck, 52, 1000);
  ack.tcp_sequence = 7;
  Packet their_fin = ack;
  their_fin.tcp_flags = kFin | kAck;
  Packet answer = fin;
  answer.tcp_flags = kAck;
  answer.tcp_sequence = 1000;
  answer.tcp_acknowledged = 8;
  Packet reset = Received(kRst, 40, 0);
  reset.tcp_sequence = 8;
  const std::vector<Packet> packets = {fin, ack, their_fin, answer, reset};
  const std::vector<const char*> names = FindLatePackets(packets, true);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(names[i], nullptr) << i;
  EXPECT_STREQ(names[4], "time-wait");
  AnsweredFin found = {};
  ASSERT_TRUE(FindUnseenFin(packets, names, true, 52, 52, &found));
  EXPECT_EQ(found.fin, 2u);
  EXPECT_EQ(found.answer, 3u);
  EXPECT_FALSE(FindUnseenFin(packets, names, true, 64, 52, &found));
  EXPECT_FALSE(FindUnseenFin(packets, names, true, 52, 64, &found));
  // Nothing but their FIN acknowledges ours: a whole socket takes it.
  const std::vector<const char*> three(3, nullptr);
  EXPECT_FALSE(
      FindUnseenFin({fin, their_fin, answer}, three, true, 52, 52, &found));
  // If it comes again, it finds what the first one left, and has a name: so has the
  // answer to it. The first pair was seen.
  const std::vector<Packet> again = {fin,       their_fin, answer,
                                     their_fin, answer,    reset};
  const std::vector<const char*> late = FindLatePackets(again, true);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(late[i], nullptr) << i;
  for (size_t i = 3; i < 6; ++i) EXPECT_STREQ(late[i], "time-wait") << i;
  EXPECT_FALSE(FindUnseenFin(again, late, true, 52, 52, &found));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
