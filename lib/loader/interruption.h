// SPDX-License-Identifier: BSD-3-Clause
// For tests: runs a function in a child process that is interrupted at one of its
// system calls. Either the process is killed before the call, or the kernel does
// not make the call and answers with an error. ptrace(2) does it, so that no
// program is needed, in a virtual machine neither.
//
//   Interruption interruption;
//   interruption.call = 17;         // the 18th
//   interruption.error = ENOMEM;    // 0: killed
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

#ifndef NETMETER_LIB_LOADER_INTERRUPTION_H_
#define NETMETER_LIB_LOADER_INTERRUPTION_H_

#include <climits>
#include <cstddef>
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

// Interrupts a command at `most` of its calls, spread evenly over calls(), which runs
// it whole. Of a run of the same calls the first one is taken. interrupt(call) returns
// false where the command made no such call: it names the processes that run, and
// fewer of them run than did when the sample was taken. That is taken anew then, a few
// times. False: not all could be interrupted.
bool InterruptSample(size_t most,
                     const std::function<std::vector<std::string>()>& calls,
                     const std::function<bool(int call)>& interrupt);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_INTERRUPTION_H_
