// SPDX-License-Identifier: BSD-3-Clause
// Takes a meter away: detaches, unpins, unmounts.
//
// Readers are told first (nm_info.closed), so that none takes counters that
// stand still for a quiet network. Then the links go, those of packets first,
// and the maps last, `info` at the end: whatever is left when an unload is
// killed is known as ours, and the next load or unload clears it away.
//
// Threads: one at a time; libbpf's log callback is set for the process.

#ifndef NETMETER_LIB_LOADER_UNLOAD_H_
#define NETMETER_LIB_LOADER_UNLOAD_H_

#include <string>

#include "absl/status/status.h"
#include "lib/loader/lock_file.h"

namespace netmeter {
namespace internal {

// Detaches, unpins, unmounts, and removes the directories that load made, if
// they are empty. *was_loaded: whether anything was there. It may be a meter
// that another version loaded. *note: what of others' was found below the mount, which
// then stays; empty: nothing.
absl::Status Unload(const std::string& pin_dir, bool* was_loaded,
                    std::string* note = nullptr);

// Removes pins, mount and directories of a meter, or of the rest of one, under the lock.
// It can be repeated after a kill at any point.
absl::Status RemoveMeter(const std::string& pin_dir, const LoaderState& state,
                         bool* was_loaded = nullptr,
                         std::string* note = nullptr);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_UNLOAD_H_
