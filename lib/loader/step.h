// SPDX-License-Identifier: BSD-3-Clause
// The steps of a load or an unload, in words. Each step is reported when it is
// done and before the next one begins. A load may be killed between any two:
// the tests kill it after each one in turn and let the next load clean up, and
// `--verbose` prints them.
//
//   Step("pinned ", path, ": ", Describe(fd));
//
// Threads: one at a time, as the loader itself.

#ifndef NETMETER_LIB_LOADER_STEP_H_
#define NETMETER_LIB_LOADER_STEP_H_

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Is called with each step, with the names of the kernel's objects; null for
// none.
void SetStepObserver(std::function<void(const std::string& step)> observer);

bool StepsAreObserved();
void ReportStep(const std::string& step);

// Costs nothing while nobody observes; but its arguments are computed.
template <typename... Parts>
void Step(const Parts&... parts) {
  if (StepsAreObserved()) ReportStep(absl::StrCat(parts...));
}

// A step for each line of the text, with `prefix` in front.
void StepLines(absl::string_view prefix, absl::string_view text);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STEP_H_
