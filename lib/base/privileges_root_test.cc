// SPDX-License-Identifier: BSD-3-Clause
// Checks the privileges of a program that a process executes after it dropped its own.
// lib/apps/netmeter/privileges_root_test.py checks the programs themselves.
#include "lib/base/privileges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <sstream>
#include <string>

namespace netmeter {
namespace internal {
namespace {

// Changes the calling thread, which is root with all capabilities of its bounding set.
bool GiveUpCapSetpcap() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_SETPCAP);
  data[0].permitted &= ~(1U << CAP_SETPCAP);
  return syscall(SYS_capset, &header, data) == 0;
}

// {field: value} of /proc/PID/status of a program that a child executes, as root, after
// `before`. Empty if that fails.
std::map<std::string, std::string> StatusOfExecuted(
    const std::function<bool()>& before) {
  std::map<std::string, std::string> fields;
  int ends[2];
  if (pipe(ends) != 0) return fields;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    if (before()) execl("/bin/cat", "cat", "/proc/self/status", nullptr);
    _exit(1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  ssize_t count;
  while ((count = read(ends[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  std::istringstream lines(text);
  std::string key, value;
  while (std::getline(lines, key, ':') && std::getline(lines, value)) {
    // A list may be empty.
    fields[key] = value.substr(std::min(value.size(), size_t{1}));
  }
  return fields;
}

uint64_t Bits(const std::string& text) {
  return std::stoull(text, nullptr, 16);
}

// An exec by root restores the capabilities of the bounding set. The documentation
// promised that DropPrivileges() always empties it, but that needs CAP_SETPCAP. Without
// CAP_SETPCAP no_new_privs prevents the restoring.
TEST(DropPrivileges, NoProgramGetsBackWhatTheBoundingSetHas) {
  auto fields = StatusOfExecuted([] { return GiveUpCapSetpcap(); });
  ASSERT_NE(fields.size(), 0u);
  const uint64_t bounding = Bits(fields["CapBnd"]);
  ASSERT_NE(bounding, 0u);
  EXPECT_EQ(Bits(fields["CapEff"]), bounding)
      << "no exec of root gives it back";

  fields = StatusOfExecuted(
      [] { return GiveUpCapSetpcap() && DropPrivileges({}).ok(); });
  ASSERT_NE(fields.size(), 0u);
  EXPECT_EQ(Bits(fields["CapBnd"]), bounding);
  EXPECT_EQ(fields["NoNewPrivs"], "1");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_EQ(Bits(fields[set]), 0u) << set;
  }

  fields = StatusOfExecuted([] { return DropPrivileges({}).ok(); });
  ASSERT_NE(fields.size(), 0u);
  EXPECT_EQ(fields["NoNewPrivs"], "1");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_EQ(Bits(fields[set]), 0u) << set;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
