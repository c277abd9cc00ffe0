// SPDX-License-Identifier: BSD-3-Clause
// The pin directory, under its lock: the directories and the mount that a load creates,
// and the state that the lock file holds for the next loader.
//
// Threads: one at a time. Two loaders on one directory wait for each other.

#ifndef NETMETER_LIB_LOADER_LOCKED_DIRECTORY_H_
#define NETMETER_LIB_LOADER_LOCKED_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {

// How long to wait for another loader.
constexpr int kLockSeconds = 30;

class LockedDirectory {
 public:
  // Takes the lock. Creates only the lock file, which the destructor removes if it holds
  // no state.
  static absl::StatusOr<std::unique_ptr<LockedDirectory>> Lock(
      const std::string& pin_dir);
  ~LockedDirectory();

  const PinDir& pins() const { return pins_; }
  const LoaderState& state() const { return state_; }
  // Whether a load created this directory.
  bool is_own() const { return IsOwnMount(pins_.path(), state_); }

  // Creates the directory, and mounts a BPF file system there if it is not on one. The
  // lock file is written first, so that an unload removes what a killed load has created.
  absl::Status Make();

  // Saves the configuration of this load, from which the next load starts.
  absl::Status KeepConfig(const std::string& yaml, const std::string& cgroup);

 private:
  explicit LockedDirectory(const std::string& pin_dir) : pins_(pin_dir) {}
  absl::Status WriteDown();

  const PinDir pins_;
  UniqueFd lock_;
  LoaderState state_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOCKED_DIRECTORY_H_
