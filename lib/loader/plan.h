// SPDX-License-Identifier: BSD-3-Clause
// What a load is about to do. The configuration, the host and the loaded meter fill in
// the plan step by step.
//
//   Plan plan;
//   NETMETER_RETURN_IF_ERROR(CheckWhatIsAsked(&plan));
//   ...                                   // finds plan.existing, under the lock
//   NETMETER_RETURN_IF_ERROR(DecideIdentity(&plan));
//   nm_info info = MakeInfo(plan);
//
// Changes nothing on the host.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_PLAN_H_
#define NETMETER_LIB_LOADER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/loader/adds.h"
#include "lib/loader/config.h"
#include "lib/loader/existing.h"
#include "lib/loader/features.h"
#include "lib/loader/links.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/system.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

struct Plan {
  Config config;  // with the final sizes
  TableSizes sizes;
  uint32_t num_cpus = 0;
  bool restart = false;    // unload first
  std::string types_file;  // empty: the kernel shows its own
  Adds adds;
  Cgroup cgroup;
  ExistingMeter existing;
  ReadAccess access;
  Registrants registrants;
  FeatureSet features{NM_FEATURE_SOCKET_TABLE | NM_FEATURE_CONTROL |
                      NM_FEATURE_PROCESS_TRACKING | NM_FEATURE_GROUP_ACCESS |
                      NM_FEATURE_MPTCP | NM_FEATURE_PLACES};
  uint64_t build_id = 0;
  uint64_t config_id = 0;
  SettingList loaded;  // before this load; empty if not known
  std::vector<std::string> notes;
};

// Counts the possible CPUs, which is the number of cells of a series.
absl::Status CountCells(Plan* plan);

// Checks the configuration before the load takes the lock and looks at it again.
absl::Status CheckWhatIsAsked(Plan* plan);

// Chooses the cgroup if the configuration names none. A meter keeps its cgroup, or that
// of before it was damaged. A new meter counts for the whole host.
absl::Status OpenDefaultCgroup(const LoaderState& before, Plan* plan);

// A meter counts for one cgroup. If this cgroup was removed and created again, its
// programs are gone, and the load attaches them to the new cgroup.
absl::Status CheckCgroup(const PinDir& pins, Plan* plan);

// Decides the sizes of the tables. Existing tables keep their entries. FailedPrecondition
// if they cannot grow to the requested size.
absl::Status DecideSizes(const std::string& pin_dir, Plan* plan);

// Decides who may read, and the ids by which a later load sees that nothing has changed.
absl::Status DecideIdentity(Plan* plan);

// The sizes come first in the struct, so that a reader of another version knows how much
// it may read (CheckInfo() in lib/reader/shared_maps.h). Only nm_command sets `closed`.
nm_info MakeInfo(const Plan& plan);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PLAN_H_
