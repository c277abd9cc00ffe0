// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/series_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/reader/series_buffers.h"
#include "lib/testing/failing_new.h"
#include "lib/testing/misattributed.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SeriesReader, OfAnEmptyMeterHasNoSeries) {
  Buffers buffers(2, 64, 8);
  SeriesReader reader(buffers.view());
  EXPECT_THAT(reader.ReadAll(), IsEmpty());
  EXPECT_THAT(reader.ReadService("mme"), IsEmpty());
  EXPECT_THAT(reader.ReadService(""), IsEmpty());
}

TEST(SeriesReader, SumsTheCpusOfASeries) {
  Buffers buffers(3, 64, 8);
  buffers.SetName(3, "mme");
  buffers.SetName(4, "streamer");
  buffers.stats().slots_allocated = 1;
  // CPU 1 has never counted for this series.
  for (const uint32_t cpu : {0u, 2u}) {
    buffers.SetHead(21, cpu, 3, 4, NM_KIND_SERVICE, NM_TRANSPORT_UDP,
                    NM_PATH_PROXY);
    for (size_t word = 1; word < Buffers::kWords; ++word) {
      buffers.Add(21, cpu, word * sizeof(nm_u64), word * 100 + cpu);
    }
  }
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].kind, Kind::kService);
  EXPECT_EQ(samples[0].name, "mme");
  EXPECT_EQ(samples[0].destination, "streamer");
  EXPECT_EQ(samples[0].transport, Transport::kUdp);
  EXPECT_EQ(samples[0].path, Path::kProxy);
  EXPECT_FALSE(samples[0].registered);
  EXPECT_EQ(samples[0].tx_bytes, 202u);
  EXPECT_EQ(samples[0].rx_bytes, 402u);
  EXPECT_EQ(samples[0].tx_packets, 602u);
  EXPECT_EQ(samples[0].rx_packets, 802u);
  EXPECT_EQ(samples[0].tx_payload_bytes, 1002u);
  EXPECT_EQ(samples[0].rx_payload_bytes, 1202u);
  EXPECT_EQ(samples[0].tx_retransmit_bytes, 1402u);
}

TEST(SeriesReader, HasTheConnectionsOfTcpSeriesAlone) {
  Buffers buffers(2, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 3;
  buffers.SetHead(21, 1, 3, 0);
  buffers.SetHead(22, 0, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_UDP);
  buffers.SetHead(23, 0, 3, 0, NM_KIND_PENDING);
  buffers.Add(23, 0, offsetof(nm_cell, tx_packets), 1);
  for (const uint32_t slot : {21u, 22u, 23u}) {
    nm_tcp& tcp = buffers.tcp(slot);
    tcp.opened = 1;
    tcp.accepted = 2;
    tcp.closed = 3;
    tcp.failed = 4;
    tcp.rtt_us = 5;
    tcp.resets_sent = 6;
    tcp.resets_received = 7;
    tcp.timeouts = 8;
    tcp.retransmitted_segments = 9;
    for (nm_u64 i = 0; i < NM_RTT_BUCKETS; ++i) tcp.rtt_buckets[i] = 10 + i;
  }
  for (const Sample& sample : SeriesReader(buffers.view()).ReadAll()) {
    const bool expected =
        sample.transport == Transport::kTcp && sample.kind == Kind::kService;
    EXPECT_EQ(sample.tcp.known, expected);
    EXPECT_EQ(sample.tcp.opened, expected ? 1u : 0);
    EXPECT_EQ(sample.tcp.accepted, expected ? 2u : 0);
    EXPECT_EQ(sample.tcp.closed, expected ? 3u : 0);
    EXPECT_EQ(sample.tcp.failed, expected ? 4u : 0);
    EXPECT_EQ(sample.tcp.rtt_us, expected ? 5u : 0);
    EXPECT_EQ(sample.tcp.resets_sent, expected ? 6u : 0);
    EXPECT_EQ(sample.tcp.resets_received, expected ? 7u : 0);
    EXPECT_EQ(sample.tcp.timeouts, expected ? 8u : 0);
    EXPECT_EQ(sample.tcp.retransmitted_segments, expected ? 9u : 0);
    EXPECT_EQ(sample.tcp.rtt_buckets[9], expected ? 19u : 0);
  }
  // A loader that has no such map.
  buffers.info().features = 0;
  for (const Sample& sample : SeriesReader(buffers.view()).ReadAll()) {
    EXPECT_FALSE(sample.tcp.known);
  }
}

TEST(SeriesReader, OrsTheFlagsOfTheCpus) {
  Buffers buffers(2, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 0);
  SeriesReader reader(buffers.view());
  EXPECT_FALSE(reader.ReadAll()[0].registered);
  buffers.SetHead(21, 1, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_TCP,
                  NM_PATH_DIRECT, NM_FLAG_REGISTERED);
  ASSERT_THAT(reader.ReadAll(), SizeIs(1));
  EXPECT_TRUE(reader.ReadAll()[0].registered);
}

TEST(SeriesReader, ReadsReservedSeriesWithoutAnySlotTaken) {
  Buffers buffers(1, 64, 8);
  buffers.SetHead(
      NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, NM_TRANSPORT_ICMP, NM_PATH_DIRECT),
      0, NM_NAME_UNATTRIBUTED, 0, NM_KIND_UNATTRIBUTED, NM_TRANSPORT_ICMP);
  buffers.SetHead(
      NM_SLOT_RESERVED(NM_NAME_OVERFLOW, NM_TRANSPORT_TCP, NM_PATH_PROXY), 0,
      NM_NAME_OVERFLOW, 0, NM_KIND_OVERFLOW, NM_TRANSPORT_TCP, NM_PATH_PROXY);
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(samples[0].kind, Kind::kUnattributed);
  EXPECT_EQ(samples[0].name, "unattributed");
  EXPECT_EQ(samples[1].kind, Kind::kOverflow);
  EXPECT_EQ(samples[1].path, Path::kProxy);
}

TEST(SeriesReader, SumsTwoSlotsOfOneKey) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 2;
  for (const uint32_t slot : {21u, 22u}) {
    buffers.SetHead(slot, 0, 3, 0);
    buffers.Add(slot, 0, offsetof(nm_cell, tx_bytes), slot);
  }
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadService("mme");
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].tx_bytes, 43u);
}

// The uplink is a half of the byte `path`, and `info` has the names.
TEST(SeriesReader, UplinksAreSeriesOfTheirOwn) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.SetName(4, "satellite");
  buffers.info().uplinks[1] = 4;
  buffers.stats().slots_allocated = 4;
  const uint8_t uplinks[] = {NM_UPLINK_NONE, 2, NM_UPLINK_OTHER, 3};
  for (uint32_t i = 0; i < 4; ++i) {
    buffers.SetHead(
        21 + i, 0, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_TCP,
        static_cast<uint8_t>(NM_PATH_DIRECT | uplinks[i] << NM_UPLINK_SHIFT));
    buffers.Add(21 + i, 0, offsetof(nm_cell, tx_bytes), 1 + i);
  }
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples = reader.ReadService("mme");
  // The fourth series has a number that a load is about to name.
  ASSERT_THAT(samples, SizeIs(3));
  EXPECT_EQ(samples[0].uplink, "");
  EXPECT_EQ(samples[1].uplink, "satellite");
  EXPECT_EQ(samples[1].tx_bytes, 2u);
  EXPECT_EQ(samples[1].path, Path::kDirect);
  EXPECT_EQ(samples[2].uplink, "other");
  buffers.SetName(5, "lan");
  buffers.info().uplinks[2] = 5;
  samples = reader.ReadService("mme");
  ASSERT_THAT(samples, SizeIs(4));
  EXPECT_EQ(samples[3].uplink, "lan");
  EXPECT_EQ(samples[3].tx_bytes, 4u);
}

// The series of a slot was idle, and the slot has another series now.
TEST(SeriesReader, LearnsAnewWhenSlotsHaveChangedHands) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "old");
  buffers.SetName(4, "new");
  buffers.stats().slots_allocated = 2;
  buffers.SetHead(21, 0, 3, 0);
  buffers.Add(21, 0, offsetof(nm_cell, tx_bytes), 5);
  SeriesReader reader(buffers.view());
  EXPECT_THAT(reader.ReadService("old"), SizeIs(1));
  // Its total moves to another series, its slot becomes free, and then "new" gets the
  // slot.
  buffers.stats().moves = 2;
  buffers.stats().series_evicted = 1;
  buffers.stats().names_evicted = 3;
  buffers.SetHead(22, 0, NM_NAME_UNATTRIBUTED, NM_KIND_SERVICE,
                  NM_KIND_EVICTED);
  buffers.Add(22, 0, offsetof(nm_cell, tx_bytes), 5);
  buffers.SetHead(21, 0, 4, 0);
  *buffers.Word(21, 0, offsetof(nm_cell, tx_bytes)) = 1;
  EXPECT_THAT(reader.ReadService("old"), IsEmpty());
  EXPECT_THAT(reader.ReadService("new"), SizeIs(1));
  const std::vector<Sample> samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(samples[0].name, "new");
  EXPECT_EQ(samples[0].tx_bytes, 1u);
  EXPECT_EQ(samples[1].kind, Kind::kEvicted);
  EXPECT_EQ(samples[1].name, "service");
  EXPECT_EQ(samples[1].destination, "");
  EXPECT_EQ(samples[1].tx_bytes, 5u);
  EXPECT_EQ(reader.ReadHealth().evicted_series, 1u);
  EXPECT_EQ(reader.ReadHealth().evicted_names, 3u);
}

// The bug: a sweep left thousands of free slots, and each read checked all of them. A
// read of 16 series took 50 microseconds instead of one.
TEST(SeriesReader, LooksAtFreeSlotsWhenAHeadWasWritten) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.SetName(4, "late");
  buffers.stats().slots_allocated = 3;
  buffers.stats().heads = 1;
  buffers.SetHead(21, 0, 3, 0);
  SeriesReader reader(buffers.view());
  EXPECT_THAT(reader.ReadAll(), SizeIs(1));
  // The head is written before stats->heads.
  buffers.SetHead(22, 0, 4, 0);
  EXPECT_THAT(reader.ReadAll(), SizeIs(1));
  buffers.stats().heads = 2;
  EXPECT_THAT(reader.ReadService("late"), SizeIs(1));
  // A slot that an evicted series gave back is handed out again.
  buffers.SetHead(23, 0, 4, 0, NM_KIND_SERVICE, NM_TRANSPORT_UDP);
  buffers.stats().slots_allocated = 4;
  EXPECT_THAT(reader.ReadService("late"), SizeIs(2));
}

// The bug: if the last series was an empty pending one, each read copied its names and
// dropped them.
TEST(SeriesReader, AllocatesNothingForAnEmptyPendingSeries) {
  const std::string longer_than_a_string_holds(40, 'n');
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, longer_than_a_string_holds);
  buffers.SetName(4, longer_than_a_string_holds + "2");
  buffers.stats().slots_allocated = 2;
  buffers.SetHead(21, 0, 3, 0);
  buffers.SetHead(22, 0, 4, 0, NM_KIND_PENDING);
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples;
  reader.ReadAll(&samples);
  ASSERT_THAT(samples, SizeIs(1));
  FailNew fail(0);
  reader.ReadAll(&samples);
  EXPECT_FALSE(fail.Failed());
  EXPECT_THAT(samples, SizeIs(1));
}

// The memory does not belong to a meter: the number of a real one is odd only while a
// program runs.
TEST(SeriesReader, AMoveThatNeverEndsKeepsNobodyWaiting) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 0);
  buffers.Add(21, 0, offsetof(nm_cell, tx_bytes), 5);
  buffers.stats().moves = 7;
  SeriesReader reader(buffers.view());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Sample> samples = reader.ReadAll();
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].tx_bytes, 5u);
  EXPECT_GE(took, std::chrono::milliseconds(500));
  EXPECT_LT(took, std::chrono::seconds(20));  // on a busy machine
}

// One thread moves the counts of a slot to another slot and back, as the kernel part
// does. No read may see them twice, or not at all.
TEST(SeriesReader, SeesNoMoveHalf) {
  Buffers buffers(2, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 2;
  buffers.SetHead(21, 1, 3, 0);
  buffers.SetHead(22, 1, NM_NAME_UNATTRIBUTED, NM_KIND_SERVICE,
                  NM_KIND_EVICTED);
  buffers.Add(21, 0, offsetof(nm_cell, tx_bytes), 1000);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (uint32_t from = 21; !stop; from = 43 - from) {
      __atomic_fetch_add(&buffers.stats().moves, 1, __ATOMIC_SEQ_CST);
      buffers.Add(43 - from, 0, offsetof(nm_cell, tx_bytes), 1000);
      buffers.Add(from, 0, offsetof(nm_cell, tx_bytes), nm_u64{0} - 1000);
      __atomic_fetch_add(&buffers.stats().moves, 1, __ATOMIC_SEQ_CST);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples;
  for (int i = 0; i < 2000; ++i) {
    reader.ReadAll(&samples);
    uint64_t sum = 0;
    for (const Sample& sample : samples) sum += sample.tx_bytes;
    ASSERT_EQ(sum, 1000u);
  }
  stop = true;
  mover.join();
}

TEST(SeriesReader, ReadServiceHasServicesOnlyAndOneOnly) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.SetName(4, "other");
  buffers.stats().slots_allocated = 3;
  buffers.SetHead(21, 0, 3, 0, NM_KIND_BINARY);
  buffers.SetHead(22, 0, 3, 4, NM_KIND_SERVICE);
  buffers.SetHead(23, 0, 4, 3, NM_KIND_SERVICE);
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadService("mme");
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].kind, Kind::kService);
  EXPECT_EQ(samples[0].destination, "other");
  EXPECT_THAT(reader.ReadAll(), SizeIs(3));
}

TEST(SeriesReader, ReadsNamesOfAnyBytesUpToTheFullLength) {
  Buffers buffers(1, 64, 8);
  const std::string longest(NM_NAME_BYTES, '\xff');
  buffers.SetName(3, longest);
  buffers.SetName(7, "x");
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 7);
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].name, longest);
  EXPECT_EQ(samples[0].destination, "x");
}

// A name from the previous read is reused only if it is equal in every byte.
TEST(SeriesReader, TellsNamesApartThatDifferInOneByte) {
  for (size_t size = 1; size <= NM_NAME_BYTES; ++size) {
    for (size_t at = 0; at < size; ++at) {
      Buffers buffers(1, 64, 8);
      std::string name(size, 'a');
      buffers.SetName(3, name);
      buffers.stats().slots_allocated = 1;
      buffers.SetHead(21, 0, 3, 0);
      std::vector<Sample> samples(1);
      name[at] = 'b';
      samples[0].name = name;
      samples[0].destination = name;
      SeriesReader(buffers.view()).ReadAll(&samples);
      ASSERT_THAT(samples, SizeIs(1));
      ASSERT_EQ(samples[0].name, std::string(size, 'a'));
      ASSERT_EQ(samples[0].destination, "");
    }
  }
}

TEST(SeriesReader, SkipsCellsThatMakeNoSense) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.name(4).length = NM_NAME_BYTES + 1;
  buffers.name(5).length = 3;  // NUL within
  buffers.stats().slots_allocated = 9;
  buffers.SetHead(21, 0, 8, 0);                       // past the names
  buffers.SetHead(22, 0, 65535, 0);                   // far past the names
  buffers.SetHead(23, 0, 3, 8);                       // destination past them
  buffers.SetHead(24, 0, 4, 0);                       // name too long
  buffers.SetHead(25, 0, 5, 0);                       // name with a NUL
  buffers.SetHead(26, 0, 6, 0);                       // name not in use
  buffers.SetHead(27, 0, 3, 0, NM_KIND_NONE);         // no kind
  buffers.SetHead(28, 0, 3, 0, NM_KIND_DESTINATION);  // not of a series
  buffers.SetHead(29, 0, 3, 0, NM_KIND_WIRE);         // not of a series
  SeriesReader reader(buffers.view());
  EXPECT_THAT(reader.ReadAll(), IsEmpty());
  // The missing name is there now.
  buffers.SetName(6, "late");
  EXPECT_THAT(reader.ReadService("late"), SizeIs(1));
}

// The bug: a series of a kind that only a newer meter has was in no read, so sums were
// too small.
TEST(SeriesReader, SeriesOfANewerMeterAreInTheSum) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 4;
  buffers.SetHead(21, 0, 3, 0, NM_KIND_USER + 1);
  buffers.SetHead(22, 0, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_COUNT);
  buffers.SetHead(23, 0, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_TCP,
                  NM_PATH_COUNT);
  buffers.SetHead(24, 0, 3, NM_KIND_USER + 1, NM_KIND_EVICTED);
  SeriesReader reader(buffers.view());
  const std::vector<Sample> samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(4));
  EXPECT_STREQ(KindName(samples[0].kind), "unknown");
  EXPECT_EQ(samples[0].name, "mme");
  EXPECT_STREQ(TransportName(samples[1].transport), "unknown");
  EXPECT_STREQ(PathName(samples[2].path), "unknown");
  EXPECT_EQ(samples[3].kind, Kind::kEvicted);
  EXPECT_EQ(samples[3].name, "unknown");
}

TEST(SeriesReader, StaysInBoundsWhateverSlotsTakenSays) {
  for (const nm_u64 taken :
       {nm_u64{43}, nm_u64{44}, nm_u64{1000000}, ~nm_u64{0}, ~nm_u64{0} - 20}) {
    Buffers buffers(2, 64, 8);
    buffers.SetName(3, "mme");
    buffers.SetHead(63, 1, 3, 0);
    buffers.stats().slots_allocated = taken;
    SeriesReader reader(buffers.view());
    EXPECT_THAT(reader.ReadAll(), SizeIs(1)) << taken;
  }
}

TEST(SeriesReader, SurvivesGarbage) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Buffers buffers(2, 64, 300);
    for (nm_u64& word : buffers.words()) word = random();
    for (nm_name& name : buffers.names()) {
      nm_u64 bytes[sizeof(nm_name) / 8];
      for (nm_u64& word : bytes) word = random();
      memcpy(&name, bytes, sizeof(name));
      if (round % 2) name.length %= NM_NAME_BYTES + 2;
    }
    // Some heads are nearly valid.
    for (uint32_t slot = 0; slot < 64; slot += 2) {
      buffers.SetHead(slot, 0, random() % 400, random() % 400, random() % 6,
                      random() % 7, random() % 3);
    }
    buffers.stats().slots_allocated = random();
    SeriesReader reader(buffers.view());
    for (const Sample& sample : reader.ReadAll()) {
      EXPECT_LE(sample.name.size(), size_t{NM_NAME_BYTES});
      EXPECT_LE(sample.destination.size(), size_t{NM_NAME_BYTES});
      reader.ReadService(sample.name);
    }
  }
}

// The bug: pending bytes of another user's program with the name of a service were
// published as the service's. They disappeared if registered services were left out.
TEST(SeriesReader, PendingBytesAreThoseOfTheirOwner) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "sessiond");
  buffers.name(3).kind = NM_KIND_SERVICE;
  buffers.SetName(4, "sessiond");
  buffers.name(4).kind = NM_KIND_BINARY;
  buffers.stats().slots_allocated = 3;
  buffers.SetHead(21, 0, 4, 0, NM_KIND_PENDING);
  buffers.SetHead(22, 0, 3, 0, NM_KIND_PENDING);
  buffers.SetHead(23, 0, 3, 0);
  for (const uint32_t slot : {21u, 22u, 23u}) {
    buffers.Add(slot, 0, offsetof(nm_cell, tx_packets), slot);
  }
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples = reader.ReadService("sessiond");
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(samples[0].kind, Kind::kPending);
  EXPECT_EQ(samples[0].tx_packets, 22u);
  // One key is still one sample.
  samples = reader.ReadAll();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(samples[0].tx_packets, 43u);
  const auto registered = [&] {
    std::string text;
    reader.ReadAllByOwner(&samples);
    for (const Sample& sample : samples) {
      text += std::to_string(sample.tx_packets) +
              (sample.registered ? " registered, " : ", ");
    }
    return text;
  };
  EXPECT_EQ(registered(), "21, 22, 23, ");
  // The service's pending traffic may be older than its registration.
  buffers.SetHead(23, 0, 3, 0, NM_KIND_SERVICE, NM_TRANSPORT_TCP,
                  NM_PATH_DIRECT, NM_FLAG_REGISTERED);
  EXPECT_EQ(registered(), "21, 22 registered, 23 registered, ");
  // All bytes of the other user's program have moved.
  buffers.Add(21, 0, offsetof(nm_cell, tx_packets), nm_u64{0} - 21);
  EXPECT_EQ(registered(), "22 registered, 23 registered, ");
  EXPECT_THAT(reader.ReadAll(), SizeIs(2));
}

// A vector is reused, whatever an earlier read wrote into it.
TEST(SeriesReader, NothingOfAnEarlierReadRemains) {
  Buffers buffers(2, 64, 8);
  buffers.SetName(3, "mme");
  buffers.SetName(4, "a_destination_of_some_length");
  buffers.stats().slots_allocated = 3;
  buffers.SetHead(21, 0, 3, 4, NM_KIND_SERVICE, NM_TRANSPORT_TCP, NM_PATH_PROXY,
                  NM_FLAG_REGISTERED);
  for (size_t word = 1; word < Buffers::kWords; ++word) {
    buffers.Add(21, 0, word * sizeof(nm_u64), word);
  }
  buffers.tcp(21).opened = 7;
  buffers.tcp(21).rtt_buckets[9] = 8;
  buffers.SetHead(22, 1, 3, 0, NM_KIND_BINARY, NM_TRANSPORT_UDP);
  buffers.SetHead(23, 1, 3, 0, NM_KIND_PENDING);
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples;
  reader.ReadService("mme", &samples);
  ASSERT_THAT(samples, SizeIs(1));  // without the empty pending series
  EXPECT_EQ(samples[0].tcp.opened, 7u);

  // The first element now takes another series.
  Buffers other(2, 64, 8);
  other.SetName(3, "sh");
  other.stats().slots_allocated = 1;
  other.SetHead(21, 0, 3, 0, NM_KIND_BINARY, NM_TRANSPORT_UDP);
  SeriesReader(other.view()).ReadAll(&samples);
  ASSERT_THAT(samples, SizeIs(1));
  const Sample& sample = samples[0];
  EXPECT_EQ(sample.kind, Kind::kBinary);
  EXPECT_EQ(sample.name, "sh");
  EXPECT_EQ(sample.destination, "");
  EXPECT_EQ(sample.transport, Transport::kUdp);
  EXPECT_EQ(sample.path, Path::kDirect);
  EXPECT_FALSE(sample.registered);
  EXPECT_EQ(sample.tx_bytes + sample.rx_bytes + sample.tx_packets +
                sample.rx_packets + sample.tx_payload_bytes +
                sample.rx_payload_bytes + sample.tx_retransmit_bytes,
            0u);
  EXPECT_FALSE(sample.tcp.known);
  EXPECT_EQ(sample.tcp.opened + sample.tcp.accepted + sample.tcp.closed +
                sample.tcp.failed + sample.tcp.rtt_us + sample.tcp.resets_sent +
                sample.tcp.resets_received + sample.tcp.timeouts +
                sample.tcp.retransmitted_segments,
            0u);
  for (const uint64_t bucket : sample.tcp.rtt_buckets) EXPECT_EQ(bucket, 0u);

  reader.ReadService("unknown", &samples);
  EXPECT_THAT(samples, IsEmpty());
}

TEST(SeriesReader, ReadsHealth) {
  Buffers buffers(1, 64, 8);
  memset(buffers.info().version, 'v', sizeof(buffers.info().version));
  strcpy(buffers.info().cgroup, "/sys/fs/cgroup");
  strcpy(buffers.info().kernel, "6.1.0-18-amd64");
  buffers.info().abi_major = 1;
  buffers.info().abi_minor = 2;
  buffers.info().created_ns = 1;
  buffers.info().loaded_ns = 2;
  buffers.stats().series_used = 3;
  buffers.stats().names_used = nm_u64{1} << 40;
  buffers.stats().series_full = 4;
  buffers.stats().names_full = 5;
  buffers.stats().names_over_quota = 17;
  buffers.stats().series_over_quota = 18;
  buffers.stats().processes_full = 6;
  buffers.stats().storage_failed_packets = 5;
  buffers.stats().storage_failed_sockets = 2;
  buffers.stats().header_errors = 8;
  const Health health = SeriesReader(buffers.view()).ReadHealth();
  EXPECT_EQ(health.version, std::string(NM_VERSION_BYTES, 'v'));
  EXPECT_EQ(health.abi, "1.2");
  EXPECT_EQ(health.kernel, "6.1.0-18-amd64");
  EXPECT_EQ(health.cgroup, "/sys/fs/cgroup");
  EXPECT_EQ(health.start_time_ns, 1u);
  EXPECT_EQ(health.load_time_ns, 2u);
  EXPECT_EQ(health.series, 3u);
  EXPECT_EQ(health.max_series, 64u);
  EXPECT_EQ(health.names, 0xffffffffu);
  EXPECT_EQ(health.max_names, 8u);
  EXPECT_EQ(Misattributed(health, "packets", "series_full"), 4u);
  EXPECT_EQ(Misattributed(health, "names", "full"), 5u);
  EXPECT_EQ(Misattributed(health, "names", "over_quota"), 17u);
  EXPECT_EQ(Misattributed(health, "packets", "series_over_quota"), 18u);
  EXPECT_EQ(Misattributed(health, "processes", "full"), 6u);
  EXPECT_EQ(Misattributed(health, "packets", "storage_failed"), 5u);
  EXPECT_EQ(Misattributed(health, "sockets", "storage_failed"), 2u);
  EXPECT_EQ(Misattributed(health, "packets", "header_errors"), 8u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
