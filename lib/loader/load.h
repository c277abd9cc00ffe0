// SPDX-License-Identifier: BSD-3-Clause
// Loads the kernel part, or replaces the one that is loaded.
//
//   absl::StatusOr<LoadResult> result = Load(config);
//   result = Load(pin_dir, [](Config* config) { config->max_series = 8192; });
//
// A load converges. Everything that can fail comes first: MakePlan() checks the
// configuration, Prepare() loads the programs, fills new maps, and attaches new links.
// Until then only this process holds these objects, and the loaded meter is as it was,
// except that its tables may have new names. Each later step leaves a valid meter and can
// be repeated. Upgrade() pins the new maps, marks `info` as unfinished and gives each
// link its program. Install() mounts the directory, and pins the links and maps of a
// new meter. Finish() writes `info` and hands out ids. So if a load fails or is killed in
// the middle, the meter still counts, and the next load repeats the steps and completes
// it. A first load that fails is removed again.
//
// What a load does depends on the state of the meter (meter_state.h). If a new meter
// replaces an old one, the load saves the new configuration, and RemoveOldMeter() removes
// the old pins once the new meter counts. From there on only a pin can fail, for lack of
// memory. Then no meter is left.
//
// - Only one loader works on a pin directory at a time (pin_dir.h).
// - While programs are being replaced, `info` has no build_id. So the next load always
//   has work to do, even if its configuration is the same. A first load pins `info` last.
// - Tables grow by additional maps (ExtentPins()). Nothing moves, so old and new programs
//   count into the same cells. Ids in the new maps are handed out last, when all programs
//   know these maps. Each id is handed out exactly once, because nm_stats holds how many
//   were.
//
// Threads: one at a time; a load sets libbpf's log callback for the whole process.

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

// Loads, attaches and pins a new meter; or replaces the programs of a loaded meter and
// keeps its maps; or finds that there is nothing to do. The configuration replaces the
// loaded one as a whole. Exception: if it names no cgroup, the meter keeps its cgroup.
absl::StatusOr<LoadResult> Load(const Config& config);

// Loads with the loaded configuration (the defaults if no meter is loaded) after `change`
// was applied to it. `change` runs under the lock, so that two concurrent loads do not
// undo each other's changes. FailedPrecondition if there is a
// meter whose configuration is not known, unless `replaces` says that the change sets all
// of it.
using ConfigChange = std::function<void(Config*)>;
// `restart`: removes the loaded meter once a new one counts, whatever the layout of its
// maps, and keeps the configuration. Its counters end.
absl::StatusOr<LoadResult> Load(const std::string& pin_dir,
                                const ConfigChange& change,
                                bool replaces = false, bool restart = false);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOAD_H_
