// SPDX-License-Identifier: BSD-3-Clause
// Kills `record` (SIGKILL) at each of its system calls in turn, before and after the
// kernel has executed it. The history then has all of that interval or nothing. The next
// record adds what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kStart = 1793500000;

// In round 1 the meter has counted 1000 bytes, in round 2 2000, and so on.
absl::Status RecordRound(const std::string& path, int64_t round) {
  auto history = OpenHistory(path, Database::Mode::kCreate);
  if (!history.ok()) return history.status();
  Reading reading;
  reading.now = kStart + 60 * round;
  reading.boottime = 60 * round;
  reading.boot_id = "boot";
  reading.start_ns = 1;
  for (int i = 0; i < 4; ++i) {
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = "service-" + std::to_string(i);
    sample.tx_bytes = static_cast<uint64_t>(250 * round);
    reading.samples.push_back(sample);
  }
  RecordOptions options;
  options.keep_hours_days = 1;
  return Record(history->get(), options,
                [&reading]() -> absl::StatusOr<Reading> { return reading; })
      .status();
}

// Kills a child that records at its `stop`th stop at a system call. False if the child
// ended before that.
bool RecordAndKill(const std::string& path, int64_t round, int stop) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
    raise(SIGSTOP);
    _exit(RecordRound(path, round).ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  for (int i = 0; WIFSTOPPED(status); ++i) {
    if (i > stop) {
      kill(child, SIGKILL);
      EXPECT_EQ(waitpid(child, &status, 0), child);
      return true;
    }
    EXPECT_EQ(ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
    EXPECT_EQ(waitpid(child, &status, 0), child);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return false;
}

int64_t TotalOf(const std::string& path) {
  const auto history = OpenHistory(path, Database::Mode::kRead);
  if (absl::IsNotFound(history.status())) return 0;
  EXPECT_TRUE(history.ok()) << history.status();
  UsageQuery query;
  query.period = {20260101, 20301231};
  const auto usage = ReadUsage(history->get(), query);
  EXPECT_TRUE(usage.ok()) << usage.status();
  return usage->sum.tx_bytes();
}

// 1: kills at each stop. More: only at every such stop, which takes less time.
int Stride() {
  const char* stride = getenv("KILL_STRIDE");
  return stride == nullptr ? 1 : std::max(1, atoi(stride));
}

TEST(Kill, AtEachSystemCallLosesNothingAndCountsNothingTwice) {
  // In memory: data that a killed process has written stays, synced or not.
  std::string directory = "/dev/shm/netmeter-kill-XXXXXX";
  ASSERT_NE(mkdtemp(&directory[0]), nullptr);
  const std::string path = directory + "/history.db";
  int64_t round = 1;
  int kills = 0;
  int64_t recorded = 0;
  // The first record makes the file and its tables, so it starts from an empty directory.
  // Later ones continue with the history of the killed one.
  for (const bool first : {true, false}) {
    for (int stop = 0;; stop += Stride()) {
      if (first) {
        for (const char* end : {"", "-wal", "-shm", "-journal"}) {
          unlink((path + end).c_str());
        }
        recorded = 0;
      }
      const bool killed = RecordAndKill(path, round, stop);
      const int64_t total = TotalOf(path);
      ASSERT_TRUE(total == recorded || total == 1000 * round)
          << "stop " << stop << ": " << total;
      if (!killed) {
        ASSERT_EQ(total, 1000 * round);
        break;
      }
      ++kills;
      ASSERT_TRUE(RecordRound(path, ++round).ok()) << stop;
      recorded = TotalOf(path);
      ASSERT_EQ(recorded, 1000 * round) << stop;
      ++round;
    }
  }
  EXPECT_GT(kills, 500 / Stride());
  std::cout << kills << " kills\n";
  for (const char* end : {"", "-wal", "-shm", "-journal"}) {
    unlink((path + end).c_str());
  }
  rmdir(directory.c_str());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
