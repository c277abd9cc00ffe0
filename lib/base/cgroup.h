// SPDX-License-Identifier: BSD-3-Clause
// Cgroups of v2: the root, ids, and paths in the hierarchy.
//
//   const absl::StatusOr<Cgroup> cgroup = OpenCgroup("/sys/fs/cgroup/system.slice");
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_CGROUP_H_
#define NETMETER_LIB_BASE_CGROUP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

struct Cgroup {
  std::string path;
  UniqueFd fd;
  uint64_t id = 0;
};

// The mount point of cgroup v2 whose root is the root of the hierarchy, from
// /proc/thread-self/mountinfo (cgroups(7)). NotFound says what to do.
absl::StatusOr<std::string> FindCgroupRoot();

// InvalidArgument if this is no directory of cgroup v2.
absl::StatusOr<Cgroup> OpenCgroup(const std::string& path);

// Opens the cgroup with this id through a private mount, if no path leads to it: `ip
// netns exec` hides /sys/fs/cgroup behind another /sys. Not ok, with errno, if there is
// no such cgroup or only root may open it.
UniqueFd OpenCgroupById(uint64_t id);

// Whether the cgroup with this id was removed. False if that is not known.
bool CgroupIsGone(uint64_t id);

// The cgroup v2 directory as /proc/PID/cgroup names it, derived from its mount:
// "/system.slice"; "" is the root.
std::string PathInHierarchy(const std::string& cgroup);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_CGROUP_H_
