// SPDX-License-Identifier: BSD-3-Clause
// What a program of ours may still do: it gives up the capabilities that it has no use
// for, as soon as it can, and all that a program started by it could get.
//
//   absl::Status status = DropPrivileges({CAP_BPF, CAP_SYS_ADMIN});
//
// Not seccomp, and not Landlock. A filter of system calls would have to know those of
// each version of libc and of libbpf; a process under Landlock may not mount, which
// `load` does, and 5.10 has none. The systemd units have filters (packaging/debian).
//
// Threads: both calls are about the calling thread, as capset(2) and prctl(2) are: one
// that exists already keeps all that it has, and one that is started later has what its
// parent had then. So call them before there is a second thread. What a library starts
// counts, too: no call may come before them that could (gRPC's do).

#ifndef NETMETER_LIB_BASE_PRIVILEGES_H_
#define NETMETER_LIB_BASE_PRIVILEGES_H_

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Keeps of the present capabilities those of `keep` (CAP_... of linux/capability.h).
// The inheritable, the ambient and the bounding set become empty, and no_new_privs is
// set. Without CAP_SETPCAP the kernel lets nobody change the bounding set: it stays
// then, and by no_new_privs nothing comes of it. All else that fails is an error, and
// the program should end.
absl::Status DropPrivileges(std::initializer_list<int> keep);

// For a program that goes on to read: keeps nothing, or CAP_BPF where the kernel lets
// nobody open a pinned map without it (before 5.19) and the program has it. Finds out by
// trying, as distributions change both.
absl::Status DropPrivilegesOfReader();

// Whether bpf(2) opens a pinned map for a process without any capability. Until 5.18
// kernel.unprivileged_bpf_disabled refuses every command of bpf(2) to it; from 5.19 on
// those that make an object ("bpf: refine kernel.unprivileged_bpf_disabled behaviour").
// Distributions move such changes to older kernels, so that a try says more than the
// version: the thread has no effective capability for a moment.
absl::StatusOr<bool> UsersMayOpenPins();

// kernel.unprivileged_bpf_disabled; 2 if the file cannot be read.
int UnprivilegedBpfDisabled();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PRIVILEGES_H_
