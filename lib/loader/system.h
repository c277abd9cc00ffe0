// SPDX-License-Identifier: BSD-3-Clause
// The loader's access to the system around BPF: mounts, cgroups, groups and running
// processes.
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

// Reads a small file, such as those of /proc, as far as possible. Stream iterators do not
// do: they throw if a process ends between open and read (ESRCH).
std::string ReadAll(const std::string& path);

// The mount point of cgroup v2 whose root is the root of the hierarchy, from
// /proc/self/mountinfo (cgroups(7)). NotFound says what to do.
absl::StatusOr<std::string> FindCgroupRoot();

// Opens a cgroup v2 directory; *id becomes its cgroup id.
absl::StatusOr<UniqueFd> OpenCgroup(const std::string& path, uint64_t* id);

// Opens the cgroup with this id through a private mount, if no path leads to it: `ip
// netns exec` hides /sys/fs/cgroup behind another /sys. Not ok, with errno, if there is
// no such cgroup or only root may open it.
UniqueFd OpenCgroupById(uint64_t id);

// Whether the cgroup with this id was removed. False if that is not known.
bool CgroupIsGone(uint64_t id);

// Whether the path is the root of a BPF file system that the loader mounted. The mount
// has our source name. 5.10 loses this name and says "none"; there the lock file's state
// decides.
bool IsOwnMount(const std::string& path,
                const LoaderState& state = LoaderState());

// Whether a BPF file system is mounted there. An error if that is not known, for example
// without memory: a wrong "no" would make a load mount over a meter. IsBpffs() returns
// false for errors.
absl::StatusOr<bool> LookForBpffs(const std::string& path);
bool IsBpffs(const std::string& path);

// FailedPrecondition if the path is another mount of the BPF file system that the loader
// mounted elsewhere, as by `mount --bind`. The alias has another lock, and its mount and
// directory are not ours.
absl::Status CheckIsNoAlias(const std::string& path);

// FailedPrecondition if a file is in the way, at the path or above it. Missing
// directories are no error.
absl::Status CheckDirectory(const std::string& path);

// FailedPrecondition if the directory is on no BPF file system and not empty. The loader
// never mounts over existing files.
absl::Status CheckContents(const std::string& path);

// Creates the directory, and mounts a BPF file system on it if it is not on one.
// *made_directory and *mounted tell how to undo it.
absl::Status PrepareDirectory(const std::string& path, bool* made_directory,
                              bool* mounted);

// Undoes PrepareDirectory(): unmounts our mount, and removes the directory if it is
// empty. A missing directory is no error. FailedPrecondition if something foreign is in
// the way: a file, or a mount below.
absl::Status RemoveDirectory(const std::string& path,
                             const LoaderState& state = LoaderState());

// The missing directories of `path`, topmost first.
std::vector<std::string> MissingDirectories(const std::string& path);

// Removes the empty ones of these directories, the last one first.
void RemoveDirectories(const std::vector<std::string>& made);

struct RunningProcess {
  uint32_t tgid;
  std::string name;       // of the executable, as exec saw it
  std::string arguments;  // argv, a NUL after each
  std::string cgroup;     // of cgroup v2: "/system.slice/ssh.service"
};

// The processes of the machine, without kernel threads. Empty in a private PID namespace,
// whose numbers mean nothing to the kernel part.
std::vector<RunningProcess> RunningProcesses();

struct OpenSocket {
  uint32_t tgid;    // a process that has it open
  uint64_t cookie;  // SO_COOKIE
  int protocol;     // SO_PROTOCOL
  UniqueFd fd;      // our own, to the same socket
};

// Calls body(socket) for each IPv4 and IPv6 socket of the processes in this cgroup and
// below, once per process that holds it. Processes with higher ids come first, so that a
// service precedes the init that activated it. `cgroup` is a result of PathInHierarchy().
void ForEachOpenSocket(const std::string& cgroup,
                       const std::function<void(const OpenSocket&)>& body);

// The cgroup v2 directory as /proc/PID/cgroup names it, derived from its mount:
// "/system.slice"; "" is the root.
std::string PathInHierarchy(const std::string& cgroup);

// The name of an executable or a script, from the thread's name, argv (a NUL after each)
// and /proc/PID/exe. The path that was executed is no longer known.
std::string NameOfRunning(const std::string& comm, const std::string& arguments,
                          const std::string& exe);

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
