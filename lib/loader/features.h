// SPDX-License-Identifier: BSD-3-Clause
// The optional features of a meter: which are on, and why the others are off. A meter
// without one of them still counts, but with less detail. `status` shows the reason as
// long as the meter is loaded (nm_info.features and reasons).
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_FEATURES_H_
#define NETMETER_LIB_LOADER_FEATURES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"

namespace netmeter {
namespace internal {

// In the order of their NM_FEATURE_ bits.
struct Feature {
  const char* name;
  uint64_t bit;
};
const std::vector<Feature>& Features();

class FeatureSet {
 public:
  explicit FeatureSet(uint64_t bits) : bits_(bits) {}

  bool has(uint64_t bit) const { return (bits_ & bit) != 0; }
  uint64_t bits() const { return bits_; }
  // One line each, "process_tracking: not on this kernel".
  const std::string& reasons() const { return reasons_; }
  // The same lines for the user of this load.
  const std::vector<std::string>& notes() const { return notes_; }

  void TurnOn(uint64_t bit) { bits_ |= bit; }
  void TurnOff(uint64_t bit, absl::string_view reason);
  // As TurnOff(), but the next load tries the feature again, even if nothing else
  // changed.
  void TurnOffForNow(uint64_t bit, absl::string_view reason);
  bool any_off_for_now() const { return any_off_for_now_; }
  // The feature is on, but with a remark for the user.
  void Remark(uint64_t bit, absl::string_view remark);

 private:
  uint64_t bits_;
  bool any_off_for_now_ = false;
  std::string reasons_;
  std::vector<std::string> notes_;
};

// Turns off the features that the loaded programs lack on this kernel.
void TurnOffWhatItLacks(const MeterObject& object, FeatureSet* features);

// Who may read the shared maps.
struct ReadAccess {
  bool group = false;  // false: only root
  gid_t gid = 0;
};

// Decides by the configuration and the kernel. The group may read only if it cannot
// write; otherwise NM_FEATURE_GROUP_ACCESS is turned off. NotFound if the configuration
// requires a group that does not exist.
absl::StatusOr<ReadAccess> DecideAccess(const Config& config,
                                        FeatureSet* features);

// Sets owner and mode of all map pins, and of the directory if it is ours.
// PermissionDenied: needs CAP_CHOWN.
absl::Status SetModes(const PinDir& pins, const ReadAccess& access,
                      bool own_directory);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_FEATURES_H_
