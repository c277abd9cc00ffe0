// SPDX-License-Identifier: BSD-3-Clause
// What every file of the live test needs: a descriptor that closes itself, and
// an end of the whole process when something that cannot fail does. The
// janitor (janitor.h) cleans up after every kind of end.

#ifndef NETMETER_TEST_LIVE_CHECK_H_
#define NETMETER_TEST_LIVE_CHECK_H_

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace netmeter {
namespace internal {

// How long anything may take, in milliseconds. An emulated guest is slow.
constexpr int kPatienceMs = 30000;

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "live_test[%d]: %s: %s\n", getpid(), what.c_str(),
               std::strerror(errno));
  _exit(99);
}

// The result of a system call that has to succeed.
template <typename T>
T Check(T result, const std::string& what) {
  if (result < 0) Die(what);
  return result;
}

// Waits for events (poll(2)); false after kPatienceMs.
inline bool WaitFor(int fd, short events) {
  pollfd ready = {fd, events, 0};
  const int count = poll(&ready, 1, kPatienceMs);
  if (count > 0) return true;
  if (count == 0) errno = ETIMEDOUT;
  return false;
}

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_CHECK_H_
