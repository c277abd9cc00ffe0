// SPDX-License-Identifier: BSD-3-Clause
// Tests the library on real maps, which the test makes itself. Needs root and bpf(2), but
// neither loader nor programs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/reader/shared_maps.h"
#include "lib/testing/failing_new.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uid_t kNobody = 65534;
constexpr gid_t kGroup = 12345;

class MeterRootTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/netmeter-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
    pin_dir_ = root_ + "/meter";
    ASSERT_EQ(mkdir(pin_dir_.c_str(), 0755), 0);
    ASSERT_EQ(MountBpffs(pin_dir_), "");
  }
  void TearDown() override {
    unlink((pin_dir_ + ".sock").c_str());
    EXPECT_EQ(umount2(pin_dir_.c_str(), MNT_DETACH), 0);
    EXPECT_EQ(rmdir(pin_dir_.c_str()), 0);
    EXPECT_EQ(rmdir(root_.c_str()), 0);
  }

  // One series: service "mme" to "streamer", tx_bytes 100 and 200 by CPU.
  static std::unique_ptr<FakeMeter> MakeMeter(
      const FakeMeter::Options& options = FakeMeter::Options()) {
    auto meter = std::make_unique<FakeMeter>(options);
    EXPECT_EQ(meter->error(), "");
    meter->SetName(3, NM_KIND_SERVICE, "mme");
    meter->SetName(4, NM_KIND_DESTINATION, "streamer");
    for (uint32_t cpu = 0; cpu < 2; ++cpu) {
      nm_cell* cell = meter->cell(NM_SLOT_FIRST, cpu);
      cell->service = 3;
      cell->destination = 4;
      cell->kind = NM_KIND_SERVICE;
      cell->transport = NM_TRANSPORT_TCP;
      cell->tx_bytes = 100 * (cpu + 1);
    }
    meter->stats()->slots_allocated = 1;
    meter->stats()->series_used = 1;
    strcpy(meter->info()->version, "1.2.3");
    return meter;
  }

  MeterOptions Options(bool wait = false) const {
    MeterOptions options;
    options.pin_dir = pin_dir_;
    options.wait_for_loader = wait;
    return options;
  }

  static void ExpectSent(const Meter& meter, uint64_t bytes) {
    const auto samples = meter.ReadService("mme");
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_THAT(*samples, SizeIs(1));
    EXPECT_EQ((*samples)[0].destination, "streamer");
    EXPECT_EQ((*samples)[0].tx_bytes, bytes);
  }

  // Runs `body` in a child without privileges; returns its short answer.
  static std::string AsNobody(gid_t group,
                              const std::function<std::string()>& body) {
    int pipe_fds[2];
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string answer;
      if (setgroups(1, &group) != 0 ||
          setresgid(kNobody, kNobody, kNobody) != 0 ||
          setresuid(kNobody, kNobody, kNobody) != 0) {
        answer = "cannot drop privileges";
      } else {
        answer = body();
      }
      const ssize_t ignored = write(pipe_fds[1], answer.data(), answer.size());
      (void)ignored;
      _exit(0);
    }
    close(pipe_fds[1]);
    std::string answer(1000, '\0');
    const ssize_t count = read(pipe_fds[0], &answer[0], answer.size());
    answer.resize(count < 0 ? 0 : static_cast<size_t>(count));
    close(pipe_fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return answer;
  }

  // Opens and reads; returns the bytes that "mme" sent, or the error.
  std::string ReadSent() const {
    const auto meter = Meter::Open(Options());
    if (!meter.ok()) return meter.status().ToString();
    const auto samples = (*meter)->ReadService("mme");
    if (!samples.ok()) return samples.status().ToString();
    if (samples->size() != 1) return "no sample";
    return std::to_string((*samples)[0].tx_bytes);
  }

  // Acts as `netmeter-fds`, for `times` readers.
  std::thread Serve(const FakeMeter& meter, int times) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (pin_dir_ + ".sock").c_str());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(
        bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(chmod(address.sun_path, 0666), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    return std::thread([fd, times, &meter] {
      for (int i = 0; i < times; ++i) {
        const int connection = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        EXPECT_EQ(meter.SendTo(connection), "");
        close(connection);
      }
      close(fd);
    });
  }

  std::string root_;
  std::string pin_dir_;
};

TEST_F(MeterRootTest, ReadsFrozenMaps) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Freeze(), "");
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  ExpectSent(**meter, 300);
  const auto health = (*meter)->ReadHealth();
  ASSERT_TRUE(health.ok());
  EXPECT_EQ(health->version, "1.2.3");
  EXPECT_EQ(health->series, 1u);
  EXPECT_EQ(health->max_series, 64u);
}

TEST_F(MeterRootTest, KeepsWorkingInAForkedChild) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  fake->cell(NM_SLOT_FIRST, 0)->tx_bytes += 1;
  EXPECT_EQ(AsNobody(kNobody,
                     [&meter] {
                       const auto samples = (*meter)->ReadService("mme");
                       return samples.ok()
                                  ? std::to_string((*samples)[0].tx_bytes)
                                  : samples.status().ToString();
                     }),
            "301");
}

TEST_F(MeterRootTest, HoldsNoDescriptor) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  const int before = dup(0);
  close(before);
  auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

// The sanitizers make system calls of their own, and have locks that a fork copies.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// seccomp's strict mode kills the child at any system call except read and write. So the
// child survives only if a read makes none.
TEST_F(MeterRootTest, ReadingMakesNoSystemCall) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  // Lets malloc take the memory it needs.
  ExpectSent(**meter, 300);
  ASSERT_TRUE((*meter)->ReadHost().ok());
  ASSERT_TRUE((*meter)->ReadHealth().ok());
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_SECCOMP, 1 /* SECCOMP_MODE_STRICT */) != 0) _exit(2);
    bool ok = true;
    for (int i = 0; i < 1000; ++i) {
      ok = ok && (*meter)->ReadService("mme").ok() &&
           (*meter)->ReadHost().ok() && (*meter)->ReadHealth().ok();
    }
    // _exit() calls exit_group(2), which strict mode does not allow.
    syscall(SYS_exit, ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The parent's Meter may be locked there forever, by a thread that the child lacks.
TEST_F(MeterRootTest, AChildOfABusyParentOpensAMeterOfItsOwn) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  std::atomic<bool> done{false};
  std::thread busy([&meter, &done] {
    while (!done) EXPECT_TRUE((*meter)->ReadHost().ok());
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const auto own = Meter::Open(Options());
      _exit(own.ok() && (*own)->ReadHost().ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  done = true;
  busy.join();
}
#endif

// The bug: each read copied names that do not fit into a std::string itself.
TEST_F(MeterRootTest, ReadingIntoTheSameVectorAllocatesNothing) {
  const auto fake = MakeMeter();
  const std::string name = "a_service_with_a_long_name";
  fake->SetName(3, NM_KIND_SERVICE, name);
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  MeterOptions options = Options();
  options.wait_for_loader = true;  // no program registers this process here
  options.service = name;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  std::vector<Sample> own, named, host;
  for (int i = 0; i < 3; ++i) {
    FailNew fail(i == 0 ? 1000000 : 0);
    EXPECT_TRUE((*meter)->ReadService(&own).ok());
    EXPECT_TRUE((*meter)->ReadService(name, &named).ok());
    EXPECT_TRUE((*meter)->ReadHost(&host).ok());
    EXPECT_FALSE(fail.Failed()) << i;
    for (const std::vector<Sample>* samples : {&own, &named, &host}) {
      ASSERT_EQ(samples->size(), 1u);
      EXPECT_EQ((*samples)[0].name, name);
      EXPECT_EQ((*samples)[0].tx_bytes, 300u);
    }
  }
}

TEST_F(MeterRootTest, AMeterWithoutUplinksSaysWhatToDo) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  const auto meter = Meter::Open(Options());
  ASSERT_TRUE(meter.ok()) << meter.status();
  const absl::Status read = (*meter)->ReadUplinks().status();
  EXPECT_TRUE(absl::IsNotFound(read)) << read;
  EXPECT_THAT(std::string(read.message()),
              HasSubstr("the meter has no uplinks (write uplinks into FILE"));
}

// Installed C++ took twice the time of C for a read, because it copied each sample.
TEST_F(MeterRootTest, RowsPointToTheLibrarysTexts) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  MeterOptions options = Options();
  options.wait_for_loader = true;  // no program registers this process here
  options.service = "mme";
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  Rows own, named, host, none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_FALSE(none.begin() != none.end());
  for (int i = 0; i < 3; ++i) {
    FailNew fail(i == 0 ? 1000000 : 0);
    EXPECT_TRUE((*meter)->ReadService(&own).ok());
    EXPECT_TRUE((*meter)->ReadService("mme", &named).ok());
    EXPECT_TRUE((*meter)->ReadHost(&host).ok());
    EXPECT_TRUE((*meter)->ReadService(absl::string_view(), &none).ok());
    EXPECT_FALSE(fail.Failed()) << i;
  }
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(own[0].name, host[0].name);
  meter->reset();
  for (const Rows* rows : {&own, &named, &host}) {
    size_t count = 0;
    for (const netmeter_sample& row : *rows) {
      ++count;
      EXPECT_EQ(absl::string_view(row.name, row.name_length), "mme");
      EXPECT_STREQ(row.destination, "streamer");
      EXPECT_EQ(static_cast<Kind>(row.kind), Kind::kService);
      EXPECT_EQ(row.tx_bytes, 300u);
    }
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(rows->begin()->rx_bytes, (*rows)[0].rx_bytes);
  }
}

TEST_F(MeterRootTest, EvictedPinsAreNoMeter) {
  const auto fake = MakeMeter();
  fake->info()->closed = 1;
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  EXPECT_TRUE(absl::IsNotFound(Meter::Open(Options()).status()));
}

TEST_F(MeterRootTest, ReplacedMapsAreReopened) {
  for (const bool wait : {false, true}) {
    const auto old_meter = MakeMeter();
    ASSERT_EQ(old_meter->Pin(pin_dir_), "");
    auto meter = Meter::Open(Options(wait));
    ASSERT_TRUE(meter.ok()) << meter.status();
    ExpectSent(**meter, 300);

    // Twice within a second, larger each time.
    std::unique_ptr<FakeMeter> last;
    for (uint32_t round = 1; round <= 2; ++round) {
      FakeMeter::Options options;
      options.max_series = 64 + 100 * round;
      options.max_names = 32 + 100 * round;
      auto next = MakeMeter(options);
      next->cell(NM_SLOT_FIRST, 0)->tx_bytes += round;
      ASSERT_EQ(next->Pin(pin_dir_), "");
      // Not closed yet: reads use the old meter.
      ExpectSent(**meter, 300 + round - 1);
      (last == nullptr ? old_meter.get() : last.get())->info()->closed = 1;
      ExpectSent(**meter, 300 + round);
      EXPECT_EQ((*meter)->ReadHealth()->max_series, options.max_series);
      last = std::move(next);
    }
  }
}

// Once, only a Meter with wait_for_loader found the next load: reads of any other one
// failed for good.
TEST_F(MeterRootTest, AMeterFollowsEachUnloadAndLoad) {
  std::unique_ptr<FakeMeter> fake;
  const auto unload = [&] {
    fake->info()->closed = 1;
    for (const SharedMap map : OpeningOrder()) {
      EXPECT_EQ(unlink((pin_dir_ + "/" + PinOf(map)).c_str()), 0);
    }
  };
  for (const bool wait : {true, false}) {
    if (!wait) {
      fake = MakeMeter();
      ASSERT_EQ(fake->Pin(pin_dir_), "");
    }
    auto meter = Meter::Open(Options(wait));
    ASSERT_TRUE(meter.ok()) << meter.status();
    if (!wait) unload();
    for (int round = 0; round < 2; ++round) {
      const absl::Status status = (*meter)->ReadHost().status();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("waiting for a meter: no meter at " + pin_dir_));
      fake = MakeMeter();
      ASSERT_EQ(fake->Pin(pin_dir_), "");
      // The Meter looks at most once a second.
      std::this_thread::sleep_for(std::chrono::milliseconds(1100));
      ExpectSent(**meter, 300);
      unload();
    }
  }
}

TEST_F(MeterRootTest, ReopenIsSafeBesideOtherThreads) {
  auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  auto meter = Meter::Open(Options(/*wait=*/true));
  ASSERT_TRUE(meter.ok()) << meter.status();
  std::atomic<bool> done(false);
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    // A reader that opens the pins while they are replaced may find no meter. Then it
    // looks again a second later.
    readers.emplace_back([&meter, &done] {
      while (!done) {
        const auto samples = (*meter)->ReadService("mme");
        if (!samples.ok()) {
          EXPECT_TRUE(absl::IsUnavailable(samples.status()))
              << samples.status();
        } else if (!samples->empty()) {
          EXPECT_EQ(samples->front().tx_bytes, 300u);
        }
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    auto next = MakeMeter();
    ASSERT_EQ(next->Pin(pin_dir_), "");
    fake->info()->closed = 1;
    fake = std::move(next);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (int i = 0; i < 300 && !(*meter)->ReadService("mme").ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ExpectSent(**meter, 300);
}

TEST_F(MeterRootTest, MapsOfOtherSizesThanInfoSaysAreRefused) {
  FakeMeter::Options options;
  options.counters_entries = 64;  // half of the required number
  const auto fake = MakeMeter(options);
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  const absl::Status status = Meter::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/counters is no map of a netmeter: it has 64 "
                        "entries, by `info` it should have 128"));
}

TEST_F(MeterRootTest, HugeSizesInInfoAreRefused) {
  const auto fake = MakeMeter();
  fake->info()->cells_per_series = 0xffffffff;
  fake->info()->max_series = 0xffffffff;
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(Meter::Open(Options()).status()));
}

TEST_F(MeterRootTest, MapsThatAreSwappedOrNoMapsAreRefused) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  ASSERT_EQ(
      rename((pin_dir_ + "/names").c_str(), (pin_dir_ + "/counters").c_str()),
      0);
  ASSERT_EQ(
      link((pin_dir_ + "/counters").c_str(), (pin_dir_ + "/names").c_str()), 0);
  const absl::Status status = Meter::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  unlink((pin_dir_ + "/info").c_str());
  ASSERT_EQ(mkdir((pin_dir_ + "/info").c_str(), 0755), 0);
  EXPECT_THAT(Meter::Open(Options()).status().message(),
              HasSubstr("/info is no map of a netmeter: it is a directory"));
}

TEST_F(MeterRootTest, PermissionsOfThePinsDecide) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Freeze(), "");
  ASSERT_EQ(fake->Pin(pin_dir_, kGroup, 0660), "");
  const auto read = [this] { return ReadSent(); };
  EXPECT_EQ(AsNobody(kGroup, read), "300");
  EXPECT_EQ(AsNobody(kNobody, read),
            "PERMISSION_DENIED: open " + pin_dir_ +
                "/info: Permission denied (run as root or as a member of group "
                "12345)");
  // The directory as the loader makes it.
  ASSERT_EQ(chown(pin_dir_.c_str(), 0, kGroup), 0);
  ASSERT_EQ(chmod(pin_dir_.c_str(), 0750), 0);
  EXPECT_EQ(AsNobody(kGroup, read), "300");
  EXPECT_THAT(AsNobody(kNobody, read), HasSubstr("PERMISSION_DENIED"));
}

// The bug: the hint named the group netmeter, whatever group owned the pins. The user
// joined it and still could not read.
TEST_F(MeterRootTest, TheHintNamesWhoMayReallyRead) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_, 1, 0660), "");
  const auto read = [this] { return ReadSent(); };
  EXPECT_THAT(AsNobody(kNobody, read),
              HasSubstr("(run as root or as a member of group daemon)"));
  ASSERT_EQ(chown(pin_dir_.c_str(), 0, 1), 0);
  ASSERT_EQ(chmod(pin_dir_.c_str(), 0750), 0);
  EXPECT_THAT(AsNobody(kNobody, read),
              HasSubstr("(run as root or as a member of group daemon)"));
  ASSERT_EQ(chmod(pin_dir_.c_str(), 0700), 0);
  EXPECT_THAT(AsNobody(kNobody, read),
              HasSubstr("(run as root: no group may read)"));
  ASSERT_EQ(chmod(pin_dir_.c_str(), 0755), 0);
  ASSERT_EQ(fake->Pin(pin_dir_, 0, 0600), "");
  EXPECT_THAT(AsNobody(kNobody, read),
              HasSubstr("(run as root: no group may read)"));
}

// The bug: the library and the loader resolved a relative name, or one with links, to
// different directories. The library asked at another socket, and after a chdir(2) in
// another directory.
TEST_F(MeterRootTest, ARelativePinDirIsThatOfTheLoader) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Freeze(), "");
  char before[4096];
  ASSERT_NE(getcwd(before, sizeof(before)), nullptr);
  const std::string link = root_ + "/link";
  ASSERT_EQ(symlink("meter", link.c_str()), 0);
  ASSERT_EQ(chdir(root_.c_str()), 0);
  // Nothing is pinned. The socket is beside the canonical directory.
  std::thread server = Serve(*fake, 2);
  for (const char* name : {"meter", "./link/"}) {
    MeterOptions options;
    options.pin_dir = name;
    const auto meter = Meter::Open(options);
    ASSERT_TRUE(meter.ok()) << meter.status();
    ExpectSent(**meter, 300);
  }
  server.join();
  ASSERT_EQ(chdir(before), 0);
  unlink(link.c_str());
}

// The bug: the header promised that the library never throws, but std::bad_alloc left
// every function.
TEST_F(MeterRootTest, WithoutMemoryEveryCallSaysSoAndTheNextOneIsRight) {
  const auto fake = MakeMeter();
  ASSERT_EQ(fake->Pin(pin_dir_), "");
  const auto exhausted = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  };
  const MeterOptions options = Options();
  for (const bool and_after : {false, true}) {
    std::unique_ptr<Meter> meter;
    int opening = 0;
    for (; meter == nullptr; ++opening) {
      FailNew fail(opening, and_after);
      auto opened = Meter::Open(options);
      if (fail.Failed()) {
        if (!opened.ok()) exhausted(opened.status());
      } else {
        ASSERT_TRUE(opened.ok()) << opened.status();
        meter = *std::move(opened);
      }
    }
    EXPECT_GT(opening, 5);
    // The first read learns the series, and may fail at any allocation.
    int reading = 0;
    for (bool failed = true; failed; ++reading) {
      auto fresh = Meter::Open(options);
      ASSERT_TRUE(fresh.ok()) << fresh.status();
      {
        FailNew fail(reading, and_after);
        const auto samples = (*fresh)->ReadService("mme");
        failed = fail.Failed();
        if (failed) exhausted(samples.status());
      }
      ExpectSent(**fresh, 300);
      const auto all = (*fresh)->ReadHost();
      ASSERT_TRUE(all.ok()) << all.status();
      EXPECT_THAT(*all, SizeIs(1));
    }
    EXPECT_GT(reading, 5);
    const std::string long_name(64, 'x');
    const std::function<absl::Status()> calls[] = {
        [&] { return meter->ReadHost().status(); },
        [&] {
          Rows rows;
          return meter->ReadHost(&rows);
        },
        [&] { return meter->ReadHealth().status(); },
        [&] { return meter->ReadUplinks().status(); },
        [&] { return meter->Register(long_name); },
        [&] { return TagSocket(-1, "x"); },
        [&] { return SetSocketService(-1, "x"); },
    };
    for (const auto& call : calls) {
      for (int n = 0;; ++n) {
        FailNew fail(n, and_after);
        const absl::Status status = call();
        if (!fail.Failed()) break;
        exhausted(status);
      }
    }
    ExpectSent(*meter, 300);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
