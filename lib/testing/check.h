// SPDX-License-Identifier: BSD-3-Clause
// The end of a live test or a benchmark if something fails that it needs itself: the
// whole process ends, with a message. A test that goes on without its network would
// measure nothing. Nothing of a live test stays after any end: the janitor of child.h, a
// process of its own, removes everything. Bazel kills the janitor with all other
// processes of a test, so a test that ends in order waits for it.

#ifndef NETMETER_LIB_TESTING_CHECK_H_
#define NETMETER_LIB_TESTING_CHECK_H_

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// The limit of any single step, in milliseconds. It is long because an emulated guest is
// slow; a step that succeeds does not wait for it.
constexpr int kTimeoutMs = 30000;

// For the test's first process: waits until the janitor has removed everything. Null in
// the others.
inline void (*await_janitor)() = nullptr;

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "%s[%d]: %s\n", program_invocation_short_name, getpid(),
               what.c_str());
  if (await_janitor != nullptr) await_janitor();
  _exit(99);
}

[[noreturn]] inline void DieWithErrno(const std::string& what) {
  Die(what + ": " + std::strerror(errno));
}

// The result of a system call that has to succeed.
template <typename T>
T Check(T result, const std::string& what) {
  if (result < 0) DieWithErrno(what);
  return result;
}

// Waits for events (poll(2)); false after kTimeoutMs.
inline bool WaitFor(int fd, short events) {
  pollfd ready = {fd, events, 0};
  const int count = poll(&ready, 1, kTimeoutMs);
  if (count > 0) return true;
  if (count == 0) errno = ETIMEDOUT;
  return false;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_CHECK_H_
