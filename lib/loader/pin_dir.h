// SPDX-License-Identifier: BSD-3-Clause
// The pin directory: its lock and its pins. meter_state.h finds the meter there.
//
// Some pins are not in the table (lib/base/pins.h):
//
//   NAME_new   the successor of NAME, until it is renamed over NAME. A load that was
//              killed may leave it, and the next load replaces it.
//   command    the program nm_command, by which an unload tells readers of the end
//   idle       for `netmeter-loader evict` (lib/evict/evict.h): the time since when
//              each series has counted nothing
//
// The names have underscores because bpffs reserves names with a dot.
//
// The directory is a BPF file system that a load has mounted, so pins with our names are
// ours. What else is pinned there stays, and so does the mount then.
//
// Threads: one at a time. Two loaders on one directory wait for each other.

#ifndef NETMETER_LIB_LOADER_PIN_DIR_H_
#define NETMETER_LIB_LOADER_PIN_DIR_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/lock_file.h"

namespace netmeter {
namespace internal {

constexpr char kCommandPin[] = "command";
constexpr char kIdlePin[] = "idle";

// The name of a pin's successor.
std::string NewPin(absl::string_view pin);

// Every pin that a load may leave.
std::vector<std::string> EveryPin();

class PinDir {
 public:
  // `hidden`: Has(), OpenIfPinned() and Open() find no pin, for a new meter that is made
  // beside the one here.
  explicit PinDir(std::string path, bool hidden = false)
      : path_(std::move(path)), hidden_(hidden) {}

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view pin) const;

  bool Has(absl::string_view pin) const;

  // The descriptor is empty if there is no such pin.
  absl::StatusOr<UniqueFd> OpenIfPinned(absl::string_view pin) const;
  // If one of MapPins() is missing, the error says that the meter is damaged.
  absl::StatusOr<UniqueFd> Open(absl::string_view pin) const;

  // Each function below reports a trace line when it is done.
  absl::Status Pin(int fd, absl::string_view pin) const;  // unless it exists
  // Replaces the pinned object atomically, by way of NewPin(pin).
  absl::Status Replace(int fd, absl::string_view pin) const;

  // A missing pin is no error.
  absl::Status Remove(absl::string_view pin) const;

  // The pins of EveryPin(), and those of a newer version, which this one does not know.
  absl::StatusOr<std::vector<std::string>> Find() const;

 private:
  const std::string path_;
  const bool hidden_;
};

// A pin directory under its lock, with the state that the lock file holds for
// the next loader.
class LockedDirectory {
 public:
  // Takes the lock. Creates only the lock file, which the destructor removes if
  // it holds no state.
  static absl::StatusOr<std::unique_ptr<LockedDirectory>> Lock(
      const std::string& pin_dir);
  ~LockedDirectory();

  const PinDir& pins() const { return pins_; }
  const LoaderState& state() const { return state_; }

  // MakePinDirectory(), unless a load has done that. Call KeepConfig() first, so that an
  // unload removes what a killed load has created.
  absl::Status Make() const;

  // Saves the configuration of this load, from which the next load starts.
  absl::Status KeepConfig(const std::string& yaml, const std::string& cgroup);

  // After an unload, or a first load that failed.
  void ForgetState() { state_ = LoaderState(); }

 private:
  explicit LockedDirectory(const std::string& pin_dir) : pins_(pin_dir) {}

  const PinDir pins_;
  UniqueFd lock_;
  LoaderState state_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PIN_DIR_H_
