// SPDX-License-Identifier: BSD-3-Clause
// For tests: runs a function in a child process, and kills the child before one of its
// system calls or makes that call fail. It uses ptrace(2), which needs no program in a
// virtual machine. test/convergence does this to netmeter-loader at all calls.
//
//   Interruption interruption;
//   interruption.name = "rename";
//   interruption.error = ENOSPC;    // 0: killed
//   Interrupted result = RunInterrupted(interruption, [&] { return Load(...); });
//
// It counts the calls that may change something outside of the process. To inject
// errors it also counts all calls of bpf(2), and those that look up a path outside of
// /proc. To kill it counts only those calls of bpf(2) whose effect may outlive the
// process: maps, programs and descriptors that the process has made end with it. A kill
// between two other calls leaves the same state as a kill before the next counted one.
//
// x86-64 only. Threads: the function must not start any.

#ifndef NETMETER_LIB_TESTING_INTERRUPTION_H_
#define NETMETER_LIB_TESTING_INTERRUPTION_H_

#include <climits>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

struct Interruption {
  int call = -1;       // the number of the call, from 0; -1: use `name`
  int error = 0;       // an errno; 0: SIGKILL
  std::string name;    // in place of a number: each call of this name,
  int but = 0;         // ... except this many at first,
  int most = INT_MAX;  // ... and at most this many
  // In place of the error or the kill: the process stops before the call while this
  // runs, and then goes on. All calls are counted, "flock" by its name.
  std::function<void()> meanwhile = nullptr;
};

struct Interrupted {
  // The counted calls. "bpf(8)" is bpf(2) with command 8.
  std::vector<std::string> calls;
  bool reached = false;  // the call in question was made; it is the last one
                         // of a process that was killed
  bool killed = false;
  bool ok = false;  // whether the function returned OK, unless it was killed
  std::string message;  // the status
};

Interrupted RunInterrupted(const Interruption& interruption,
                           const std::function<absl::Status()>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_INTERRUPTION_H_
