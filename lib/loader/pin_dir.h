// SPDX-License-Identifier: BSD-3-Clause
// The pin directory: its lock, its pins, and the meter that is loaded there.
//
// Some pins are not in the table (lib/reader/pins.h). This one exists only
// while a load is at work, and the next load removes what a killed one left:
//
//   NAME_new   the successor of NAME, until it is renamed over NAME
//
// This one belongs to `netmeter-loader retire`:
//
//   idle       the time since when each series has counted nothing
//   (lib/loader/retire.h)
//
// The names have underscores because bpffs reserves names with a dot.
//
// The loader never removes or replaces an object that is not ours. Other tools
// may share the BPF file system, and the name of a map proves nothing: any
// program may call its map nm_names. So the pins count as ours only together:
// each pin must be an object of the right kind and name, and there must be a
// link with one of our programs, an `info` with our magic, or a mount of our
// own. Pins are removed in an order in which those that are left are still
// recognized as ours (OrderOfRemoval()).
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
#include "lib/loader/system.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

constexpr char kIdlePin[] = "idle";

// The name of a pin's successor.
std::string NewPin(absl::string_view pin);

// Every pin that a load may leave.
std::vector<std::string> EveryPin();

class PinDir {
 public:
  explicit PinDir(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view pin) const;

  bool Has(absl::string_view pin) const;

  // If one of MapPins() is missing, the error says that the meter is damaged.
  absl::StatusOr<UniqueFd> Open(absl::string_view pin) const;

  // Each function below reports a trace line when it is done.
  absl::Status Pin(int fd, absl::string_view pin) const;
  // Replaces the pinned object atomically, by way of NewPin(pin).
  absl::Status Replace(int fd, absl::string_view pin) const;

  // A missing pin is no error.
  absl::Status Remove(absl::string_view pin) const;

  // The pins that are ours: of EveryPin(), and of a newer version, which this
  // one does not know. FailedPrecondition if a pin of EveryPin() holds an
  // object that is not ours. PermissionDenied names the missing capability.
  absl::StatusOr<std::vector<std::string>> FindOurs(
      const LoaderState& state) const;

 private:
  const std::string path_;
};

// Sorts pins into the order of removal: those that count packets come first,
// those that show that the pins are ours come last.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins);

// Whether pins without a complete meter are what is left of one: something
// still counts, or `info` is there and no unload has closed it. A load removes
// all other leftovers.
bool HasLeftoverMeter(const PinDir& pins);

struct LoadedMeter {
  bool found = false;
  bool moved = false;  // its cgroup was removed and created again
  nm_info info = {};
  // The pins of a load or an unload that was killed, or of a meter that lost
  // its info. Empty if a meter was found.
  std::vector<std::string> leftover;

  bool has(uint64_t feature) const { return (info.features & feature) != 0; }
};

// Finds a complete meter, or leftover pins; with `restart` all pins are
// leftovers. FailedPrecondition if something is pinned that is not ours, or if
// the meter is of another ABI.
absl::StatusOr<LoadedMeter> FindMeter(const PinDir& pins,
                                      const LoaderState& state, bool restart);

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
  // Whether a load mounted this directory.
  bool is_own() const { return IsOwnMount(pins_.path(), state_); }

  // Creates the directory, and mounts a BPF file system there if it is not on one. The
  // lock file is written first, so that an unload removes what a killed load has created.
  absl::Status Make();

  // Saves the configuration of this load, from which the next load starts.
  absl::Status KeepConfig(const std::string& yaml, const std::string& cgroup);

  // After an unload.
  void ForgetState() { state_ = LoaderState(); }

 private:
  explicit LockedDirectory(const std::string& pin_dir) : pins_(pin_dir) {}
  absl::Status WriteDown();

  const PinDir pins_;
  UniqueFd lock_;
  LoaderState state_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PIN_DIR_H_
