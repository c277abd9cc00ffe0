// SPDX-License-Identifier: BSD-3-Clause
// What the loader asks of the system around BPF: mounts, cgroups, groups
// and the processes that run already.
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

// A small file, such as those of /proc: what of it can be read. Not by the iterators of a
// stream, which throw where a process ends between open and read (ESRCH).
std::string ReadAll(const std::string& path);

// The mount point of cgroup v2 whose root is the hierarchy's root, from
// /proc/self/mountinfo (cgroups(7)). NotFound, with what to do about it.
absl::StatusOr<std::string> FindCgroupRoot();

// Opens a cgroup v2 directory; *id becomes its cgroup id.
absl::StatusOr<UniqueFd> OpenCgroup(const std::string& path, uint64_t* id);

// The cgroup with this id, through a mount of one's own that nobody else sees, for
// where no path leads to it: `ip netns exec` hides /sys/fs/cgroup behind another
// /sys. Not ok: there is none, or not for all but root; errno.
UniqueFd OpenCgroupById(uint64_t id);

// Whether the cgroup with this id was removed. False where that cannot be told.
bool CgroupIsGone(uint64_t id);

// Root of a BPF file system that the loader mounted itself, by the source name
// that it gave to the mount. 5.10 loses that name, and says "none": there by the state.
bool IsOwnMount(const std::string& path,
                const LoaderState& state = LoaderState());

// Whether a BPF file system is there; an error where that cannot be told, as without
// memory: who took that for none would mount over a meter. IsBpffs() says no then.
absl::StatusOr<bool> LookForBpffs(const std::string& path);
bool IsBpffs(const std::string& path);

// FailedPrecondition where the path is another mount of the BPF file system that the
// loader mounted elsewhere, as by `mount --bind`: it has another lock, and neither the
// mount nor the directory is ours.
absl::Status CheckIsNoAlias(const std::string& path);

// FailedPrecondition where a file is in the way, at the path or above it; what
// is not there yet is none.
absl::Status CheckDirectory(const std::string& path);

// FailedPrecondition where the directory is on no BPF file system and not
// empty: none will be mounted over somebody's files.
absl::Status CheckContents(const std::string& path);

// Makes the directory, and mounts a BPF file system on it if it is not on one
// already. *made_directory and *mounted tell what was done, for undoing it.
absl::Status PrepareDirectory(const std::string& path, bool* made_directory,
                              bool* mounted);

// Undoes PrepareDirectory: unmounts what the loader mounted, removes the
// directory if it is empty. Nothing there is no error. FailedPrecondition where something
// is in the way that is not ours: a file, or a mount below.
absl::Status RemoveDirectory(const std::string& path,
                             const LoaderState& state = LoaderState());

// `path` and the directories above it that are not there, topmost first.
std::vector<std::string> MissingDirectories(const std::string& path);

// Removes what of these directories is empty; the last first.
void RemoveDirectories(const std::vector<std::string>& made);

struct RunningProcess {
  uint32_t tgid;
  std::string name;       // of the executable, as exec saw it
  std::string arguments;  // argv, a NUL after each
  std::string cgroup;     // of cgroup v2: "/system.slice/ssh.service"
};

// The processes of the machine, without kernel threads. Empty in a PID
// namespace of its own, where the numbers mean nothing to the kernel part.
std::vector<RunningProcess> RunningProcesses();

struct OpenSocket {
  uint32_t tgid;    // of a process that has it open
  uint64_t cookie;  // SO_COOKIE
  int protocol;     // SO_PROTOCOL
  UniqueFd fd;      // our own, to the same socket
};

// Calls body(socket) for every IPv4 and IPv6 socket of the processes in this
// cgroup and below, once per process that holds it; a process with a higher id
// comes first, so that a service is before the init that activated it. `cgroup` is
// as PathInHierarchy() returns it.
void ForEachOpenSocket(const std::string& cgroup,
                       const std::function<void(const OpenSocket&)>& body);

// A directory of cgroup v2, as /proc/PID/cgroup calls it, by the mount that it is below:
// "/system.slice"; "" is the root.
std::string PathInHierarchy(const std::string& cgroup);

// The name that an executable, or a script, has by its thread's name, argv (a
// NUL after each) and /proc/PID/exe: the path that was executed is gone.
std::string NameOfRunning(const std::string& comm, const std::string& arguments,
                          const std::string& exe);

std::string KernelRelease();

// Refuses early, with the reason, where the load would fail later with another
// message. A try says more than the list of capabilities: a container's seccomp
// filter, a security module or lockdown may refuse what they allow.
absl::Status CheckHost();

// Without /proc nobody knows what is mounted, nor what a map is.
absl::Status CheckProc();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SYSTEM_H_
