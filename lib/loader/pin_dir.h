// SPDX-License-Identifier: BSD-3-Clause
// The pins in one pin directory: their paths, which pins may exist, and whether an
// existing pin is ours.
//
// Some pins are not in the table (lib/reader/pins.h). This one exists only while a load
// is at work, and the next load removes what a killed one left:
//
//   NAME_new   the successor of NAME, until it is renamed over NAME
//
// This one belongs to `netmeter-loader retire`:
//
//   idle       the time since when each series has counted nothing (lib/loader/retire.h)
//
// The names have underscores because bpffs reserves names with a dot.
//
// The loader never removes or replaces an object that is not ours. Other tools may share
// the BPF file system, and the name of a map proves nothing: any program may call its map
// nm_names. So the pins count as ours only together: each pin must be an object of the
// right kind and name, and there must be a link with one of our programs, an `info` with
// our magic, or a mount of our own. Pins are removed in an order in which those that are
// left are still recognized as ours (existing.cc).
//
// Threads: any; the lock of lib/loader/locked_directory.h keeps loaders apart.

#ifndef NETMETER_LIB_LOADER_PIN_DIR_H_
#define NETMETER_LIB_LOADER_PIN_DIR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {

constexpr char kIdlePin[] = "idle";

// The name of a pin's successor.
std::string NewPin(absl::string_view pin);

// Every pin that a load may leave. Links come first, `info` comes last.
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

  // The existing pins of EveryPin(). FailedPrecondition if a pin holds an object that is
  // not ours. PermissionDenied names the missing capability.
  absl::StatusOr<std::vector<std::string>> FindOurs(
      const LoaderState& state) const;

  // Pins of a newer version that this version does not know: objects with one of our
  // names at such a pin. Use it only together with FindOurs(), which proves the
  // ownership.
  std::vector<std::string> FindNewer() const;

 private:
  const std::string path_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PIN_DIR_H_
