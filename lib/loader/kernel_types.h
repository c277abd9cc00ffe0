// SPDX-License-Identifier: BSD-3-Clause
// The types of the kernel (BTF). The programs are built for no kernel in particular:
// libbpf puts in where a field is by the types of the kernel that runs.
//
// A kernel that was built without them (CONFIG_DEBUG_INFO_BTF) may be given a file with
// them (key btf of the configuration). That is enough to count. What the kernel itself
// does by its types it goes on to refuse: tracing programs, pointers to tasks, iterators.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_KERNEL_TYPES_H_
#define NETMETER_LIB_LOADER_KERNEL_TYPES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Whether the kernel shows its own.
bool KernelShowsTypes();

// The file that stands in for them: "" if the kernel shows its own, else `file`, if it
// can serve.
//   Unimplemented    the kernel shows none, and `file` is ""
//   all else         as CheckTypesFile()
absl::StatusOr<std::string> FindKernelTypes(const std::string& file);

// Whether this is a file of BTF, or an ELF file that has some, with the types of a
// kernel on such a machine. That they are of this very kernel nothing in them tells.
// Damaged types are refused here: libbpf would look through some of them for minutes.
// Never waits. NotFound, PermissionDenied, InvalidArgument.
absl::Status CheckTypesFile(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_KERNEL_TYPES_H_
