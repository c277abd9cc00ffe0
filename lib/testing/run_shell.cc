// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/run_shell.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

namespace netmeter {
namespace internal {

ShellResult RunShell(const std::string& command) {
  ShellResult result = {-1, ""};
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return result;
  char buffer[1024];
  size_t count;
  while ((count = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    result.output.append(buffer, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  return result;
}

}  // namespace internal
}  // namespace netmeter
