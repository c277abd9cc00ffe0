// SPDX-License-Identifier: BSD-3-Clause
// Trace lines of a load or an unload, and the retries between them. Each line is reported
// after its step is done and before the next one begins. A load may be killed between any
// two steps: the tests kill it after each one in turn and let the next load clean up.
// `--verbose` prints the lines.
//
//   Trace("pinned ", path, ": ", Traced{fd});
//   absl::Status status = Retry([&] { return pins.Remove(pin); });
//
// Threads: one at a time, as the loader itself.

#ifndef NETMETER_LIB_LOADER_TRACE_H_
#define NETMETER_LIB_LOADER_TRACE_H_

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"

namespace netmeter {
namespace internal {

// Called for each line; null: no reader.
inline std::function<void(const std::string& line)>& TraceObserver() {
  static auto* const observer = new std::function<void(const std::string&)>;
  return *observer;
}

// An object of bpf(2) in a trace line, which Describe() looks up in the kernel.
struct Traced {
  int fd;
};

template <typename Part>
const Part& TextInTrace(const Part& part) {
  return part;
}
inline std::string TextInTrace(Traced object) { return Describe(object.fd); }

// Does nothing without an observer.
template <typename... Parts>
void Trace(const Parts&... parts) {
  if (TraceObserver()) TraceObserver()(absl::StrCat(TextInTrace(parts)...));
}

constexpr int kTries = 3;
constexpr std::chrono::milliseconds kRetryPause(10);

// Whether a retry may succeed: memory was short, or a signal came.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

// Runs `step`, which can be repeated, until it succeeds, and returns its last result.
// Every error is retried, because libbpf may report another one: after ENOMEM it tries a
// map without types, and returns that EINVAL.
template <typename Function>
absl::Status Retry(const Function& step) {
  absl::Status status = step();
  for (int i = 1; i < kTries && !status.ok(); i++) {
    Trace("tries again: ", status.message());
    std::this_thread::sleep_for(kRetryPause);
    status = step();
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_TRACE_H_
