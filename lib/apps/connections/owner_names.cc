// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/owner_names.h"

#include <time.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "bpf/owner.h"
#include "lib/base/clock.h"
#include "lib/base/proc.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kKeptNs = 100000000;

std::optional<std::string> NameOf(uint32_t pid, uint32_t start) {
  if (start == 0) return std::nullopt;
  std::string name;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/comm")), name);
  // Afterwards: if the process still runs now, the name was its own.
  const std::optional<uint64_t> ticks = StartOfProcess(pid);
  if (!ticks.has_value() || NM_START(*ticks) != start) return std::nullopt;
  return name;
}

}  // namespace

const std::optional<std::string>& OwnerNames::Find(uint32_t pid,
                                                   uint32_t start) {
  const uint64_t now_ns = ClockNs(CLOCK_MONOTONIC);
  if (now_ns - since_ns_ > kKeptNs) {
    names_.clear();
    since_ns_ = now_ns;
  }
  const auto [found, made] =
      names_.try_emplace(uint64_t{start} << 32 | pid, std::nullopt);
  if (made) found->second = NameOf(pid, start);
  return found->second;
}

}  // namespace internal
}  // namespace netmeter
