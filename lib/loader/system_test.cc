// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

TEST(NameOfRunningTest, IsWhatWasExecuted) {
  // The interpreter is called by the name that it was started by.
  EXPECT_EQ(NameOfRunning("python3", "/usr/bin/python3", "/usr/bin/python3.11"),
            "python3");
  EXPECT_EQ(NameOfRunning("sshd", "sshd: root [priv]", "/usr/sbin/sshd"),
            "sshd");
  // comm holds 15 bytes.
  EXPECT_EQ(NameOfRunning("envoy_controlle", "envoy_controller",
                          "/usr/bin/envoy_controller"),
            "envoy_controller");
  // A main thread that renamed itself: never that name.
  EXPECT_EQ(NameOfRunning("worker-7", "", "/usr/bin/redis-server"),
            "redis-server");
  EXPECT_EQ(NameOfRunning("", "", "/usr/bin/x"), "x");
  EXPECT_EQ(NameOfRunning("", "", ""), "");
}

TEST(RunningProcessesTest, HoldsThisOne) {
  bool found = false;
  const std::vector<RunningProcess> processes = RunningProcesses();
  if (processes.empty()) return;  // in a PID namespace: documented
  for (const RunningProcess& process : processes) {
    if (process.tgid == static_cast<uint32_t>(getpid())) {
      found = true;
      EXPECT_EQ(process.name, "system_test");
    }
  }
  EXPECT_TRUE(found);
}

TEST(PinDirectoryTest, WhatIsInTheWayIsSaid) {
  EXPECT_TRUE(CheckDirectory("/no-such-directory/x").ok());
  EXPECT_TRUE(CheckContents("/no-such-directory/x").ok());
  EXPECT_TRUE(CheckDirectory("/etc").ok());
  EXPECT_EQ(CheckDirectory("/etc/passwd/x").message(),
            "pin directory /etc/passwd/x: /etc/passwd is a file, expected a "
            "directory");
  EXPECT_THAT(std::string(CheckContents("/etc").message()),
              HasSubstr("): choose another --pin-dir"));
  // As /sys/fs/bpf is where no BPF file system is mounted.
  bool made, mounted;
  EXPECT_THAT(
      std::string(
          PrepareDirectory("/sys/fs/no-such/x", &made, &mounted).message()),
      HasSubstr("(mount -t bpf bpf /sys/fs, or choose another "
                "--pin-dir)"));
}

TEST(OpenCgroupTest, RefusesWhatIsNoCgroup) {
  uint64_t id = 0;
  EXPECT_EQ(OpenCgroup("/nonexistent", &id).status().code(),
            absl::StatusCode::kNotFound);
  absl::StatusOr<UniqueFd> proc = OpenCgroup("/proc", &id);
  EXPECT_EQ(proc.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(proc.status().message()),
              HasSubstr("not a cgroup v2 directory"));
}

TEST(FindGroupTest, SaysHowToMakeIt) {
  EXPECT_TRUE(FindGroup("root").ok());
  EXPECT_THAT(std::string(FindGroup("no-such-group").status().message()),
              HasSubstr("groupadd"));
  // "groupadd 1000" was the advice.
  EXPECT_EQ(*FindGroup("12345"), 12345u);
  EXPECT_EQ(FindGroup("4294967295").status().message(),
            "no group 4294967295 (ids are below 4294967295)");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
