// SPDX-License-Identifier: BSD-3-Clause
// pthread_cancel(3) ends a thread in a system call by an exception of its own, which no
// function of ours lets pass: std::terminate() would end the process. So a thread in one
// that makes system calls is cancelled after it.
//
//   const WithoutCancellation guard;
//
// Threads: any. Costs two atomic operations; it stands nowhere that a read passes which
// makes no system call.

#ifndef NETMETER_LIB_CORE_CANCELLATION_H_
#define NETMETER_LIB_CORE_CANCELLATION_H_

#include <pthread.h>

namespace netmeter {
namespace internal {

class WithoutCancellation {
 public:
  WithoutCancellation() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~WithoutCancellation() { pthread_setcancelstate(before_, nullptr); }
  WithoutCancellation(const WithoutCancellation&) = delete;
  WithoutCancellation& operator=(const WithoutCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_CANCELLATION_H_
