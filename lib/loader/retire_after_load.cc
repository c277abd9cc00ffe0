// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/loader/retire.h"

namespace netmeter {
namespace internal {
namespace {

// As the timer in docs/operations.md: soon enough for what is left to fill up
// slowly, and seldom on a host that has room.
constexpr uint32_t kFullPercentAtLoad = 50;

}  // namespace

std::string RetireAfterLoad(const std::string& pin_dir) {
  RetireOptions options;
  options.pin_dir = pin_dir;
  options.full_percent = kFullPercentAtLoad;
  const absl::StatusOr<RetireResult> result = Retire(options);
  if (!result.ok()) {
    return absl::StrCat("nothing that is idle was retired: ",
                        result.status().message());
  }
  if (!result->needed) return "";
  const std::string found =
      result->series == 0 && result->names == 0
          ? "nothing was idle for an hour since a load or retire looked at it"
          : absl::StrCat("retired ", result->series, " series and ",
                         result->names, " names that were idle");
  return absl::StrCat("the tables are more than half full: ", found);
}

}  // namespace internal
}  // namespace netmeter
