// SPDX-License-Identifier: BSD-3-Clause
// Tests what `netmeter-loader status` says if no pin is missing: while a load is at work,
// after an interrupted load, and with full tables.

#include <bpf/bpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"
#include "lib/testing/run_shell.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

class StatusRootTest : public LoaderRootTest {
 protected:
  void ExpectUnfinished() {
    const Report report = MustStatus();
    EXPECT_EQ(report.state, MeterState::kUnfinished);
    EXPECT_THAT(report.text, HasSubstr("  UNFINISHED      an upgrade: "));
    EXPECT_TRUE(nlohmann::json::parse(report.json)["unfinished"]);
    const ShellResult evicted =
        RunShell("lib/netmeter_loader/netmeter-loader evict --pin-dir " +
                 config_.pin_dir + " 2>&1");
    EXPECT_EQ(evicted.exit_status, 1) << evicted.output;
    EXPECT_THAT(evicted.output, HasSubstr("an unfinished upgrade comes first"));
  }

  // A load of its own process stands still at the first step that says `step`.
  void BeginLoad(const std::string& step) {
    int there[2], on[2];
    ASSERT_EQ(pipe2(there, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(on, O_CLOEXEC), 0);
    loader_ = fork();
    if (loader_ == 0) {
      alarm(300);
      close(on[1]);
      bool paused = false;
      TraceObserver() = [&](const std::string& done) {
        if (paused || !absl::StrContains(done, step)) return;
        paused = true;
        char byte = 0;
        if (write(there[1], &byte, 1) != 1) _exit(2);
        if (read(on[0], &byte, 1) != 0) _exit(2);
      };
      _exit(Load(config_).ok() ? 0 : 1);
    }
    close(there[1]);
    close(on[0]);
    go_on_ = UniqueFd(on[1]);
    char byte;
    EXPECT_EQ(read(there[0], &byte, 1), 1) << step;
    close(there[0]);
  }
  void GoOn() { go_on_ = UniqueFd(); }
  void EndLoad() {
    GoOn();
    int status = 0;
    EXPECT_EQ(waitpid(loader_, &status, 0), loader_);
    EXPECT_EQ(status, 0);
  }

 private:
  pid_t loader_ = -1;
  UniqueFd go_on_;
};

// It was called loaded, though some of its programs were another load's, for good.
TEST_F(StatusRootTest, AnUpgradeThatFailedInTheMiddleIsUnfinished) {
  MustLoad();
  SendFromCgroup(100);
  config_.proxy_ports.push_back(7001);
  // BPF_LINK_UPDATE
  const Interrupted failed = RunInterrupted(
      {-1, EPERM, "bpf(29)", 3}, [&] { return Load(config_).status(); });
  EXPECT_FALSE(failed.ok);
  EXPECT_THAT(
      failed.message,
      EndsWith(
          "6 of 9 programs are new, and counting continues: run load again"));
  ExpectUnfinished();
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
  EXPECT_EQ(PayloadSent(), 100u);
}

// What a load does just then was called damage: programs that are attached, and no info.
// A slow machine may take longer than it is waited for.
TEST_F(StatusRootTest, ALoadThatIsAtWorkIsWaitedFor) {
  config_.max_series = 100;
  for (const char* step : {"link_egress: ", "replaced the program at "}) {
    SCOPED_TRACE(step);
    BeginLoad(step);
    std::thread second([this] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      GoOn();
    });
    const auto begin = Clock::now();
    const absl::StatusOr<MeterStatus> status = GetStatus(config_.pin_dir);
    const auto waited = Clock::now() - begin;
    second.join();
    EXPECT_TRUE(status.ok()) << status.status();
    if (status.ok() && waited < std::chrono::seconds(3)) {
      EXPECT_EQ(status->state, MeterState::kLoaded) << StatusAsText(*status);
      EXPECT_FALSE(status->loader_at_work);
    }
    EndLoad();
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    config_.max_series += 100;
  }
}

// Then it says so, and not to load or to unload what the other one is about to mend.
TEST_F(StatusRootTest, ALoadThatTakesLongIsSaidToBeAtWork) {
  config_.max_series = 100;
  for (const char* step : {"link_egress: ", "replaced the program at "}) {
    SCOPED_TRACE(step);
    BeginLoad(step);
    const Report report = MustStatus();
    EXPECT_EQ(nlohmann::json::parse(report.json)["damaged"], true);
    EXPECT_THAT(report.text, HasSubstr("(look again"));
    EXPECT_THAT(report.text, HasSubstr("netmeter-loader"));
    EXPECT_THAT(report.text, Not(HasSubstr("unload")));
    EXPECT_THAT(report.text, Not(HasSubstr("(run: ")));
    EXPECT_EQ(nlohmann::json::parse(report.json)["loader_at_work"], true);
    EndLoad();
    const Report after = MustStatus();
    EXPECT_EQ(after.state, MeterState::kLoaded);
    EXPECT_EQ(nlohmann::json::parse(after.json)["loader_at_work"], false);
    config_.max_series += 100;
  }
}

// It was advised to load what another one was about to load.
TEST_F(StatusRootTest, AFirstLoadThatTakesLongIsSaidToBeAtWork) {
  BeginLoad("opened the BPF object");
  const Report report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kNotLoaded);
  EXPECT_THAT(report.text,
              HasSubstr("(look again: a netmeter-loader is running)"));
  EXPECT_EQ(nlohmann::json::parse(report.json)["loader_at_work"], true);
  EndLoad();
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// The first load pins `info` last: before, it was no meter to `evict`, or a damaged one,
// by which a timer fails.
TEST_F(StatusRootTest, EvictWaitsForAFirstLoad) {
  BeginLoad("link_egress: ");
  std::thread second([this] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    GoOn();
  });
  const ShellResult evicted =
      RunShell("lib/netmeter_loader/netmeter-loader evict --pin-dir " +
               config_.pin_dir + " 2>&1");
  second.join();
  // A host may refuse what an eviction needs (docs/kernels.md), after the wait.
  EXPECT_TRUE(
      evicted.exit_status == 0 ||
      absl::StrContains(evicted.output, "nm_scan: Operation not permitted") ||
      absl::StrContains(evicted.output, "evict could crash this kernel"))
      << evicted.output;
  EndLoad();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
