// SPDX-License-Identifier: BSD-3-Clause
// io_uring by its system calls: one request at a time.
//
//   Ring ring;
//   if (ring.error() != 0) return;  // this kernel has none, or refuses it
//   io_uring_sqe request = {};
//   request.opcode = IORING_OP_SEND;
//   ...
//   const int result = ring.Do(request);

#ifndef NETMETER_TEST_LIVE_RING_H_
#define NETMETER_TEST_LIVE_RING_H_

#include <linux/io_uring.h>

#include <cstdint>

#include "lib/testing/check.h"

namespace netmeter {
namespace internal {

class Ring {
 public:
  Ring();
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int error() const { return error_; }  // an errno, or 0

  // Submits the request, waits until the kernel does not need its memory any more, and
  // returns its result: a negative errno if it failed.
  int Do(const io_uring_sqe& request);

  // Sends this number of bytes. flags are the request's (IOSQE_ASYNC).
  void Send(uint8_t opcode, uint8_t flags, int fd, uint64_t bytes);

 private:
  uint32_t* At(uint32_t offset) const;

  UniqueFd fd_;
  int error_ = 0;
  io_uring_params parameters_ = {};
  char* ring_ = nullptr;  // both queues
  size_t ring_size_ = 0;
  io_uring_sqe* requests_ = nullptr;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_RING_H_
