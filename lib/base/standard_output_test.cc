// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/standard_output.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace netmeter {
namespace internal {
namespace {

// Any process that shares a pipe may make it non-blocking. If the pipe is full, the
// writer loses nothing and does not spin until the reader has made room.
TEST(StandardOutputTest, WaitsForTheSlowReaderOfANonBlockingPipe) {
  std::string text;
  for (int i = 0; text.size() < 500000; i++) text += std::to_string(i) + "\n";
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
  ASSERT_GT(fcntl(fds[1], F_SETPIPE_SZ, 1 << 16), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (dup2(fds[1], STDOUT_FILENO) < 0) _exit(2);
    close(fds[0]);
    _exit(WriteToStandardOutput(text).ok() ? 0 : 1);
  }
  close(fds[1]);
  // Takes a second and a half: the pipe is full at first, and after each read.
  std::string got;
  char buffer[1 << 15];
  ssize_t count = 1;
  while (count > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    count = read(fds[0], buffer, sizeof(buffer));
    if (count > 0) got.append(buffer, static_cast<size_t>(count));
  }
  close(fds[0]);
  int status = 0;
  rusage used = {};
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(got == text) << got.size() << " of " << text.size() << " bytes";
  const auto busy_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                       used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  EXPECT_LT(busy_us, 200000);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
