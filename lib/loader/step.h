// SPDX-License-Identifier: BSD-3-Clause
// Trace lines of a load or an unload. Each one is reported after its step is done and
// before the next one begins. A load may be killed between any two steps: the tests kill
// it after each one in turn and let the next load clean up. `--verbose` prints the lines.
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

// The observer is called for each step, with the names of the kernel's objects; null
// turns it off.
void SetStepObserver(std::function<void(const std::string& step)> observer);

bool StepsAreObserved();
void ReportStep(const std::string& step);

// Does nothing without an observer, but the arguments are still computed.
template <typename... Parts>
void Step(const Parts&... parts) {
  if (StepsAreObserved()) ReportStep(absl::StrCat(parts...));
}

// Reports each line of the text as a step, with `prefix` in front.
void StepLines(absl::string_view prefix, absl::string_view text);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STEP_H_
