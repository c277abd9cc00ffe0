// SPDX-License-Identifier: BSD-3-Clause
// The loader's access to the system around BPF: directories, mounts, and what the host
// allows.
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_LOADER_SYSTEM_H_
#define NETMETER_LIB_LOADER_SYSTEM_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Whether a load has mounted a BPF file system at this path. The mount has our source
// name. 5.10 loses this name: there any BPF file system that is mounted at the pin
// directory itself is taken for ours (CheckConfig() refuses /sys/fs/bpf).
bool IsOwnMount(const std::string& path);

// As IsOwnMount(). FailedPrecondition if it is not, and something is in the directory:
// the loader never mounts over existing files, and nothing there is a meter's.
absl::StatusOr<bool> CheckPinDirectory(const std::string& path);

// Creates the directory if it does not exist, and mounts a BPF file system on it.
absl::Status MakePinDirectory(const std::string& path);

// Undoes MakePinDirectory(). `made`: a load has made the directory, or was about to.
// FailedPrecondition if something foreign is in our mount: a file, or a mount below.
absl::Status RemovePinDirectory(const std::string& path, bool made);

std::string KernelRelease();

// Fails early with the reason, before the load would fail with a less helpful message. It
// tries calls and does not only look at capabilities: a container's seccomp filter, a
// security module or lockdown may refuse what capabilities allow. An unload needs the
// same.
absl::Status CheckHost();

// Without /proc the loader cannot see mounts, nor inspect maps.
absl::Status CheckProc();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SYSTEM_H_
