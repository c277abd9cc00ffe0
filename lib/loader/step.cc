// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/step.h"

#include <utility>

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

}  // namespace internal
}  // namespace netmeter
