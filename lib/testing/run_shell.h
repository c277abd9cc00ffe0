// SPDX-License-Identifier: BSD-3-Clause
// Runs programs from outside, for their tests.
//
//   const ShellResult result = RunShell("lib/apps/netmeter/netmeter --version 2>&1");
//
// Threads: any.

#ifndef NETMETER_LIB_TESTING_RUN_SHELL_H_
#define NETMETER_LIB_TESTING_RUN_SHELL_H_

#include <string>

namespace netmeter {
namespace internal {

struct ShellResult {
  int exit_status;     // -1: ended by a signal
  std::string output;  // standard output
};

ShellResult RunShell(const std::string& command);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_RUN_SHELL_H_
