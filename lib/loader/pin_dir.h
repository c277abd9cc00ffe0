// SPDX-License-Identifier: BSD-3-Clause
// The pins below one pin directory: their paths, what may be there, and whether
// what is there is ours.
//
// Beside the pins of the table (lib/reader/pins.h) there are some that exist only
// while a load is at work, and whose presence tells the next load how far a
// killed one had come:
//
//   NAME_new   the successor of NAME, before it is renamed over it
//
// and one that `netmeter-loader retire` keeps for itself:
//
//   idle       since when each series has counted nothing (lib/loader/retire.h)
//
// bpffs reserves names with a dot for itself, hence the underscores.
//
// Nothing that is not ours is ever removed or replaced. A directory of a BPF
// file system may be shared with other tools, and the name of a map proves
// nothing: the kernel lets anybody call his map nm_names. So the pins count as
// ours only together: each one must be an object of the right kind and name,
// and there must be a link with a program of ours, an `info` with our magic, or
// a mount of our own. Whoever removes pins keeps to the order of EveryPin(), so
// that what a kill leaves behind is still known as ours.
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
constexpr char kInterfacesPin[] = "interfaces";

// The name of a pin's successor.
std::string NewPin(absl::string_view pin);

// Every pin that a load may leave, links first, `info` last.
std::vector<std::string> EveryPin();

class PinDir {
 public:
  explicit PinDir(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view pin) const;

  bool Has(absl::string_view pin) const;

  // Whether what is pinned at `at`, a path below this one, is an object that belongs at
  // `pin`. Users may open nothing: they see whether it is a file of root's.
  absl::StatusOr<bool> IsOurs(absl::string_view at,
                              absl::string_view pin) const;
  // The same; what cannot be looked at is taken for ours.
  bool HasOurs(absl::string_view at, absl::string_view pin) const;

  // Where one of MapPins() is missing the error says that the meter is damaged.
  absl::StatusOr<UniqueFd> Open(absl::string_view pin) const;

  // Each reports a step when it is done.
  absl::Status Pin(int fd, absl::string_view pin) const;
  // Replaces what is pinned there in one step, by way of NewPin(pin).
  absl::Status Replace(int fd, absl::string_view pin) const;

  // Nothing there is no error.
  absl::Status Remove(absl::string_view pin) const;

  // The pins of EveryPin() that are there. FailedPrecondition if one holds
  // something else than ours. PermissionDenied, with the capability that is missing.
  absl::StatusOr<std::vector<std::string>> FindOurs(
      const LoaderState& state) const;

  // Of a newer version, which pins what this one does not know: objects that have the
  // name of ours at such a pin. Only of use beside what FindOurs() has found.
  std::vector<std::string> FindNewer() const;

 private:
  const std::string path_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PIN_DIR_H_
