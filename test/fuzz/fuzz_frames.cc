// SPDX-License-Identifier: BSD-3-Clause
// lib/tools/frame_limiter.h: what a client sends, then two bytes of options.
// However it is cut, and whatever the budget, the same bytes pass and cost the
// same; and a refusal comes at the same frame.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lib/tools/frame_limiter.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace fuzz {
namespace {

using internal::FrameLimiter;

struct Result {
  bool refused = false;
  size_t passed = 0;
  size_t cost = 0;
};

Result Pass(const char* bytes, size_t size, size_t chunk, size_t budget) {
  FrameLimiter limiter;
  Result result;
  while (result.passed < size) {
    const size_t step = std::min(chunk, size - result.passed);
    size_t cost = 0;
    const size_t passed =
        limiter.Pass(bytes + result.passed, step, budget, &cost);
    if (passed == FrameLimiter::kRefused) {
      result.refused = true;
      return result;
    }
    FUZZ_CHECK(passed > 0 && passed <= step);
    FUZZ_CHECK(cost >= passed);
    // The preface and a payload pass as one; else one frame may exceed it.
    FUZZ_CHECK(cost <= budget + chunk + FrameLimiter::kFrameCost +
                           FrameLimiter::kHeadersCost);
    result.passed += passed;
    result.cost += cost;
  }
  return result;
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using netmeter::fuzz::Pass;
  if (size < 2) return 0;
  const char* bytes = reinterpret_cast<const char*>(data);
  const size_t chunk = 1 + data[size - 2];
  const size_t budget = 1 + 16u * data[size - 1];
  const auto bytewise = Pass(bytes, size - 2, 1, SIZE_MAX / 2);
  const auto cut = Pass(bytes, size - 2, chunk, budget);
  FUZZ_CHECK(cut.refused == bytewise.refused);
  FUZZ_CHECK(cut.passed <= bytewise.passed);
  if (!cut.refused) {
    FUZZ_CHECK(cut.passed == bytewise.passed);
    FUZZ_CHECK(cut.cost == bytewise.cost);
  }
  return 0;
}
