// SPDX-License-Identifier: BSD-3-Clause
// Processes, as /proc shows them to this process.
//
// A process is not its main thread. /proc/PID has the files of the main thread, and most
// of them are empty once that thread has called pthread_exit(3), although other threads
// go on. A thread may also have descriptors or a network namespace of its own
// (unshare(2), setns(2)).
//
//   ForEachProcess([](uint32_t pid) {
//     ForEachTable(pid, [](const Thread& thread) {
//       ForEachDescriptor(thread, [](uint32_t fd, absl::string_view link) { ... });
//     });
//   });
//
// Nothing is called for what has ended, or may not be looked at.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_PROC_H_
#define NETMETER_LIB_BASE_PROC_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

struct Thread {
  uint32_t pid = 0;
  uint32_t tid = 0;    // the main thread has that of the process
  std::string folder;  // "/proc/7" for the main thread, else "/proc/7/task/9"
};

void ForEachProcess(const std::function<void(uint32_t pid)>& body);

// The main thread comes first, also if it has ended.
void ForEachThread(uint32_t pid,
                   const std::function<void(const Thread&)>& body);

// One thread for each table of descriptors that the process has. Without the right to
// call kcmp(2), all threads: tables then come more than once. Costs one system call for a
// process of one thread. A further thread costs one more if all share a table, and about
// log2(n) if the process has n tables.
void ForEachTable(uint32_t pid, const std::function<void(const Thread&)>& body);

// `link` is what readlink(2) tells, cut to 63 bytes: "socket:[123]". Returns false if
// this process has no right to see some of them (CAP_SYS_PTRACE).
bool ForEachDescriptor(
    const Thread& thread,
    const std::function<void(uint32_t fd, absl::string_view link)>& body);

// For pidfd_getfd(2) from the thread's table. Threads other than the main one need Linux
// 6.9 (PIDFD_THREAD); before, opening fails (EINVAL).
UniqueFd OpenThread(uint32_t pid, uint32_t tid);

// The folder of a thread that has what all threads share: memory, executable, command
// line, user, cgroup. "/proc/7", unless the main thread has ended. Costs a system call.
std::string FolderOfProcess(uint32_t pid);

// When a process started, in clock ticks after boot; empty if it has ended. The kernel
// uses a process id again, but not with this time. In a time namespace of its own, this
// process sees a time that differs from the kernel's.
std::optional<uint64_t> StartOfProcess(uint32_t pid);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PROC_H_
