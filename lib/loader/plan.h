// SPDX-License-Identifier: BSD-3-Clause
// What is to be loaded, as it comes to be known: by the configuration, by the host, and
// by the meter that is there.
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
  Config config;  // sizes as they will be
  TableSizes sizes;
  uint32_t num_cpus = 0;
  bool restart = false;    // unload first
  std::string types_file;  // "": the kernel shows its own
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

// The possible CPUs, and so the cells of a series.
absl::Status CountCells(Plan* plan);

// The configuration, before any of it is looked at again under the lock.
absl::Status CheckWhatIsAsked(Plan* plan);

// Where the configuration names no cgroup, a meter keeps the one that it has, or had
// before it was damaged, and a new one counts for the whole host.
absl::Status OpenDefaultCgroup(const LoaderState& before, Plan* plan);

// A meter counts for one cgroup. If that was removed and made again, the
// programs went with it, and are attached to the new one.
absl::Status CheckCgroup(const PinDir& pins, Plan* plan);

// The sizes of the tables. Existing ones stay; FailedPrecondition if they cannot grow to
// what is asked for.
absl::Status DecideSizes(const std::string& pin_dir, Plan* plan);

// Who may read, and by which ids a later load knows that nothing has changed.
absl::Status DecideIdentity(Plan* plan);

// The sizes come first, so that a reader of another version sees what it may
// read (CheckInfo() in lib/reader/shared_maps.h). `closed` is nm_command's to
// set.
nm_info MakeInfo(const Plan& plan);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PLAN_H_
