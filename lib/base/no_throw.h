// SPDX-License-Identifier: BSD-3-Clause
// The library never throws. An exception of the standard library for lack of memory ends
// here and becomes a Status. Partial results are freed.
//
//   return WithoutThrowing([&] { return reader.ReadAll(); });
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_NO_THROW_H_
#define NETMETER_LIB_BASE_NO_THROW_H_

#include <pthread.h>

#include <exception>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

// ResourceExhausted; without a text if there is no memory even for the text.
inline absl::Status OutOfMemory() noexcept {
  try {
    return absl::ResourceExhaustedError("not enough memory");
  } catch (const std::exception&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

// Calls function(), which returns an absl::Status or StatusOr.
template <typename Function>
auto WithoutThrowing(const Function& function) noexcept
    -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

// pthread_cancel(3) ends a thread in a system call by an exception of glibc's own. That
// exception may not leave our noexcept functions: std::terminate() would end the process.
// So this guard delays the cancellation of a thread until its system calls are done.
//
//   const WithoutCancellation guard;
//
// Threads: any. Costs two atomic operations. Reads that make no system call do not use
// it.

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

#endif  // NETMETER_LIB_BASE_NO_THROW_H_
