// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/step.h"

#include <utility>

#include "absl/strings/str_split.h"

namespace netmeter {
namespace internal {
namespace {

std::function<void(const std::string&)>* g_observer = nullptr;  // never freed

}  // namespace

void SetStepObserver(std::function<void(const std::string&)> observer) {
  if (g_observer == nullptr) {
    g_observer = new std::function<void(const std::string&)>;
  }
  *g_observer = std::move(observer);
}

bool StepsAreObserved() { return g_observer != nullptr && *g_observer; }

void ReportStep(const std::string& step) {
  if (StepsAreObserved()) (*g_observer)(step);
}

void StepLines(absl::string_view prefix, absl::string_view text) {
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    Step(prefix, line);
  }
}

}  // namespace internal
}  // namespace netmeter
