// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/kernel_object.h"

#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "lib/loader/loader_fixture.h"

namespace netmeter {
namespace internal {
namespace {

// From here on membarrier(2) fails in this process, as on a kernel that refuses
// it.
bool RefuseMembarrier() {
  return RefuseCall(SYS_membarrier, EINVAL) &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0) != 0;
}

TEST(KernelObjectRoot, AMapOfMapsCanBeUpdatedToWait) {
  EXPECT_TRUE(UpdateMapOfMaps().ok());
}

// It slept for 200 ms there, which is no wait for a program that was preempted.
TEST(KernelObjectRoot, WaitsByAMapWhereMembarrierIsRefused) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!RefuseMembarrier()) _exit(2);
    auto shortest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (!WaitForRunningPrograms().ok()) _exit(3);
      shortest = std::min(shortest, std::chrono::steady_clock::now() - start);
    }
    _exit(shortest < std::chrono::milliseconds(200) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 2) << "no seccomp filter";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it slept";
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
