// SPDX-License-Identifier: BSD-3-Clause
// The loader's access to the system around BPF: directories, mounts, and what the host
// allows.
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_LOADER_SYSTEM_H_
#define NETMETER_LIB_LOADER_SYSTEM_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/lock_file.h"

namespace netmeter {
namespace internal {

// Whether the path is the root of a BPF file system that the loader mounted. The mount
// has our source name. 5.10 loses this name and says "none"; there the lock file's state
// decides.
bool IsOwnMount(const std::string& path,
                const LoaderState& state = LoaderState());

// Whether a BPF file system is mounted there. An error if that is not known, for example
// without memory: a wrong "no" would make a load mount over a meter.
absl::StatusOr<bool> LookForBpffs(const std::string& path);

// The names in a directory; none if there is no directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// FailedPrecondition if a file is in the way, at the path or above it. Missing
// directories are no error.
absl::Status CheckDirectory(const std::string& path);

// FailedPrecondition if the directory is on no BPF file system and not empty. The loader
// never mounts over existing files.
absl::Status CheckContents(const std::string& path);

// Creates the directory, and mounts a BPF file system on it if it is not on one.
absl::Status PrepareDirectory(const std::string& path);

// Undoes PrepareDirectory(): unmounts our mount, and removes the directories that a load
// has made if they are empty. FailedPrecondition if something foreign is in the mount: a
// file, or a mount below.
absl::Status RemoveDirectory(const std::string& path, const LoaderState& state);

// The missing directories of `path`, topmost first.
std::vector<std::string> MissingDirectories(const std::string& path);

std::string KernelRelease();

// Fails early with the reason, before the load would fail with a less helpful message. It
// tries calls and does not only look at capabilities: a container's seccomp filter, a
// security module or lockdown may refuse what capabilities allow.
absl::Status CheckHost();

// Without /proc the loader cannot see mounts, nor inspect maps.
absl::Status CheckProc();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SYSTEM_H_
