// SPDX-License-Identifier: BSD-3-Clause
// The optional parts of a meter: which are on, and why the others are off. A
// meter without one of them counts, but knows less; `status` says so for as
// long as it is loaded (nm_info.features and reasons).
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
  // A line each, "process_tracking: not on this kernel".
  const std::string& reasons() const { return reasons_; }
  // The same for the user of this load.
  const std::vector<std::string>& notes() const { return notes_; }

  void TurnOn(uint64_t bit) { bits_ |= bit; }
  void TurnOff(uint64_t bit, absl::string_view reason);
  // The same, of what the next load is to try again, whatever else is as it was.
  void TurnOffForNow(uint64_t bit, absl::string_view reason);
  bool any_off_for_now() const { return any_off_for_now_; }
  // It is on, but there is something to be said.
  void Remark(uint64_t bit, absl::string_view remark);

 private:
  uint64_t bits_;
  bool any_off_for_now_ = false;
  std::string reasons_;
  std::vector<std::string> notes_;
};

// The parts that this kernel's programs, as they were loaded, do without.
void TurnOffWhatItLacks(const MeterObject& object, FeatureSet* features);

// Who may read the shared maps.
struct ReadAccess {
  bool group = false;  // or root alone
  gid_t gid = 0;
};

// By the configuration and by what the kernel allows: the group may read only
// where it cannot write. Turns NM_FEATURE_GROUP_ACCESS off where it may not.
// NotFound if there is no such group, and the configuration requires it.
absl::StatusOr<ReadAccess> DecideAccess(const Config& config,
                                        FeatureSet* features);

// Gives the pins of all maps their owner and mode; and the directory, if it is ours.
// PermissionDenied: needs CAP_CHOWN.
absl::Status SetModes(const PinDir& pins, const ReadAccess& access,
                      bool own_directory);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_FEATURES_H_
