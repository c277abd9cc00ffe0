// SPDX-License-Identifier: BSD-3-Clause
// Retries a step that can be repeated. The kernel may have been short of memory for a
// moment, or a signal may have come. Every error is retried, because libbpf may report
// another one: after ENOMEM it tries a map without types, and returns that EINVAL.
//
//   absl::Status status = Retry([&] { return pins.Remove(pin); });
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_RETRY_H_
#define NETMETER_LIB_LOADER_RETRY_H_

#include <chrono>
#include <thread>

#include "absl/status/status.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

constexpr int kTries = 3;
constexpr std::chrono::milliseconds kRetryPause(10);

// Whether a retry may succeed: memory was short, or a signal came.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

// Returns the last result of `step`.
template <typename Function>
absl::Status Retry(const Function& step) {
  absl::Status status = step();
  for (int i = 1; i < kTries && !status.ok(); i++) {
    Step("tries again: ", status.message());
    std::this_thread::sleep_for(kRetryPause);
    status = step();
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_RETRY_H_
