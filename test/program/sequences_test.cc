// SPDX-License-Identifier: BSD-3-Clause
// The socket table, packet by packet: which payload is new, which was sent before, which
// is acknowledged, and which socket has an entry. Each case runs twice: with both paths,
// and with all packets on the full path.
#include <bpf/bpf.h>

#include <cstdint>

#include "test/program/one_socket.h"

namespace netmeter {
namespace internal {
namespace {

using P = Packet;

constexpr uint32_t kSlot = NM_SLOT_FIRST;  // of a service's TCP series
constexpr uint32_t kUdpSlot = NM_SLOT_FIRST + 1;
constexpr uint16_t kService = NM_NAME_FIRST;

class Sequence : public testing::TestWithParam<nm_ways> {
 protected:
  void SetUp() override {
    Load(ProgramOptions());
    ASSERT_NE(programs_, nullptr);
    WriteHead(*programs_, kSlot, kService, NM_KIND_SERVICE, NM_TRANSPORT_TCP);
    WriteHead(*programs_, kUdpSlot, kService, NM_KIND_SERVICE,
              NM_TRANSPORT_UDP);
    socket_.word = kSlot;
  }

  void Load(ProgramOptions options) {
    options.ways = GetParam();
    programs_ = LoadOrFail(options);
  }

  // Runs a packet on the socket; what it counted, by slot.
  Counters Pass(Direction direction, const Packet& packet,
                const RunOptions& options = RunOptions()) {
    return PassOn(*programs_, &socket_, direction, packet, options);
  }

  nm_cell Only(const Counters& counters, uint32_t slot) {
    EXPECT_EQ(counters.size(), 1u);
    const auto found = counters.find(slot);
    EXPECT_NE(found, counters.end());
    return found == counters.end() ? nm_cell() : found->second;
  }

  // The payload that sending a packet counted as new, sent again, and
  // received by what it acknowledges.
  void Send(const Packet& packet, uint64_t new_bytes, uint64_t again,
            uint64_t received) {
    const nm_cell cell = Only(Pass(Direction::kEgress, packet), kSlot);
    EXPECT_EQ(cell.tx_bytes, packet.size());
    EXPECT_EQ(cell.tx_packets, 1u);
    EXPECT_EQ(cell.rx_packets, 0u);
    EXPECT_EQ(cell.tx_payload_bytes, new_bytes);
    EXPECT_EQ(cell.tx_retransmit_bytes, again);
    EXPECT_EQ(cell.rx_payload_bytes, received);
  }

  void Receive(const Packet& packet) {
    const nm_cell cell = Only(Pass(Direction::kIngress, packet), kSlot);
    EXPECT_EQ(cell.rx_bytes, packet.size());
    EXPECT_EQ(cell.rx_packets, 1u);
    EXPECT_EQ(cell.tx_packets, 0u);
    EXPECT_EQ(cell.rx_payload_bytes, 0u) << "counted when acknowledged";
    EXPECT_EQ(cell.tx_payload_bytes + cell.tx_retransmit_bytes, 0u);
  }

  static Packet Segment(uint32_t seq, uint32_t ack, size_t payload,
                        uint8_t flags = 0) {
    return P::Ipv4()
        .Tcp(40000, 443, 12)
        .Seq(seq)
        .Ack(ack)
        .Flags(flags)
        .Payload(payload);
  }

  std::unique_ptr<Programs> programs_;
  const OnOneCpu on_one_cpu_;
  nm_socket socket_ = {};
};

// Messages of 32 bytes that came one by one. This host has put them together, or that of
// this virtual machine has: then their number is not known (0). It is exact all the same.
TEST_P(Sequence, SmallSegmentsAreAsManyAsTheKernelPutTogether) {
  for (uint32_t known : {10u, 0u}) {
    RunOptions segments;
    segments.gso_segs = known;
    segments.gso_size = 32;
    const Packet packet = Segment(1000, 1, 320);
    const nm_cell cell =
        Only(Pass(Direction::kIngress, packet, segments), kSlot);
    EXPECT_EQ(cell.rx_packets, 10u);
    EXPECT_EQ(cell.rx_bytes, packet.size() + 9 * 52);
  }
}

TEST_P(Sequence, DataInOrderIsNew) {
  Send(Segment(1000, 1, 100), 100, 0, 0);
  Send(Segment(1100, 1, 200), 200, 0, 0);
  Send(Segment(1300, 1, 0), 0, 0, 0);
  Send(Segment(1300, 1, 1), 1, 0, 0);
}

TEST_P(Sequence, DataBelowTheMarkIsSentAgain) {
  Send(Segment(1000, 1, 1000), 1000, 0, 0);
  Send(Segment(1000, 1, 1000), 0, 1000, 0);
  Send(Segment(1400, 1, 100), 0, 100, 0);
  Send(Segment(1999, 1, 1), 0, 1, 0);
  Send(Segment(2000, 1, 1), 1, 0, 0);
}

TEST_P(Sequence, SegmentAcrossTheMarkIsSplit) {
  Send(Segment(1000, 1, 1000), 1000, 0, 0);
  Send(Segment(1500, 1, 1000), 500, 500, 0);
  Send(Segment(1000, 1, 1501), 1, 1500, 0);
}

TEST_P(Sequence, KeepaliveAndZeroWindowProbeAreNoPayload) {
  Send(Segment(1000, 1, 1000), 1000, 0, 0);
  Send(Segment(1999, 1, 0), 0, 0, 0);
  Send(Segment(1999, 1, 1), 0, 1, 0);  // a probe of one old byte
  Send(Segment(2000, 1, 10), 10, 0, 0);
}

TEST_P(Sequence, SynAndFinTakeANumberButAreNoPayload) {
  Send(P::Ipv4().Tcp(1, 2, 20).Seq(999).Flags(P::kSyn), 0, 0, 0);
  Send(P::Ipv4().Tcp(1, 2, 20).Seq(999).Flags(P::kSyn), 0, 0, 0);
  Send(Segment(1000, 1, 100), 100, 0, 0);
  Send(Segment(1100, 1, 50, P::kFin), 50, 0, 0);
  Send(Segment(1100, 1, 50, P::kFin), 0, 50, 0);
  Send(Segment(1150, 1, 0, P::kFin), 0, 0, 0);
  Send(Segment(1151, 1, 0), 0, 0, 0);
}

TEST_P(Sequence, FinAfterDataThatWasSentWithoutIt) {
  Send(Segment(1000, 1, 100), 100, 0, 0);
  Send(Segment(1000, 1, 100, P::kFin), 0, 100, 0);
  Send(Segment(1000, 1, 100, P::kFin), 0, 100, 0);
}

TEST_P(Sequence, FastOpenDataIsSentAgainWithoutTheSyn) {
  Send(P::Ipv4().Tcp(1, 2, 20).Seq(999).Flags(P::kSyn).Payload(300), 300, 0, 0);
  Send(Segment(1000, 1, 300), 0, 300, 0);
  Send(Segment(1300, 1, 5), 5, 0, 0);
}

TEST_P(Sequence, SequenceNumbersWrap) {
  Send(Segment(0xfffffff0, 0xffffff00, 10), 10, 0, 0);
  Send(Segment(0xfffffffa, 0xfffffff0, 20), 20, 0, 0xf0);
  Send(Segment(0xfffffff0, 0x10, 20), 0, 20, 0x20);
  Send(Segment(0x0e, 0x10, 100), 100, 0, 0);
  Send(Segment(0xfffffff0, 0x10, 130), 0, 130, 0);
}

TEST_P(Sequence, ReceivedIsWhatTheAcknowledgementAdvances) {
  Send(Segment(1000, 5000, 0), 0, 0, 0);
  Receive(Segment(5000, 1000, 500));
  Send(Segment(1000, 5500, 0), 0, 0, 500);
  Send(Segment(1000, 5500, 0), 0, 0, 0);  // a duplicate
  Receive(Segment(6000, 1000, 500));      // a hole before it
  Send(Segment(1000, 5500, 0), 0, 0, 0);
  Receive(Segment(5500, 1000, 500));
  Send(Segment(1000, 6500, 10), 10, 0, 1000);
  Send(Segment(1000, 6000, 10), 0, 10, 0);  // an old acknowledgement
}

TEST_P(Sequence, SegmentWithoutTheAckFlagAcknowledgesNothing) {
  Send(Segment(1000, 5000, 0), 0, 0, 0);
  Send(P::Ipv4().Tcp(1, 2).Seq(1000).Flags(P::kRst), 0, 0, 0);
  Send(Segment(1000, 5001, 0), 0, 0, 1);
}

// The bug: what the kernel answers a segment that acknowledges too much has the number
// that the peer says, and, since Linux 6.13, the connection's socket. All that was sent
// after it, up to 2 GiB, was sent again.
TEST_P(Sequence, ARefusalOfThePeersNumberMovesNoNumber) {
  Send(P::Ipv4().Tcp(1, 2, 20).Seq(999).Flags(P::kSyn), 0, 0, 0);
  Send(P::Ipv4().Tcp(1, 2).Seq(0x40000000).Flags(P::kRst), 0, 0, 0);
  Send(P::Ipv4().Tcp(1, 2, 20).Seq(999).Flags(P::kSyn), 0, 0, 0);
  Send(Segment(1000, 1, 100), 100, 0, 0);
}

TEST_P(Sequence, FinOfThePeerIsNotReceivedPayload) {
  Send(Segment(1000, 5000, 0), 0, 0, 0);
  Receive(Segment(5000, 1000, 300, P::kFin));
  Send(Segment(1000, 5301, 0), 0, 0, 300);
  Receive(Segment(5000, 1000, 300, P::kFin));  // it missed our answer
  Send(Segment(1000, 5301, 0), 0, 0, 0);
}

TEST_P(Sequence, FinBehindAHoleIsTakenOffOnce) {
  Send(Segment(1000, 5000, 0), 0, 0, 0);
  Receive(Segment(5300, 1000, 100, P::kFin));
  Send(Segment(1000, 5000, 0), 0, 0, 0);
  Receive(Segment(5000, 1000, 100));
  Send(Segment(1000, 5100, 0), 0, 0, 100);
  Receive(Segment(5100, 1000, 200));
  Send(Segment(1000, 5401, 0), 0, 0, 300);
}

TEST_P(Sequence, GsoPacketIsSplitLikeASegment) {
  Send(Segment(1000, 1, 1000), 1000, 0, 0);
  RunOptions gso;
  gso.gso_segs = 2;
  gso.gso_size = 1448;
  const nm_cell cell =
      Only(Pass(Direction::kEgress, Segment(1000, 1, 2896), gso), kSlot);
  EXPECT_EQ(cell.tx_packets, 2u);
  EXPECT_EQ(cell.tx_bytes, 2896u + 2 * 52);
  EXPECT_EQ(cell.tx_payload_bytes, 1896u);
  EXPECT_EQ(cell.tx_retransmit_bytes, 1000u);
}

TEST_P(Sequence, HitCountsUdpInBothDirections) {
  socket_.word = kUdpSlot;
  const Packet packet = P::Ipv4().Udp(1000, 53).Payload(100);
  nm_cell cell = Only(Pass(Direction::kEgress, packet), kUdpSlot);
  EXPECT_EQ(cell.tx_bytes, 128u);
  EXPECT_EQ(cell.tx_payload_bytes, 100u);
  EXPECT_EQ(cell.kind, NM_KIND_SERVICE);
  cell = Only(Pass(Direction::kIngress, packet), kUdpSlot);
  EXPECT_EQ(cell.rx_bytes, 128u);
  EXPECT_EQ(cell.rx_payload_bytes, 100u);
}

// A tag empties the slot of an entry: the next packet finds the new series.
TEST_P(Sequence, EntryWithoutASlotIsResolvedAndKeepsItsSequence) {
  Send(Segment(1000, 1, 100), 100, 0, 0);
  socket_.word = NM_WORD_COOKIE(socket_.word);
  const uint32_t slot =
      NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, NM_TRANSPORT_TCP, NM_PATH_DIRECT);
  const nm_cell cell =
      Only(Pass(Direction::kEgress, Segment(1000, 1, 150)), slot);
  EXPECT_EQ(cell.tx_payload_bytes, 50u);
  EXPECT_EQ(cell.tx_retransmit_bytes, 100u);
  EXPECT_EQ(NM_WORD_SLOT(socket_.word), slot);
}

// ICMP errors and later fragments come to a UDP socket, too.
TEST_P(Sequence, PacketOfAnotherTransportGoesToItsOwnSeries) {
  socket_.word = kUdpSlot;
  const nm_cell cell =
      Only(Pass(Direction::kIngress, P::Ipv4().Icmp().Payload(56)),
           NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, NM_TRANSPORT_ICMP,
                            NM_PATH_DIRECT));
  EXPECT_EQ(cell.rx_bytes, 84u);
}

// A late packet, or one whose entry another socket has: the cookie differs.
TEST_P(Sequence, EntryOfAnotherSocketIsLeftAlone) {
  ProgramOptions options;
  options.max_sockets = 1;
  Load(options);
  ASSERT_NE(programs_, nullptr);
  nm_socket other = {};
  other.word = NM_COOKIE(uint64_t{0x123456789}) | kSlot;
  other.tx_end = 77;
  other.tx_valid = 1;
  ASSERT_TRUE(programs_->WriteSocket(0, other));
  RunOptions twice;
  twice.repeat = 2;
  ASSERT_EQ(
      programs_->Run(Direction::kEgress, Segment(1000, 1, 100), twice).retval,
      1u);
  ASSERT_EQ(programs_->Run(Direction::kIngress, Segment(1, 1000, 100)).retval,
            1u);
  const nm_socket after = programs_->ReadSocket(0);
  EXPECT_EQ(after.word, other.word);
  EXPECT_EQ(after.tx_end, other.tx_end);
  EXPECT_EQ(after.rx_valid, 0);
  // Counted from socket storage, and as exactly.
  const nm_cell cell = Only(
      programs_->ReadCounters(),
      NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, NM_TRANSPORT_TCP, NM_PATH_DIRECT));
  EXPECT_EQ(cell.tx_payload_bytes, 100u);
  EXPECT_EQ(cell.tx_retransmit_bytes, 100u);
  EXPECT_EQ(cell.rx_packets, 1u);
}

// A socket whose end no hook would tell leaves no entry behind.
TEST_P(Sequence, SocketThatNobodyOwnsClaimsNoEntry) {
  ProgramOptions options;
  options.max_sockets = 2;
  Load(options);
  ASSERT_NE(programs_, nullptr);
  for (int i = 0; i < 20; ++i) {
    programs_->Run(Direction::kEgress, P::Ipv4().Udp(1, 2).Payload(1));
    programs_->Run(Direction::kEgress, Segment(1, 1, 1));
  }
  EXPECT_EQ(programs_->ReadSocket(0).word, 0u);
  EXPECT_EQ(programs_->ReadSocket(1).word, 0u);
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, 0u);
  EXPECT_EQ(stats.unowned_sockets, 40u);
  EXPECT_EQ(stats.storage_failed_packets, 0u);
  EXPECT_EQ(stats.storage_failed_sockets, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Sequence,
                         testing::Values(NM_WAYS_BOTH, NM_WAYS_FULL),
                         [](const testing::TestParamInfo<nm_ways>& way) {
                           return way.param == NM_WAYS_BOTH ? "Both" : "Long";
                         });

}  // namespace
}  // namespace internal
}  // namespace netmeter
