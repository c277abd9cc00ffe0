// SPDX-License-Identifier: BSD-3-Clause
// Finds what is pinned already in the directory of a load: a meter, nothing, or the
// leftover pins of a load or an unload that was killed.
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
  bool moved = false;  // its cgroup was removed and created again
  nm_info info = {};
  // Leftover pins of a load or an unload that was killed, or of a meter that lost its
  // info. Empty if a meter was found.
  std::vector<std::string> rest;

  bool has(uint64_t feature) const { return (info.features & feature) != 0; }
};

// Finds a complete meter, or leftover pins; with `restart` all pins are leftovers.
// FailedPrecondition if something is pinned that is not ours, or if the directory of a
// new meter is below another meter's.
absl::Status FindExisting(const PinDir& pins, const LoaderState& state,
                          bool restart, ExistingMeter* existing);

// Closes `info`, so that readers open the meter again. If the meter is of another version
// and this version's program cannot close its info, its readers stay.
absl::Status TellReaders(const PinDir& pins);

// Links that are missing. The features in `info` say which optional links must exist: a
// meter on a kernel without tracing programs misses nothing.
std::vector<std::string> FindMissingLinks(const PinDir& pins,
                                          const nm_info& info);

// Whether the leftover pins are a meter's: something still counts, or `info` is there and
// no unload has closed it. A load removes all other leftovers.
bool IsRestOfMeter(const PinDir& pins);

// Sorts pins into the order of removal: those that count packets come first, those that
// show that the pins are ours come last.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins);

// Removes the leftover pins. Tells the readers first.
absl::Status RemoveRest(const ExistingMeter& existing, const PinDir& pins);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_EXISTING_H_
