// SPDX-License-Identifier: BSD-3-Clause
// A step after which there is no way back, or that is the way back itself, is tried
// again: the kernel may have had no memory just then, or a signal came.
//
//   absl::Status status = InAttempts([&] { return SwitchTables(pins); });
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_ATTEMPTS_H_
#define NETMETER_LIB_LOADER_ATTEMPTS_H_

#include <chrono>
#include <thread>

#include "absl/status/status.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kAttemptPause(10);

// For how long something is tried.
enum class Patience {
  kMoment,  // kAttempts, with a short pause
  kSeconds,  // for 5 s, with pauses that grow: nothing undoes what stands until then
};
constexpr int kPatientAttempts = 10;

// Whether the same may go well later: there was no memory, or a signal came.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

// The last result of `step`, which can be made again when it has failed.
template <typename Function>
absl::Status InAttempts(const Function& step,
                        Patience patience = Patience::kMoment) {
  const bool patient = patience == Patience::kSeconds;
  auto pause = kAttemptPause;
  absl::Status status = step();
  for (int i = 1; i < (patient ? kPatientAttempts : kAttempts) && !status.ok();
       i++) {
    Step("tries again: ", status.message());
    std::this_thread::sleep_for(pause);
    if (patient) pause *= 2;
    status = step();
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ATTEMPTS_H_
