// SPDX-License-Identifier: BSD-3-Clause
// Puts the kernel part in place, or replaces the one that is there.
//
//   absl::StatusOr<LoadResult> result = Load(config);
//   result = Load(pin_dir, [](Config* config) { config->max_series = 8192; });
//
// A load converges. All that can fail comes first: what is asked for is checked, the
// programs are loaded, the links that have to be new are attached, and only this process
// has all of that. What follows are steps that each leave a valid meter, and that may be
// made again: pin what is new, give each link its program, write `info`, hand out ids.
// So a load that is killed, or fails, in the middle leaves a meter that counts, and the
// next load, which goes through the same steps, completes it. Nothing is undone.
//
// - One loader works on a pin directory at a time (locked_directory.h).
// - While programs are being replaced, `info` has no build_id: the next load has work
//   to do, whatever it is asked for.
// - Of a first load `info` is pinned last: without it all else is the rest of one, which
//   the next load removes.
// - Tables grow by further maps (ExtentPins()). Nothing moves, so old and new programs
//   count into the same cells. Ids in the new ones are handed out last, when all programs
//   know them: each exactly once, as nm_stats says how many were.
//
// Threads: one at a time; libbpf's log callback is set for the process.

#ifndef NETMETER_LIB_LOADER_LOAD_H_
#define NETMETER_LIB_LOADER_LOAD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

struct LoadResult {
  enum class Action { kLoaded, kUpgraded, kUnchanged };
  Action action = Action::kLoaded;
  std::string cgroup;
  std::vector<std::string> notes;  // "process_tracking is off: ..."
};

// Loads, attaches and pins, or replaces the programs of a loaded meter and
// keeps its maps, or finds that there is nothing to do. The configuration
// replaces the loaded one as a whole, but for the cgroup, if it names none.
absl::StatusOr<LoadResult> Load(const Config& config);

// The same with the configuration that is loaded, or the defaults where there is
// none, after `change`. That may run twice, the second time under the lock: of
// two loads at once one changes what the other one left. FailedPrecondition where there
// is a meter and nobody knows its configuration, unless the change replaces it.
using ConfigChange = std::function<void(Config*)>;
// `restart`: unloads first, whatever the layout of its maps, and keeps the configuration.
absl::StatusOr<LoadResult> Load(const std::string& pin_dir,
                                const ConfigChange& change,
                                bool replaces = false, bool restart = false);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOAD_H_
