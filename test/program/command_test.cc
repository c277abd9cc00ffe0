// SPDX-License-Identifier: BSD-3-Clause
// nm_command, the loader's way to write frozen maps.
#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "test/program/fixture.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint32_t kRefused = UINT32_MAX;

nm_name_key Key(nm_kind kind, const std::string& name) {
  nm_name_key key = {};
  key.kind = static_cast<uint8_t>(kind);
  key.length = static_cast<uint16_t>(std::min(name.size(), sizeof(key.bytes)));
  std::memcpy(key.bytes, name.data(), key.length);
  return key;
}

nm_info SomeInfo() {
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.max_series = 64;
  std::memset(info.reserved, 0x5a, sizeof(info.reserved));
  return info;
}

class Commands : public testing::Test {
 protected:
  void Load(const ProgramOptions& options = ProgramOptions()) {
    programs_ = LoadOrFail(options);
    ASSERT_NE(programs_, nullptr);
  }

  uint32_t Do(uint16_t code, const void* payload, size_t size) {
    const RunResult result = programs_->Command(code, payload, size);
    EXPECT_EQ(result.error, 0);
    return result.retval;
  }
  uint32_t Name(nm_kind kind, const std::string& name, uint32_t user = 0) {
    const nm_new_name asked = {Key(kind, name), user};
    return Do(NM_COMMAND_NAME, &asked, sizeof(asked));
  }
  nm_name ReadName(uint32_t id) {
    nm_name name = {};
    EXPECT_EQ(bpf_map__lookup_elem(programs_->skeleton()->maps.nm_names, &id,
                                   sizeof(id), &name, sizeof(name), 0),
              0);
    return name;
  }

  std::unique_ptr<Programs> programs_;
};

TEST_F(Commands, NameHasOneIdHoweverOftenItIsAskedFor) {
  Load();
  const uint32_t metricsd = Name(NM_KIND_DESTINATION, "metricsd");
  const uint32_t streamer = Name(NM_KIND_DESTINATION, "streamer");
  EXPECT_GE(metricsd, static_cast<uint32_t>(NM_NAME_FIRST));
  EXPECT_NE(metricsd, streamer);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Name(NM_KIND_DESTINATION, "metricsd"), metricsd);
    EXPECT_EQ(Name(NM_KIND_DESTINATION, "streamer"), streamer);
  }
  EXPECT_EQ(programs_->ReadStats().names_used, 2u);
}

TEST_F(Commands, NameIsWrittenAsGiven) {
  Load();
  const std::string longest(NM_NAME_BYTES, 'n');
  for (const std::string& text :
       {std::string("a"), std::string("two words"), longest}) {
    const nm_name name = ReadName(Name(NM_KIND_SERVICE, text));
    EXPECT_EQ(name.length, text.size());
    EXPECT_EQ(name.kind, NM_KIND_SERVICE);
    EXPECT_EQ(name.encoding, NM_ENCODING_RAW);
    EXPECT_EQ(
        std::string(reinterpret_cast<const char*>(name.bytes), name.length),
        text);
  }
}

TEST_F(Commands, SameBytesOfAnotherKindAreAnotherName) {
  Load();
  const std::set<uint32_t> ids = {Name(NM_KIND_SERVICE, "mme"),
                                  Name(NM_KIND_BINARY, "mme"),
                                  Name(NM_KIND_DESTINATION, "mme")};
  EXPECT_EQ(ids.size(), 3u);
}

TEST_F(Commands, FullTableReturnsZeroAndKeepsWhatItHas) {
  ProgramOptions options;
  options.max_names = NM_NAME_FIRST + 2;
  Load(options);
  const uint32_t first = Name(NM_KIND_SERVICE, "first");
  const uint32_t second = Name(NM_KIND_SERVICE, "second");
  EXPECT_EQ((std::set<uint32_t>{first, second}),
            (std::set<uint32_t>{NM_NAME_FIRST, NM_NAME_FIRST + 1}));
  EXPECT_EQ(Name(NM_KIND_SERVICE, "third"), 0u);
  EXPECT_EQ(Name(NM_KIND_SERVICE, "third"), 0u);
  EXPECT_EQ(Name(NM_KIND_SERVICE, "first"), first);
  EXPECT_EQ(Name(NM_KIND_SERVICE, "second"), second);
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.names_used, 2u);
  EXPECT_EQ(stats.names_full, 2u);
}

// The loader fills the queues this way, and may be killed at any instant: an id that was
// in its queue twice would be handed out twice.
TEST_F(Commands, EachIdGoesIntoItsQueueOnce) {
  Load();
  const ProgramOptions sizes;
  const struct {
    uint32_t names, end;
    bpf_map* queue;
  } queues[] = {
      {0, sizes.max_series, programs_->skeleton()->maps.nm_free_slots},
      {1, sizes.max_names, programs_->skeleton()->maps.nm_free_names}};
  for (const auto& one : queues) {
    const int fd = bpf_map__fd(one.queue);
    uint32_t id = 0;
    while (bpf_map_lookup_and_delete_elem(fd, nullptr, &id) == 0) {
    }
    EXPECT_EQ(id, one.end - 1);
    nm_free range = {one.names, one.end};
    EXPECT_EQ(
        programs_->Command(NM_COMMAND_FREE, &range, sizeof(range), 3).retval,
        0u);
    EXPECT_NE(bpf_map_lookup_and_delete_elem(fd, nullptr, &id), 0);
    range.end += 3;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(
          programs_->Command(NM_COMMAND_FREE, &range, sizeof(range), 5).retval,
          0u);
    }
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(bpf_map_lookup_and_delete_elem(fd, nullptr, &id), 0);
      EXPECT_EQ(id, one.end + i);
    }
    EXPECT_NE(bpf_map_lookup_and_delete_elem(fd, nullptr, &id), 0);
    // What has no room in the queue is refused, and so said.
    range.end = UINT16_MAX;
    EXPECT_EQ(
        programs_->Command(NM_COMMAND_FREE, &range, sizeof(range), 5000).retval,
        kRefused);
    EXPECT_EQ(Do(NM_COMMAND_FREE, &range, sizeof(range) - 1), kRefused);
  }
}

TEST_F(Commands, InfoIsReplacedButForEvicted) {
  Load();
  nm_info info = SomeInfo();
  EXPECT_EQ(Do(NM_COMMAND_INFO, &info, sizeof(info)), 0u);
  nm_info read = programs_->ReadInfo();
  EXPECT_EQ(std::memcmp(&read, &info, sizeof(info)), 0);

  EXPECT_EQ(Do(NM_COMMAND_CLOSE, nullptr, 0), 0u);
  EXPECT_EQ(programs_->ReadInfo().closed, 1u);
  EXPECT_EQ(Do(NM_COMMAND_CLOSE, nullptr, 0), 0u);

  info.max_series = 128;
  EXPECT_EQ(Do(NM_COMMAND_INFO, &info, sizeof(info)), 0u);
  EXPECT_EQ(programs_->ReadInfo().max_series, 128u);
  EXPECT_EQ(programs_->ReadInfo().closed, 1u);
}

TEST_F(Commands, WorksOnMapsThatAreFrozen) {
  Load();
  auto& maps = programs_->skeleton()->maps;
  for (bpf_map* map :
       {maps.nm_info, maps.nm_names, maps.nm_stats, maps.nm_counters}) {
    ASSERT_EQ(bpf_map_freeze(bpf_map__fd(map)), 0);
  }
  const nm_info info = SomeInfo();
  const uint32_t zero = 0;
  EXPECT_EQ(bpf_map__update_elem(maps.nm_info, &zero, sizeof(zero), &info,
                                 sizeof(info), BPF_ANY),
            -EPERM);
  EXPECT_EQ(Do(NM_COMMAND_INFO, &info, sizeof(info)), 0u);
  EXPECT_EQ(programs_->ReadInfo().magic, info.magic);
  EXPECT_NE(Name(NM_KIND_SERVICE, "frozen"), 0u);
  programs_->Run(Direction::kEgress, Packet::Ipv4().Udp(1, 2).Payload(1));
  EXPECT_EQ(programs_->ReadCounters().size(), 1u);
}

// The bug: what a load found was named for root, whoever had it.
TEST_F(Commands, NamesCountInTheShareOfTheirUser) {
  Load();
  const uint32_t id = Name(NM_KIND_BINARY, "his", 7);
  ASSERT_NE(id, 0u);
  EXPECT_EQ(ReadName(id).user, 7u);
  EXPECT_EQ(Name(NM_KIND_BINARY, "his"), id);
  const uint32_t bucket = 6;
  nm_user user = {};
  EXPECT_EQ(bpf_map__lookup_elem(programs_->skeleton()->maps.nm_users, &bucket,
                                 sizeof(bucket), &user, sizeof(user), 0),
            0);
  EXPECT_EQ(user.names, 1u);
}

TEST_F(Commands, UnknownAndShortCommandsAreRefused) {
  Load();
  const nm_info info = SomeInfo();
  const nm_new_name asked = {Key(NM_KIND_SERVICE, "short"), 0};
  EXPECT_EQ(Do(0, nullptr, 0), kRefused);
  EXPECT_EQ(Do(NM_COMMAND_FORGET + 1, &info, sizeof(info)), kRefused);
  EXPECT_EQ(Do(UINT16_MAX, &info, sizeof(info)), kRefused);
  EXPECT_EQ(Do(NM_COMMAND_NAME, nullptr, 0), kRefused);
  EXPECT_EQ(Do(NM_COMMAND_NAME, &asked, sizeof(asked) - 1), kRefused);
  EXPECT_EQ(programs_->ReadStats().names_used, 0u);

  // Shorter than the command's own header.
  uint8_t bytes[sizeof(nm_command) - 1] = {};
  bytes[offsetof(nm_command, code)] = NM_COMMAND_CLOSE;
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = bytes;
  run.data_size_in = sizeof(bytes);
  ASSERT_EQ(bpf_prog_test_run_opts(
                bpf_program__fd(programs_->skeleton()->progs.nm_command), &run),
            0);
  EXPECT_EQ(run.retval, kRefused);
  EXPECT_EQ(programs_->ReadInfo().closed, 0u);
}

// bpf_skb_load_bytes() clears its buffer if it fails, and the buffer is the map that
// every reader has open.
TEST_F(Commands, ShortInfoLeavesInfoAsItWas) {
  Load();
  const nm_info info = SomeInfo();
  ASSERT_EQ(Do(NM_COMMAND_INFO, &info, sizeof(info)), 0u);
  ASSERT_EQ(Do(NM_COMMAND_CLOSE, nullptr, 0), 0u);
  EXPECT_EQ(Do(NM_COMMAND_INFO, &info, sizeof(info) - 1), kRefused);
  EXPECT_EQ(Do(NM_COMMAND_INFO, nullptr, 0), kRefused);
  EXPECT_EQ(programs_->ReadInfo().magic, NM_MAGIC);
  EXPECT_EQ(programs_->ReadInfo().closed, 1u);
}

// --- Slots and names that are taken back -------------------------------------

class Idle : public Commands {
 protected:
  static constexpr uint32_t kSlot = NM_SLOT_FIRST;

  template <typename Value>
  void Write(bpf_map* map, uint32_t index, const Value& value) {
    ASSERT_EQ(bpf_map__update_elem(map, &index, sizeof(index), &value,
                                   sizeof(value), BPF_ANY),
              0);
  }
  template <typename Value>
  Value Read(bpf_map* map, uint32_t index) {
    Value value = {};
    EXPECT_EQ(bpf_map__lookup_elem(map, &index, sizeof(index), &value,
                                   sizeof(value), 0),
              0);
    return value;
  }

  // A slot with something in each of its cells, and in its connections.
  void FillSlot(uint32_t slot, uint8_t kind, uint64_t amount) {
    const uint32_t cells = programs_->cells_per_series();
    for (uint32_t i = 0; i < cells; ++i) {
      nm_cell cell = {};
      cell.service = static_cast<nm_u16>(slot);
      cell.kind = kind;
      cell.transport = NM_TRANSPORT_TCP;
      cell.tx_bytes = amount;
      cell.tx_retransmit_bytes = 2 * amount;
      Write(programs_->skeleton()->maps.nm_counters, slot * cells + i, cell);
    }
    nm_tcp tcp = {};
    tcp.kind = kind;
    tcp.opened = amount;
    tcp.rtt_buckets[NM_RTT_BUCKETS - 1] = amount;
    Write(programs_->skeleton()->maps.nm_tcp, slot, tcp);
  }
  nm_cell Sum(uint32_t slot) {
    nm_cell sum = {};
    const uint32_t cells = programs_->cells_per_series();
    for (uint32_t i = 0; i < cells; ++i) {
      const nm_cell cell = Read<nm_cell>(
          programs_->skeleton()->maps.nm_counters, slot * cells + i);
      sum.service = cell.service;
      sum.destination = cell.destination;
      sum.kind = cell.kind;
      sum.tx_bytes += cell.tx_bytes;
      sum.tx_retransmit_bytes += cell.tx_retransmit_bytes;
    }
    return sum;
  }
  uint32_t Fold(const std::vector<nm_idle>& idle) {
    return programs_
        ->Command(NM_COMMAND_FOLD, idle.data(), idle.size() * sizeof(nm_idle),
                  static_cast<uint32_t>(idle.size()))
        .retval;
  }
  std::vector<uint32_t> Queue(bpf_map* queue) {
    std::vector<uint32_t> ids;
    uint32_t id = 0;
    while (bpf_map_lookup_and_delete_elem(bpf_map__fd(queue), nullptr, &id) ==
           0) {
      ids.push_back(id);
    }
    return ids;
  }
};

TEST_F(Idle, SlotsOfOneKindAreFoldedIntoOneSeries) {
  Load();
  auto& maps = programs_->skeleton()->maps;
  Queue(maps.nm_free_slots);
  const uint32_t cells = programs_->cells_per_series();
  FillSlot(kSlot, NM_KIND_SERVICE, 1);
  FillSlot(kSlot + 1, NM_KIND_SERVICE, 10);
  FillSlot(kSlot + 2, NM_KIND_BINARY, 100);
  FillSlot(kSlot + 3, NM_KIND_SERVICE, 1000);
  nm_stats stats = programs_->ReadStats();
  stats.series_used = 4;
  Write(maps.nm_stats, 0, stats);
  nm_user user = {};
  user.series = 1;
  Write(maps.nm_users, 4, user);
  EXPECT_EQ(Fold({{kSlot, 0}, {kSlot + 1, 5}, {kSlot + 2, 0}, {kSlot + 3, 5}}),
            0u);
  // The first of a kind is the series itself.
  nm_cell sum = Sum(kSlot);
  EXPECT_EQ(sum.kind, NM_KIND_EVICTED);
  EXPECT_EQ(sum.destination, NM_KIND_SERVICE);
  EXPECT_EQ(sum.tx_bytes, cells * 1011u);
  EXPECT_EQ(sum.tx_retransmit_bytes, cells * 2022u);
  const nm_tcp tcp = Read<nm_tcp>(maps.nm_tcp, kSlot);
  EXPECT_EQ(tcp.kind, NM_KIND_EVICTED);
  EXPECT_EQ(tcp.opened, 1011u);
  EXPECT_EQ(tcp.rtt_buckets[NM_RTT_BUCKETS - 1], 1011u);
  sum = Sum(kSlot + 2);
  EXPECT_EQ(sum.kind, NM_KIND_EVICTED);
  EXPECT_EQ(sum.destination, NM_KIND_BINARY);
  EXPECT_EQ(sum.tx_bytes, cells * 100u);
  // The others are as if they had never been used.
  for (const uint32_t slot : {kSlot + 1, kSlot + 3}) {
    const nm_cell nothing = Sum(slot);
    EXPECT_EQ(nothing.service, 0);
    EXPECT_EQ(nothing.tx_bytes, 0u);
    EXPECT_EQ(Read<nm_tcp>(maps.nm_tcp, slot).opened, 0u);
  }
  EXPECT_EQ(Queue(maps.nm_free_slots),
            (std::vector<uint32_t>{kSlot + 1, kSlot + 3}));
  stats = programs_->ReadStats();
  EXPECT_EQ(stats.moves, 8u);
  EXPECT_EQ(stats.series_evicted, 4u);
  EXPECT_EQ(stats.series_used, 2u);
  // The user had one, as far as its account shows.
  EXPECT_EQ(Read<nm_user>(maps.nm_users, 4).series, 0u);
}

// It was evicted as a service's, whatever its name was of.
TEST_F(Idle, APendingSeriesIsEvictedUnderTheKindOfItsName) {
  Load();
  auto& maps = programs_->skeleton()->maps;
  uint32_t slot = kSlot;
  for (const nm_kind kind :
       {NM_KIND_SERVICE, NM_KIND_BINARY, NM_KIND_UNIT, NM_KIND_CONTAINER}) {
    const uint32_t id = Name(kind, "named");
    FillSlot(slot, NM_KIND_PENDING, 1);
    for (uint32_t i = 0; i < programs_->cells_per_series(); ++i) {
      const uint32_t index = slot * programs_->cells_per_series() + i;
      nm_cell cell = Read<nm_cell>(maps.nm_counters, index);
      cell.service = static_cast<nm_u16>(id);
      Write(maps.nm_counters, index, cell);
    }
    ASSERT_EQ(Fold({{static_cast<nm_u16>(slot), 0}}), 0u);
    EXPECT_EQ(Sum(slot).kind, NM_KIND_EVICTED);
    EXPECT_EQ(Sum(slot).destination, kind);
    ++slot;
  }
}

TEST_F(Idle, WhatIsNoSeriesOfAnybodyIsNotFolded) {
  Load();
  FillSlot(kSlot, NM_KIND_SERVICE, 1);
  FillSlot(NM_SLOT_FIRST - 1, NM_KIND_OVERFLOW, 1);
  EXPECT_EQ(Fold({{kSlot, 0}}), 0u);
  for (const uint32_t slot :
       {0u, NM_SLOT_FIRST - 1u, kSlot, kSlot + 1, 65535u}) {
    EXPECT_EQ(Fold({{static_cast<nm_u16>(slot), 0}}), kRefused) << slot;
  }
  EXPECT_EQ(programs_->ReadStats().moves, 2u);
  EXPECT_EQ(Do(NM_COMMAND_FOLD, nullptr, 0), kRefused);
}

TEST_F(Idle, ForgottenNamesGiveTheirIdsBack) {
  Load();
  auto& maps = programs_->skeleton()->maps;
  const uint32_t first = Name(NM_KIND_SERVICE, "first");
  const uint32_t second = Name(NM_KIND_SERVICE, "second");
  Queue(maps.nm_free_names);
  Write(maps.nm_wire_names, first, uint32_t{7});
  const nm_name_key key = Key(NM_KIND_SERVICE, "first");
  ASSERT_EQ(bpf_map__delete_elem(maps.nm_name_ids, &key, sizeof(key), 0), 0);
  const nm_idle idle = {static_cast<nm_u16>(first), 0};
  EXPECT_EQ(Do(NM_COMMAND_FORGET, &idle, sizeof(idle)), 0u);
  EXPECT_EQ(Do(NM_COMMAND_FORGET, &idle, sizeof(idle)), kRefused);
  EXPECT_EQ(ReadName(first).length, 0);
  EXPECT_EQ(Read<uint32_t>(maps.nm_wire_names, first), 0u);
  nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.moves, 2u);
  EXPECT_EQ(stats.names_evicted, 1u);
  EXPECT_EQ(stats.names_used, 1u);
  // The next name has the id.
  EXPECT_EQ(Name(NM_KIND_SERVICE, "third"), first);
  EXPECT_EQ(Name(NM_KIND_SERVICE, "second"), second);
  const nm_idle reserved = {NM_NAME_OVERFLOW, 0};
  EXPECT_EQ(Do(NM_COMMAND_FORGET, &reserved, sizeof(reserved)), kRefused);
}

TEST_F(Idle, ASweepIsSaidToPrograms) {
  Load();
  for (const uint32_t sweeping : {1u, 0u}) {
    EXPECT_EQ(Do(NM_COMMAND_SWEEP, &sweeping, sizeof(sweeping)), 0u);
    EXPECT_EQ(programs_->ReadStats().sweeping, sweeping);
    // Keys are found all the same.
    EXPECT_EQ(Name(NM_KIND_SERVICE, "a"), Name(NM_KIND_SERVICE, "a"));
    programs_->Run(Direction::kEgress, Packet::Ipv4().Udp(1, 2).Payload(1));
  }
  EXPECT_EQ(Do(NM_COMMAND_SWEEP, nullptr, 0), kRefused);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
