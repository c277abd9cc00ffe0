// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "lib/base/unique_fd.h"

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

// They had their interpreter's name if they ran before the load.
TEST(NameOfRunningTest, ScriptsKeepTheirs) {
  const auto argv = [](const std::vector<std::string>& arguments) {
    return absl::StrJoin(arguments, std::string(1, '\0')) + '\0';
  };
  const std::string bash = "/usr/bin/bash";
  const std::string path = "/opt/a-rather-long-name.sh";
  EXPECT_EQ(NameOfRunning("a-rather-long-n", argv({"/bin/bash", path}), bash),
            "a-rather-long-name.sh");
  EXPECT_EQ(NameOfRunning("a-rather-long-n",
                          argv({"/bin/bash", "-u", path, "x"}), bash),
            "a-rather-long-name.sh");
  EXPECT_EQ(NameOfRunning("bash", argv({"bash", path}), bash), "bash");
  // A main thread that took the name of an argument is no script.
  EXPECT_EQ(
      NameOfRunning("x", argv({"/usr/bin/daemon", "x"}), "/usr/bin/daemon"),
      "daemon");
  EXPECT_EQ(NameOfRunning("x", argv({"d", "-a", "-b", "/x"}), "/usr/bin/d"),
            "d");
}

TEST(NameOfRunningTest, DescriptorsHaveTheNameOfTheirFile) {
  const std::string argument = "/proc/self/fd/3";
  EXPECT_EQ(NameOfRunning("3", argument, "/usr/bin/redis-server"),
            "redis-server");
  // Linux 6.14 and newer.
  EXPECT_EQ(
      NameOfRunning("a-rather-long-n", argument, "/usr/bin/a-rather-long-name"),
      "a-rather-long-name");
  EXPECT_EQ(NameOfRunning("3", argument, "/memfd:a/b"), "memfd:a/b");
  EXPECT_EQ(NameOfRunning("memfd:runc_clon", "runc",
                          "/memfd:runc_cloned:/proc/self/exe"),
            "memfd:runc_cloned:/proc/self/exe");
  // An executable of that name.
  EXPECT_EQ(NameOfRunning("3", "3", "/usr/bin/3"), "3");
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

// Half a configuration was loaded after /run had been full.
TEST(LoaderStateTest, ALineWithoutAnEndSaysNothing) {
  const std::string path = testing::TempDir() + "/state";
  UniqueFd file;
  LoaderState state;
  state.made = {"/run/a", "/run/a/b"};
  state.config = "services: [one, two]\nmax_series: 40960\n";
  state.cgroup = "/sys/fs/cgroup/a b\nc";
  ASSERT_TRUE(WriteState(path, state, &file).ok());
  EXPECT_EQ(ReadState(file.get(), path)->config, state.config);
  EXPECT_EQ(ReadState(file.get(), path)->cgroup, state.cgroup);
  const off_t size = lseek(file.get(), 0, SEEK_END);
  for (off_t end = size - 1; end >= 0; --end) {
    ASSERT_EQ(ftruncate(file.get(), end), 0);
    const LoaderState found = *ReadState(file.get(), path);
    EXPECT_EQ(found.config, "") << end;
    EXPECT_THAT(found.cgroup, testing::AnyOf("", state.cgroup)) << end;
    EXPECT_LE(found.made.size(), 2u);
    for (const std::string& made : found.made) {
      EXPECT_THAT(state.made, testing::Contains(made));
    }
  }
}

// It was written in place: a load that could not went on, the next one started from the
// defaults, and register_by was gone.
TEST(LoaderStateTest, WhatCannotBeWrittenLeavesTheOldStateAndItsLock) {
  const std::string path = testing::TempDir() + "/state-and-lock";
  LoaderState state;
  state.config = "max_series: 100\n";
  UniqueFd lock;
  ASSERT_TRUE(WriteState(path, state, &lock).ok());
  const auto is_locked = [&path] {
    const UniqueFd other(open(path.c_str(), O_RDWR | O_CLOEXEC));
    return flock(other.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  };
  EXPECT_TRUE(is_locked());
  state.config = std::string(100000, 'x');
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &most);
    _exit(WriteState(path, state, &lock).message() ==
                  "write " + path + ": File too large"
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  UniqueFd there(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(there.get(), path)->config, "max_series: 100\n");
  EXPECT_TRUE(is_locked());
  EXPECT_NE(access((path + ".new").c_str(), F_OK), 0);

  // An error was taken for the end, and what the file says was overwritten.
  const UniqueFd unreadable(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(unreadable.get(), path).status().message(),
            "read " + path + ": Bad file descriptor");

  // Longer than what is read: it was written, and the next load knew nothing.
  state.config = std::string(5 << 20, 'x');
  EXPECT_EQ(WriteState(path, state, &lock).message(),
            "write " + path +
                ": the configuration is too long: 5242888 bytes of 4194304");
  EXPECT_EQ(ReadState(there.get(), path)->config, "max_series: 100\n");

  state.config = std::string(3 << 20, 'x');
  ASSERT_TRUE(WriteState(path, state, &lock).ok());
  there = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(there.get(), path)->config, state.config);
  EXPECT_TRUE(is_locked());
}

// The sockets of a cgroup that was named by another mount than the first one were
// nobody's.
TEST(PathInHierarchyTest, IsTheOneOfItsOwnMount) {
  const absl::StatusOr<std::string> root = FindCgroupRoot();
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(PathInHierarchy(*root), "");
  EXPECT_EQ(PathInHierarchy(*root + "/"), "");
  EXPECT_EQ(PathInHierarchy(*root + "/a/b"), "/a/b");
  EXPECT_EQ(PathInHierarchy(*root + "-other/a"), "");
}

// /run/nm/a and /run/nm-a had one lock, and one configuration.
TEST(LockFileTest, NoTwoPathsShareOne) {
  EXPECT_EQ(LockFile("/sys/fs/bpf/netmeter"),
            "/run/.netmeter-sys-fs-bpf-netmeter.lock");
  EXPECT_NE(LockFile("/run/nm/a"), LockFile("/run/nm-a"));
  EXPECT_EQ(LockFile("/run/nm-a"), "/run/.netmeter-run-nm\\x2da.lock");
}

// Where processes came and went, one that ended between open(2) and read(2) of its files
// ended the load by an exception. The soak found it.
TEST(ReadAllTest, AFileThatCannotBeReadIsEmpty) {
  EXPECT_EQ(ReadAll("/proc/self/mem"), "");  // EIO: nothing is mapped at 0
  EXPECT_EQ(ReadAll("/proc/self"), "");      // EISDIR
  EXPECT_EQ(ReadAll("/no such file"), "");
  EXPECT_EQ(ReadAll("/proc/self/comm"), "system_test\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
