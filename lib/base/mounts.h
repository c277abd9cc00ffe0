// SPDX-License-Identifier: BSD-3-Clause
// The mounts that this process sees.
//
//   for (const Mount& mount : ReadMounts()) {
//     if (mount.type == "cgroup2" && mount.root == "/") use(mount.point);
//   }
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_MOUNTS_H_
#define NETMETER_LIB_BASE_MOUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {

struct Mount {
  std::string root;     // the mounted directory of the file system
  std::string point;    // the mount point, as this process names it
  std::string type;     // "cgroup2", "bpf"
  std::string source;   // free text if the file system has no device
  uint64_t device = 0;  // st_dev
};

// The mounts of /proc/thread-self/mountinfo, in the order of mounting as far as it is
// known. If two are on one path, the last one is visible. Mounts of other mount
// namespaces are left out, because their paths mean nothing here.
std::vector<Mount> ReadMounts();

// Parses a text in the format of mountinfo. Skips lines that do not have this format.
std::vector<Mount> ParseMounts(const std::string& text);

// Undoes the escapes of a field: \040 is a space, \011 a tab, \012 the end of a line,
// \134 a backslash. Everything else stays unchanged.
std::string UnescapeMount(const std::string& field);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_MOUNTS_H_
