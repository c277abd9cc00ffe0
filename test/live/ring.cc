// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/ring.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

constexpr uint32_t kEntries = 8;

template <typename T>
T* Map(int fd, size_t size, uint64_t offset) {
  void* memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  if (memory == MAP_FAILED) DieWithErrno("map the ring");
  return static_cast<T*>(memory);
}

}  // namespace

Ring::Ring() {
  fd_ = UniqueFd(
      static_cast<int>(syscall(SYS_io_uring_setup, kEntries, &parameters_)));
  if (fd_.get() < 0) {
    error_ = errno;
    return;
  }
  // IORING_FEAT_SINGLE_MMAP, from 5.4 on: both queues by one call.
  ring_size_ = std::max<size_t>(
      parameters_.sq_off.array + parameters_.sq_entries * sizeof(uint32_t),
      parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe));
  ring_ = Map<char>(fd_.get(), ring_size_, IORING_OFF_SQ_RING);
  requests_ = Map<io_uring_sqe>(fd_.get(), kEntries * sizeof(io_uring_sqe),
                                IORING_OFF_SQES);
}

Ring::~Ring() {
  if (ring_ != nullptr) munmap(ring_, ring_size_);
  if (requests_ != nullptr) munmap(requests_, kEntries * sizeof(io_uring_sqe));
}

uint32_t* Ring::At(uint32_t offset) const {
  return reinterpret_cast<uint32_t*>(ring_ + offset);
}

int Ring::Do(const io_uring_sqe& request) {
  const auto& sq = parameters_.sq_off;
  const auto& cq = parameters_.cq_off;
  const uint32_t tail = *At(sq.tail);
  const uint32_t slot = tail & *At(sq.ring_mask);
  requests_[slot] = request;
  At(sq.array)[slot] = slot;
  __atomic_store_n(At(sq.tail), tail + 1, __ATOMIC_RELEASE);
  int result = 0;
  // A zero-copy request completes twice: sent, and its memory free again.
  bool more = true;
  for (uint32_t submit = 1, first = 1; more; submit = 0) {
    Check(syscall(SYS_io_uring_enter, fd_.get(), submit, 1,
                  IORING_ENTER_GETEVENTS, nullptr, 0),
          "io_uring_enter");
    uint32_t head = *At(cq.head);
    for (; more && head != __atomic_load_n(At(cq.tail), __ATOMIC_ACQUIRE);
         ++head, first = 0) {
      const auto& done = reinterpret_cast<const io_uring_cqe*>(
          ring_ + cq.cqes)[head & *At(cq.ring_mask)];
      if (first != 0) result = done.res;
      more = (done.flags & IORING_CQE_F_MORE) != 0;
    }
    __atomic_store_n(At(cq.head), head, __ATOMIC_RELEASE);
  }
  return result;
}

void Ring::Send(uint8_t opcode, uint8_t flags, int fd, uint64_t bytes) {
  const std::vector<char> data(1 << 15, 'x');
  while (bytes > 0) {
    io_uring_sqe request = {};
    request.opcode = opcode;
    request.flags = flags;
    request.fd = fd;
    request.addr = reinterpret_cast<uintptr_t>(data.data());
    request.len = std::min<uint64_t>(bytes, data.size());
    const int sent = Do(request);
    errno = -sent;
    bytes -= Check(sent, "send by io_uring");
  }
}

}  // namespace internal
}  // namespace netmeter
