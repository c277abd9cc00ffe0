// SPDX-License-Identifier: BSD-3-Clause
// Puts the kernel part in place, or replaces the one that is there.
//
//   absl::StatusOr<LoadResult> result = Load(config);
//   result = Load(pin_dir, [](Config* config) { config->max_series = 8192; });
//
// A load is a list of steps (load.cc) over what the kernel keeps for it: maps,
// programs and links live as long as something is pinned, and not as long as
// the loader. Four rules make it one transaction:
//
// - One loader works on a pin directory at a time (the lock of transaction.h).
// - What fails is undone: nothing is left, or the old meter as it was. After the
//   point of a growth from which there is no way back, each step is tried again.
// - A load may be killed between any two steps, and the next one cleans up or
//   goes on, and then does what it is asked for itself. It knows where the other
//   one stopped by the pins that are there: `info` is pinned last, so that without
//   it all else is the rest of a killed load or unload; `info_new` comes last of
//   the successors of a growth.
// - Links come before the pins of what they write to, and the shared maps are
//   frozen before they are pinned: a reader never sees a map that is half
//   filled, or that somebody could write.
//
// An upgrade keeps the maps, so that counters go on, and replaces the programs
// one by one; with larger tables it is a growth (growth.h). If programs,
// configuration and links are as they should be, nothing is done.
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
  // kRepaired: unchanged, but what was wrong in the maps, as a note says.
  enum class Action { kLoaded, kUpgraded, kUnchanged, kRepaired };
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
absl::StatusOr<LoadResult> Load(const std::string& pin_dir,
                                const ConfigChange& change,
                                bool replaces = false);

// For tests: to tables without spare cells, with atomic adds, as older versions
// made them.
absl::StatusOr<LoadResult> LoadWithoutSpareCells(const Config& config);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOAD_H_
