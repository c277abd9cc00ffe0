// SPDX-License-Identifier: BSD-3-Clause
// A file descriptor that closes itself.

#ifndef NETMETER_LIB_BASE_UNIQUE_FD_H_
#define NETMETER_LIB_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace netmeter {
namespace internal {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_UNIQUE_FD_H_
