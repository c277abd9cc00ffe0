// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/kernel_object.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>

namespace netmeter {
namespace internal {
namespace {

// From here on membarrier(2) fails in this process, as on a kernel that refuses
// it.
bool RefuseMembarrier() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0) != 0;
}

TEST(KernelObjectRoot, AMapOfMapsCanBeUpdatedToWait) {
  EXPECT_TRUE(UpdateMapOfMaps());
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
      WaitForRunningPrograms();
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
