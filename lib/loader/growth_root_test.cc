// SPDX-License-Identifier: BSD-3-Clause
// Larger tables under traffic: no byte is lost and no name is refused for good,
// wherever a growth is killed.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/growth.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/step.h"
#include "lib/loader/unload.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(LoaderRootTest, TablesGrowWithoutLosingAByte) {
  config_.max_series = 22;  // one slot that is not reserved
  config_.max_names = 5;
  MustLoad();
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  options.wait_for_loader = true;
  auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  SendFromCgroup(100);
  EXPECT_EQ(InChild([&] {
              std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
              UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
              for (const char* name : {"a", "b"}) {
                setsockopt(fd.get(), NM_SOL, NM_TAG, name, 1);
              }
              return 0;
            }),
            0);
  EXPECT_THAT(MustStatus().text,
              HasSubstr("refused, or counted as overflow: raise "
                        "max_names\n"));
  config_.max_series = 100;
  config_.max_names = 200;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_THAT(MustStatus().text,
              HasSubstr("refused, or counted as overflow: earlier, now "
                        "there is room\n"));
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(1);
  EXPECT_EQ(PayloadSent(), 101u);
  sleep(2);  // who waits for the loader looks once a second
  auto health = (*reader)->ReadHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->max_series, 100u);
  // Smaller tables are not made: what is loaded stays.
  config_.max_series = 50;
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("stays 100"));
  EXPECT_EQ(PayloadSent(), 101u);
}

// Nor does what readers hold open keep the tables from growing, or a byte from being
// counted: a member of the group keeps each descriptor and each mapping that he gets,
// stands in the directory, and goes on so to the end.
TEST_F(LoaderRootTest, WhatIsHeldOpenKeepsNoTableFromGrowing) {
  config_.max_series = 64;
  config_.max_names = 64;
  MustLoad();
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  std::vector<pid_t> holders;
  // By root's descriptors, as serve-fds gives them where he may not open pins.
  const auto hold = [&] {
    holders.push_back(fork());
    if (holders.back() == 0) {
      alarm(120);
      bool held = true;
      for (const MapPin& map : MapPins()) {
        if (!map.shared()) continue;
        const int fd = bpf_obj_get(Pin(map.pin).c_str());
        held &= fd >= 0 &&
                mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
      }
      held &= BecomeUser(kGid) && chdir(config_.pin_dir.c_str()) == 0 &&
              open(".", O_RDONLY | O_DIRECTORY) >= 0;
      if (write(ready[1], held ? "y" : "n", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char held = 0;
    ASSERT_EQ(read(ready[0], &held, 1), 1);
    ASSERT_EQ(held, 'y');
  };
  uint64_t sent = 0;
  for (uint32_t growth = 1; growth <= 4; growth++) {
    SCOPED_TRACE(growth);
    hold();
    SendFromCgroup(100 + growth);
    sent += 100 + growth;
    config_.max_series = 64 * (growth + 1);
    if (growth % 2 == 0) config_.max_names = 64 * (growth + 1);
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_EQ(PayloadSent(), sent);
    SendFromCgroup(growth);
    sent += growth;
    EXPECT_EQ(PayloadSent(), sent);
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  }
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  for (const pid_t holder : holders) {
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
  }
  for (int fd : ready) close(fd);
}

// While the new tables took over, for some 30 ms, the kernel refused names that
// it did not know: a service that started then did not get its name. And
// whoever opened the meter between two renames found counters and sizes of two
// meters.
TEST_F(LoaderRootTest, ServicesThatStartWhileTablesGrowGetTheirNames) {
  config_.max_names = 30000;  // a longer window
  MustLoad();
  struct Result {
    int stop, opened, longest_ms;
    char error[200];
  };
  auto* result =
      static_cast<Result*>(mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(result, MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    while (!__atomic_load_n(&result->stop, __ATOMIC_RELAXED)) {
      MeterOptions options;
      options.pin_dir = config_.pin_dir;
      options.service = absl::StrCat("service-", result->opened);
      const auto begin = std::chrono::steady_clock::now();
      const auto meter = Meter::Open(options);
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begin);
      result->longest_ms =
          std::max(result->longest_ms, static_cast<int>(took.count()));
      if (!meter.ok()) {
        snprintf(result->error, sizeof(result->error), "%s",
                 meter.status().ToString().c_str());
        _exit(1);
      }
      result->opened++;
      usleep(1000);
    }
    _exit(0);
  }
  for (int i = 0; i < 8; ++i) {
    config_.max_series += 64;
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
  }
  __atomic_store_n(&result->stop, 1, __ATOMIC_RELAXED);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << result->error;
  EXPECT_GT(result->opened, 100);
  printf("%d services in 8 growths; the longest start took %d ms\n",
         result->opened, result->longest_ms);
  munmap(result, sizeof(Result));
}

TEST_F(LoaderRootTest, AKilledGrowthIsFinishedByTheNextLoad) {
  config_.max_series = 1000;
  config_.max_names = 1000;
  MustLoad();
  SendFromCgroup(1000);
  uint64_t expected = 1000;
  int killed = 0;
  for (int i = 0; i < 30; i++) {
    config_.max_series += 100;
    config_.max_names += 10;
    const pid_t child = fork();
    if (child == 0) _exit(Load(config_).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(1000 + 5000 * i));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    SendFromCgroup(1);
    expected++;
    if (i % 3 == 2) {
      MustLoad();
      EXPECT_EQ(PayloadSent(), expected) << "after kill " << i;
    }
  }
  EXPECT_GT(killed, 10);
  MustLoad();
  EXPECT_EQ(PayloadSent(), expected);
  absl::StatusOr<Report> report = TryStatus();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state, MeterState::kLoaded);
  const nlohmann::json json = nlohmann::json::parse(report->json);
  EXPECT_EQ(json["tables"]["series"]["limit"],
            config_.max_series - NM_SLOT_FIRST);
}

// The kills above come at any moment. These come between any two steps of a
// growth, among them those at which the old info is linked, renamed over and
// closed: a reader that holds the old maps was never told, and stood still.
TEST_F(LoaderRootTest, AGrowthMayBeKilledBetweenAnyTwoSteps) {
  config_.max_series = 30;
  config_.max_names = 30;
  MustLoad();
  SendFromCgroup(1000);
  uint64_t expected = 1000;
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  bool unfinished = false, pending = false;
  // Every fifth step until the new maps are renamed over the old, then every.
  std::string from = "drained map nm_free_slots";
  int steps = 0, stride = 5;
  for (std::string last = "x"; !last.empty(); steps += stride) {
    config_.max_series += 3;
    config_.max_names += 3;
    last = LoadKilledAfter(from, steps);
    if (stride > 1 && absl::StrContains(last, "_new to ")) {
      from = "linked ";
      stride = 1;
      steps = -1;
    }
    SCOPED_TRACE(absl::StrCat("killed after step ", steps, ": ", last));
    SendFromCgroup(1);
    expected++;
    const Report report = MustStatus();
    if (access(Pin("info_new").c_str(), F_OK) == 0) {
      unfinished = true;
      EXPECT_EQ(report.state, MeterState::kDamaged);
      EXPECT_THAT(report.text, HasSubstr("to change it was killed or failed"));
      EXPECT_TRUE(nlohmann::json::parse(report.json)["unfinished"]);
    }
    pending |= access(Pin("info_old").c_str(), F_OK) == 0;
    MustLoad();
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_NE(access(Pin("info_old").c_str(), F_OK), 0);
    EXPECT_NE(access(Pin("merged").c_str(), F_OK), 0);
    EXPECT_EQ(PayloadSent(), expected);
    ExpectModes();
    // Who has had the maps open all the time is told.
    auto samples = (*reader)->ReadHost();
    ASSERT_TRUE(samples.ok()) << samples.status();
    uint64_t sum = 0;
    for (const Sample& sample : *samples) sum += sample.tx_payload_bytes;
    ASSERT_EQ(sum, expected);
    ASSERT_EQ((*reader)->ReadHealth()->lost_packets_series_full, 0u);
  }
  EXPECT_TRUE(unfinished);
  EXPECT_TRUE(pending);
  EXPECT_EQ(stride, 1);
  EXPECT_GT(steps, 10);
}

// The load that finished it left out what was wanted of it, said "max_series stays 120
// until unload", and the next load made 200 of them. One at boot is the only one.
TEST_F(LoaderRootTest, WhatFinishesAKilledGrowthGrowsOnItself) {
  config_.max_series = 100;
  MustLoad();
  SendFromCgroup(100);
  for (const char* step :
       {"_new: map nm_info", "added the totals", "linked "}) {
    SCOPED_TRACE(step);
    config_.max_series += 20;
    EXPECT_TRUE(LoadKilledAt(step));
    const uint32_t begun = config_.max_series;
    config_.max_series += 80;
    config_.max_names += 10;
    Config wanted = config_;
    wanted.max_processes++;  // which cannot be had: said once
    const absl::StatusOr<LoadResult> result = Load(wanted);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->action, Action::kUpgraded);
    std::vector<std::string> notes = result->notes;
    notes.resize(3);  // what this kernel lacks is said after them
    EXPECT_THAT(
        notes,
        ElementsAre(
            StartsWith("max_processes stays "), HasSubstr("was killed"),
            absl::StrCat("the configuration changed: max_series ", begun,
                         " to ", config_.max_series, ", max_names ",
                         config_.max_names - 10, " to ", config_.max_names)));
    const nlohmann::json json = nlohmann::json::parse(MustStatus().json);
    EXPECT_EQ(json["tables"]["series"]["limit"],
              config_.max_series - NM_SLOT_FIRST);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
    EXPECT_EQ(PayloadSent(), 100u);
  }
  // Smaller ones are still not made.
  config_.max_series += 20;
  EXPECT_TRUE(LoadKilledAt("linked "));
  config_.max_series -= 10;
  const absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->notes, Contains(HasSubstr(" until unload, not ")));
}

// What is said to stand if only the second part of such a load fails.
TEST_F(LoaderRootTest, AFailureAfterAFinishedGrowthSaysThatItIsFinished) {
  config_.max_series = 100;
  MustLoad();
  config_.max_series = 120;
  EXPECT_TRUE(LoadKilledAt("linked "));
  config_.max_series = 200;
  bool blocked = false;
  SetStepObserver([&](const std::string& done) {
    if (blocked || !absl::StartsWith(done, "drained map nm_free_names")) return;
    blocked = true;
    UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "x", 4, 4, 1, nullptr));
    EXPECT_EQ(bpf_obj_pin(map.get(), Pin("merged").c_str()), 0);
  });
  EXPECT_THAT(LoadError(),
              EndsWith("; the meter goes on as it was before this load; before "
                       "that, the growth of an earlier load was finished, with "
                       "all settings but the larger tables"));
  SetStepObserver(nullptr);
  EXPECT_TRUE(blocked);
  const nlohmann::json json = nlohmann::json::parse(MustStatus().json);
  EXPECT_EQ(json["tables"]["series"]["limit"], 120 - NM_SLOT_FIRST);
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// It was told to raise max_names, which it did: the tables of the growth that it has to
// finish first are smaller all the same, and full.
TEST_F(LoaderRootTest, ANameWithoutRoomInAGrowthToBeFinishedIsSaidToBe) {
  config_.max_series = 100;
  config_.max_names = NM_NAME_FIRST + 1;
  config_.destinations.resize(1);
  config_.destinations[0].name = "first";
  MustLoad();
  config_.max_series = 120;
  EXPECT_TRUE(LoadKilledAt("linked "));
  config_.destinations.push_back(config_.destinations[0]);
  config_.destinations[1].name = "second";
  config_.destinations[1].port_first = config_.destinations[1].port_last = 99;
  config_.max_names += 10;
  EXPECT_THAT(
      LoadError(),
      StartsWith("no room for the name second (raise max_names): a growth has "
                 "to be finished first, to smaller tables than these (run: "
                 "netmeter-loader load --pin-dir " +
                 config_.pin_dir + " without other options)"));
  const auto finished = Load(
      config_.pin_dir, [](Config*) {}, /*replaces=*/false);
  EXPECT_TRUE(finished.ok()) << finished.status();
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// A kill in the switch leaves tables that can be opened, and the same tables for all
// who do: before the switch the old ones, after it the new ones. `unload` can, too.
TEST_F(LoaderRootTest, ASwitchThatWasKilledLeavesTablesThatFitTogether) {
  for (const char* step :
       {"which leads to the old", "/names leads through", "switched to the new",
        "/tcp_new to ", "/info_new to "}) {
    SCOPED_TRACE(step);
    config_.max_series = 100;
    MustLoad();
    SendFromCgroup(100);
    config_.max_series = 200;
    EXPECT_TRUE(LoadKilledAt(step));
    EXPECT_EQ(PayloadSent(), 100u);
    EXPECT_THAT(MustStatus().text, HasSubstr("UNFINISHED"));
    if (strcmp(step, "/tcp_new to ") != 0) {
      MustLoad();
      EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
      EXPECT_EQ(PayloadSent(), 100u);
      struct stat about;
      ASSERT_EQ(lstat(Pin("counters").c_str(), &about), 0);
      EXPECT_TRUE(S_ISREG(about.st_mode));
      EXPECT_NE(access(Pin("netmeter_switch").c_str(), F_OK), 0);
      EXPECT_NE(access(Pin("netmeter_switch_old").c_str(), F_OK), 0);
      EXPECT_NE(access(Pin("netmeter_switch_new").c_str(), F_OK), 0);
    }
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  }
}

// Older versions renamed one pin after the other. What they were killed at is finished.
TEST_F(LoaderRootTest, AnOlderVersionsRenamesAreFinished) {
  config_.max_series = 100;
  MustLoad();
  SendFromCgroup(100);
  config_.max_series = 200;
  EXPECT_TRUE(LoadKilledAt("linked "));
  for (const char* pin : {"counters", "tcp", "names"}) {
    const std::string next = absl::StrCat(Pin(pin), "_new");
    ASSERT_EQ(rename(next.c_str(), Pin(pin).c_str()), 0) << pin;
  }
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  SendFromCgroup(10);
  EXPECT_EQ(PayloadSent(), 110u);
}

// A growth drains the old queues of free ids. One that fails then has to fill
// them again, or no new series would be counted by name until the next load.
TEST_F(LoaderRootTest, AFailedGrowthFillsTheQueuesAgain) {
  config_.max_series = 100;
  MustLoad();
  config_.max_series = 200;
  const uint32_t zero = 0;
  uint32_t id = 0;
  bool blocked = false;
  SetStepObserver([&](const std::string& done) {
    if (blocked || !absl::StartsWith(done, "drained map nm_free_names")) return;
    blocked = true;
    UniqueFd slots(bpf_obj_get(Pin("free_slots").c_str()));
    EXPECT_NE(bpf_map_lookup_elem(slots.get(), nullptr, &id), 0);
    // In the way of the next step.
    UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "x", 4, 4, 1, nullptr));
    EXPECT_EQ(bpf_obj_pin(map.get(), Pin("merged").c_str()), 0);
    EXPECT_EQ(bpf_map_update_elem(map.get(), &zero, &zero, BPF_ANY), 0);
  });
  EXPECT_THAT(LoadError(), HasSubstr("File exists"));
  SetStepObserver(nullptr);
  EXPECT_NE(access(Pin("merged").c_str(), F_OK), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  SendFromCgroup(5);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  auto samples = (*meter)->ReadHost();
  ASSERT_TRUE(samples.ok() && samples->size() == 1);
  EXPECT_EQ((*samples)[0].name, "loader_root_test");
  // Ascending, as readers rely on it, and each once.
  UniqueFd slots(bpf_obj_get(Pin("free_slots").c_str()));
  for (uint32_t expected = NM_SLOT_FIRST + 1; expected < 100; expected++) {
    ASSERT_EQ(bpf_map_lookup_and_delete_elem(slots.get(), nullptr, &id), 0);
    EXPECT_EQ(id, expected);
  }
  EXPECT_NE(bpf_map_lookup_and_delete_elem(slots.get(), nullptr, &id), 0);
}

// After a growth its destructor took the new queues for the old ones if either had
// been used up by then: it filled them again, but with no id that is new. The new
// slots were in no queue, until the next load.
TEST_F(LoaderRootTest, NamesThatRunOutInAGrowthCostNoSlots) {
  config_.max_series = 100;
  MustLoad();
  config_.max_series = 200;
  uint32_t id = 0;
  int taken = 0;
  SetStepObserver([&](const std::string& done) {
    if (!absl::StrContains(done, "free_names_new to ")) return;
    UniqueFd names(bpf_obj_get(Pin("free_names").c_str()));
    while (bpf_map_lookup_and_delete_elem(names.get(), nullptr, &id) == 0) {
      taken++;
    }
  });
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  SetStepObserver(nullptr);
  EXPECT_GT(taken, 0);
  UniqueFd slots(bpf_obj_get(Pin("free_slots").c_str()));
  for (uint32_t expected = NM_SLOT_FIRST; expected < 200; expected++) {
    ASSERT_EQ(bpf_map_lookup_and_delete_elem(slots.get(), nullptr, &id), 0);
    EXPECT_EQ(id, expected);
  }
}

// Older versions had no spare cells, and added atomically to each CPU's own. A
// load moves their totals to tables that have them, as a growth does: no byte
// is lost, and who reads meanwhile sees no counter go back.
TEST_F(LoaderRootTest, TablesWithoutSpareCellsAreReplacedUnderTraffic) {
  ASSERT_TRUE(LoadWithoutSpareCells(config_).ok());
  struct Shared {
    int stop;
    uint64_t sent;
  };
  auto* shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  std::vector<pid_t> senders;
  for (int i = 0; i < 2; ++i) {
    senders.push_back(fork());
    if (senders.back() == 0) {
      alarm(60);
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_port = htons(8443);
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const auto* address = reinterpret_cast<sockaddr*>(&to);
      while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        if (sendto(fd.get(), "1234567", 7, 0, address, sizeof(to)) != 7) {
          _exit(1);
        }
        __atomic_fetch_add(&shared->sent, 7, __ATOMIC_RELAXED);
      }
      _exit(0);
    }
  }
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  std::atomic<bool> done{false};
  uint64_t reads = 0, last = 0;
  int backwards = 0;
  std::thread reader([&] {
    while (!done) {
      auto samples = (*meter)->ReadHost();
      uint64_t sum = 0;
      if (!samples.ok()) continue;  // between two renames
      for (const Sample& sample : *samples) sum += sample.tx_payload_bytes;
      backwards += sum < last;
      last = sum;
      ++reads;
    }
  });
  usleep(100000);
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  usleep(100000);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
  config_.max_series += 10;  // the same once more, with spare cells in both
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  usleep(100000);
  __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
  for (pid_t sender : senders) {
    int status = 0;
    EXPECT_EQ(waitpid(sender, &status, 0), sender);
    EXPECT_EQ(status, 0);
  }
  done = true;
  reader.join();
  EXPECT_EQ(PayloadSent(), shared->sent);
  EXPECT_GT(shared->sent, 1000u);
  EXPECT_EQ(backwards, 0);
  printf("%llu bytes sent through two upgrades, %llu reads\n",
         static_cast<unsigned long long>(shared->sent),
         static_cast<unsigned long long>(reads));
  munmap(shared, sizeof(Shared));
}

// An older version's growth that was killed has made tables of its own layout:
// they are filled first, and replaced then.
TEST_F(LoaderRootTest, AnOlderVersionsGrowthIsFinishedAndItsTablesReplaced) {
  ASSERT_TRUE(LoadWithoutSpareCells(config_).ok());
  SendFromCgroup(100);
  for (const char* step :
       {"_new: map nm_info", "added the totals", "linked "}) {
    SCOPED_TRACE(step);
    config_.max_series += 50;
    const pid_t child = fork();
    if (child == 0) {
      SetStepObserver([&](const std::string& done) {
        if (absl::StrContains(done, step)) raise(SIGKILL);
      });
      _exit(LoadWithoutSpareCells(config_).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    SendFromCgroup(10);
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
    SendFromCgroup(1);
    EXPECT_EQ(PayloadSent(), 111u);
    nm_info info = {};
    const uint32_t zero = 0;
    const UniqueFd fd(bpf_obj_get(Pin("info").c_str()));
    ASSERT_EQ(bpf_map_lookup_elem(fd.get(), &zero, &info), 0);
    EXPECT_EQ(info.cells_per_series,
              static_cast<uint32_t>(libbpf_num_possible_cpus()) + 1);
    // Once more from the beginning.
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    ASSERT_TRUE(LoadWithoutSpareCells(config_).ok());
    SendFromCgroup(100);
  }
}

// A program that took an id and found that another CPU was faster gave it back after
// the queue had been emptied, and the id was found free a second time: two series
// then shared a slot.
TEST_F(LoaderRootTest, WhatIsGivenBackWhileQueuesAreEmptiedGoesToo) {
  const auto make_queue = [] {
    return UniqueFd(
        bpf_map_create(BPF_MAP_TYPE_QUEUE, "ids", 0, 4, 8, nullptr));
  };
  const UniqueFd slots = make_queue(), names = make_queue();
  ASSERT_TRUE(slots.ok() && names.ok()) << strerror(errno);
  const auto give = [](const UniqueFd& queue, uint32_t id) {
    EXPECT_EQ(bpf_map_update_elem(queue.get(), nullptr, &id, BPF_ANY), 0);
  };
  for (uint32_t id = 21; id < 25; id++) give(slots, id);
  int waits = 0;
  const auto wait = [&] {
    // Programs that run end within a wait. Another one may have taken what the first
    // gave back.
    if (waits < 2) give(waits == 0 ? names : slots, 30);
    waits++;
  };
  const absl::Status drained = DrainFreeIds({slots.get(), names.get()}, wait);
  EXPECT_TRUE(drained.ok()) << drained;
  EXPECT_EQ(waits, 3);
  uint32_t id;
  EXPECT_EQ(bpf_map_lookup_elem(slots.get(), nullptr, &id), -ENOENT);
  EXPECT_EQ(bpf_map_lookup_elem(names.get(), nullptr, &id), -ENOENT);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
