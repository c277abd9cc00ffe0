// SPDX-License-Identifier: BSD-3-Clause
// What is pinned already where a meter is to be loaded: a meter, nothing, or what a
// load or an unload that was killed has left.
//
// Threads: one at a time, under the lock of lib/loader/locked_directory.h.

#ifndef NETMETER_LIB_LOADER_EXISTING_H_
#define NETMETER_LIB_LOADER_EXISTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/loader/pin_dir.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

struct ExistingMeter {
  bool found = false;
  bool moved = false;  // its cgroup was removed and made again
  nm_info info = {};
  // Pins that are left of a load or an unload that was killed, or of a meter without
  // its info. No meter was found then.
  std::vector<std::string> rest;

  bool has(uint64_t feature) const { return (info.features & feature) != 0; }
};

// Finds a complete meter, or the pins that are left of one; with `restart` all pins
// are leftovers. FailedPrecondition if something is pinned that is not ours, or if the
// directory of a new meter is below another meter's.
absl::Status FindExisting(const PinDir& pins, const LoaderState& state,
                          bool restart, ExistingMeter* existing);

// Closes `info`, so that readers open again. A meter of another version whose info this
// version's program cannot close keeps its readers.
absl::Status TellReaders(const PinDir& pins);

// Links that should be there and are not. The features of the info say which of
// the optional ones should: a kernel without tracing programs misses nothing.
std::vector<std::string> FindMissingLinks(const PinDir& pins,
                                          const nm_info& info);

// Whether what is left is a meter's: something counts, or its info is there, and was not
// closed, as by an unload that was killed. A load clears away what else there is.
bool IsRestOfMeter(const PinDir& pins);

// Pins in the order in which they go: what counts packets first. What tells that the rest
// is ours is last.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins);

// Tells the readers first.
absl::Status RemoveRest(const ExistingMeter& existing, const PinDir& pins);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_EXISTING_H_
