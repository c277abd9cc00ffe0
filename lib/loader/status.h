// SPDX-License-Identifier: BSD-3-Clause
// What is loaded, by whom, how full it is and what was lost: the answer of
// `netmeter-loader status`.

#ifndef NETMETER_LIB_LOADER_STATUS_H_
#define NETMETER_LIB_LOADER_STATUS_H_

#include <string>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

enum class MeterState {
  kLoaded,
  kNotLoaded,
  kDamaged,  // a load or an unload was killed, or pins were removed
};

struct StatusReport {
  MeterState state = MeterState::kNotLoaded;
  std::string text;  // for people, some twenty lines
  std::string json;  // for programs, one object
};

// PermissionDenied where the pins cannot be read; FailedPrecondition where
// they are of another ABI version. Needs the group for most, root for all.
absl::StatusOr<StatusReport> GetStatus(const std::string& pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STATUS_H_
