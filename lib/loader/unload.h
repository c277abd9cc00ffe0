// SPDX-License-Identifier: BSD-3-Clause
// Removes a meter: detaches, unpins, unmounts.
//
// Readers are told first (nm_info.closed), so that they do not take stopped counters for
// a quiet network. Then the links go, then the maps, and `info` at the end. So if an
// unload is killed, the next load or unload removes the leftover pins.
//
// Threads: one at a time; an unload sets libbpf's log callback for the whole process.

#ifndef NETMETER_LIB_LOADER_UNLOAD_H_
#define NETMETER_LIB_LOADER_UNLOAD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/loader/pin_dir.h"

namespace netmeter {
namespace internal {

// Detaches, unpins, unmounts, and removes the pin directory. The meter may be of another
// version. *was_loaded: whether anything was there. *note: foreign pins below the mount,
// which then stays; empty: none. FailedPrecondition if a load has not made the directory,
// and something is in it.
absl::Status Unload(const std::string& pin_dir, bool* was_loaded,
                    std::string* note = nullptr);

// Closes `info`, so that readers open the meter again. The meter's own program does that,
// whatever version it is of. Without its pin, readers are not told.
absl::Status TellReaders(const PinDir& pins);

// Removes these pins of a meter, complete or not. Call TellReaders() before. *removed:
// whether one was there. `waits`: until the kernel has freed the programs.
absl::Status RemovePins(const PinDir& pins,
                        const std::vector<std::string>& found,
                        bool* removed = nullptr, bool waits = true);

// Removes all pins, the mount and the directories, under the lock. Both can be repeated
// after a kill at any point.
absl::Status RemoveMeter(const LockedDirectory& directory,
                         bool* removed = nullptr, std::string* note = nullptr);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_UNLOAD_H_
