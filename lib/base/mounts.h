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
  std::string root;     // the directory of the file system that is mounted
  std::string point;    // where, as this process names it
  std::string type;     // "cgroup2", "bpf"
  std::string source;   // a free text for file systems without a device
  uint64_t device = 0;  // st_dev
};

// Those of /proc/self/mountinfo, in the order in which they were mounted, as far
// as that is known: of two on one path the last one shows. Mounts of other mount
// namespaces are not in it, which is right: their paths mean nothing here.
std::vector<Mount> ReadMounts();

// The same, of a text of that form. A line that has another form is left out.
std::vector<Mount> ParseMounts(const std::string& text);

// Undoes the escapes of a field: \040 is a space, \011 a tab, \012 the end of a
// line, \134 a backslash. What is no escape stays as it is.
std::string UnescapeMount(const std::string& field);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_MOUNTS_H_
