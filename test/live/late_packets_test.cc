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

const std::vector<const char*> kNone(6, nullptr);

// On two CPUs a FIN and a D-SACK of 12 bytes more were taken in another order than they
// passed the interface in.
TEST(LatePacketsTest, EitherOfTwoThatAcknowledgeTheSameMayHaveFoundNoSocket) {
  const Packet fin = Received(kFin | kAck, 52, 1000);
  const Packet dsack = Received(kAck, 64, 1000);
  const std::vector<Packet> packets = {fin, dsack, ResetOf(fin)};
  const std::vector<const char*> names = FindLatePackets(packets, true);
  EXPECT_EQ(names[0], nullptr);
  ASSERT_STREQ(names[1], "late");
  EXPECT_TRUE(ExplainLate(packets, names, false, -12, 0));
  EXPECT_FALSE(ExplainLate(packets, names, false, 12, 0));
  EXPECT_FALSE(ExplainLate(packets, names, true, -12, 0));
}

TEST(LatePacketsTest, OnlyPacketsWithoutPayloadAfterAnEndExplainADifference) {
  const Packet ack = Received(kAck, 52, 1000);
  const Packet fin = Received(kFin | kAck, 52, 1000);
  Packet payload = ack, elsewhere = ack;
  payload.payload = 1;
  payload.bytes = 53;
  elsewhere.destination_port = 40001;
  elsewhere.bytes = 54;
  const std::vector<Packet> packets = {ack, fin, payload, elsewhere, ack};
  EXPECT_TRUE(ExplainLate(packets, kNone, false, 2 * 52, 2));
  EXPECT_FALSE(ExplainLate(packets, kNone, false, 3 * 52, 3));
  EXPECT_FALSE(ExplainLate(packets, kNone, false, 53, 1));
  EXPECT_FALSE(ExplainLate(packets, kNone, false, 54, 1));
  // No packet here has a name, so none is less; and four are too many.
  EXPECT_FALSE(ExplainLate(packets, kNone, false, -52, -1));
  EXPECT_FALSE(ExplainLate({fin, ack, ack, ack, ack}, kNone, false, 208, 4));
}

// A FIN came again to a TIME_WAIT socket, which answered it, and a RST answered that:
// LinkTest.MetersOfBothEndsAgree failed so once, on 7.2.
TEST(LatePacketsTest, AFinMayComeAgainToATimeWaitSocket) {
  Packet fin = ResetOf(Received(kAck, 52, 0));
  fin.tcp_flags = kFin | kAck;
  fin.bytes = 52;
  fin.tcp_sequence = 999;
  fin.tcp_acknowledged = 7;
  Packet their_fin = Received(kFin | kAck, 52, 1000);
  their_fin.tcp_sequence = 7;
  Packet answer = fin;
  answer.tcp_flags = kAck;
  answer.tcp_sequence = 1000;
  answer.tcp_acknowledged = 8;
  Packet reset = Received(kRst, 40, 0);
  reset.tcp_sequence = 8;
  const std::vector<Packet> again = {fin,       their_fin, answer,
                                     their_fin, answer,    reset};
  const std::vector<const char*> late = FindLatePackets(again, true);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(late[i], nullptr) << i;
  for (size_t i = 3; i < 6; ++i) EXPECT_STREQ(late[i], "time-wait") << i;
  // The first pair was not seen either, if the socket had left FIN_WAIT2 by then.
  EXPECT_TRUE(ExplainLate(again, late, false, 52, 1));
  EXPECT_TRUE(ExplainLate(again, late, true, 52, 1));
  // The second was, if close(2) still held the socket.
  EXPECT_TRUE(ExplainLate(again, late, false, -52, -1));
  EXPECT_TRUE(ExplainLate(again, late, true, -52, -1));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
