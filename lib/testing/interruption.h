// SPDX-License-Identifier: BSD-3-Clause
// For tests: runs a function in a child process, and kills it before one of its system
// calls, or answers that call with an error. It uses ptrace(2), which needs no program in
// a virtual machine. test/convergence does the same to netmeter-loader, at all calls.
//
//   Interruption interruption;
//   interruption.name = "rename";
//   interruption.error = ENOSPC;    // 0: killed
//   Interrupted result = RunInterrupted(interruption, [&] { return Load(...); });
//
// Counted are the calls that may change something outside of the process. Where they
// are answered with an error, these are all calls of bpf(2), too, and those that look
// at a file by its path, but for /proc. Where the process is killed, only those of
// bpf(2) whose effect may outlive it: a map or a program that it has made, and every
// descriptor, goes with it. A kill between two other calls leaves what a kill before
// the next one of these leaves.
//
// x86-64 only. Threads: the function must not make any.

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
  int call = -1;       // the first is 0; -1: none, unless there is a name
  int error = 0;       // an errno; 0: SIGKILL
  std::string name;    // instead of a number: each call of this name,
  int but = 0;         // ... but so many at first,
  int most = INT_MAX;  // ... and so many of them
  // Instead of the error or the kill: the process stands still before the call
  // while this runs, and goes on. All calls are counted, "flock" by its name.
  std::function<void()> meanwhile = nullptr;
};

struct Interrupted {
  // Of the calls that were counted. "bpf(8)" has the command of bpf(2).
  std::vector<std::string> calls;
  bool reached =
      false;  // there was the call that was meant; it is the last one
              // of a process that was killed
  bool killed = false;
  bool ok = false;      // of what the function returned, unless it was killed
  std::string message;  // the status
};

Interrupted RunInterrupted(const Interruption& interruption,
                           const std::function<absl::Status()>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_INTERRUPTION_H_
