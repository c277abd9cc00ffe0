// SPDX-License-Identifier: BSD-3-Clause
// Puts the kernel part in place, replaces it, takes it away. Each function is
// one transaction under a lock: what fails leaves nothing half attached, and
// what was killed half-way is cleaned up, or finished, by the next call.
//
// Threads: one at a time; libbpf's log callback is set for the process.

#ifndef NETMETER_LIB_LOADER_LOADER_H_
#define NETMETER_LIB_LOADER_LOADER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/loader/config.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

struct LoadResult {
  enum class Action { kLoaded, kUpgraded, kUnchanged };
  Action action = Action::kLoaded;
  std::string cgroup;
  std::vector<std::string> notes;  // "process_tracking is off: ..."
};

// Loads, attaches and pins, or replaces the programs of a loaded meter and
// keeps its maps, or finds that there is nothing to do.
absl::StatusOr<LoadResult> Load(const Config& config);

// Detaches, unpins, unmounts, and removes the directories that load made, if
// they are empty. *was_loaded: whether anything was there.
absl::Status Unload(const std::string& pin_dir, bool* was_loaded);

// With true, libbpf's own messages go to stderr, verifier logs included.
void SetVerbose(bool verbose);

// Is called with each step of a load or an unload that was done, in words and
// with the names of the kernel's objects; null for none.
void SetStepObserver(std::function<void(const std::string& step)> observer);

// Whether the link that is pinned there still has its program attached: to this
// cgroup, unless it is a tracing link.
bool IsAttached(const std::string& link_pin, uint64_t cgroup_id);

// Whether a load that was to grow the tables was killed half-way.
bool IsUnfinished(const std::string& pin_dir);

// The optional parts, in the order of their NM_FEATURE_ bits.
struct Feature {
  const char* name;
  uint64_t bit;
};
const std::vector<Feature>& Features();

// The file names of the pins below the pin directory.
const std::vector<std::string>& LinkPins();
const std::vector<std::string>& MapPins();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOADER_H_
