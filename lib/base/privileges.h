// SPDX-License-Identifier: BSD-3-Clause
// Drops privileges: a program gives up the capabilities that it does not need as soon as
// it can. Programs that it starts cannot get them back.
//
//   absl::Status status = DropPrivileges({CAP_BPF, CAP_SYS_ADMIN});
//
// This does not use seccomp or Landlock. A seccomp filter would have to know the system
// calls of each version of libc and of libbpf. A process under Landlock may not mount,
// which `load` does, and Linux 5.10 has no Landlock. The systemd units have filters
// (packaging/debian).
//
// Threads: both calls change the calling thread only, as capset(2) and prctl(2) do.
// Existing threads keep their capabilities, and a new thread inherits those of its
// parent. So call them before there is a second thread. Threads of libraries count, too:
// call them before any call that could start one (gRPC's do).

#ifndef NETMETER_LIB_BASE_PRIVILEGES_H_
#define NETMETER_LIB_BASE_PRIVILEGES_H_

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Keeps those of the present capabilities that are in `keep` (CAP_... of
// linux/capability.h). Empties the inheritable, the ambient and the bounding set, and
// sets no_new_privs. Without CAP_SETPCAP the kernel does not allow changes of the
// bounding set. It then stays, and no_new_privs makes it useless. Any other failure is an
// error, and the program should exit.
absl::Status DropPrivileges(std::initializer_list<int> keep);

// For a program that goes on to read. Keeps nothing, or only CAP_BPF if the program has
// it and the kernel requires it to open a pinned map (before 5.19). Tests this with a
// real call, because distributions change both.
absl::Status DropPrivilegesOfReader();

// Whether bpf(2) opens a pinned map for a process without any capability. Until 5.18,
// kernel.unprivileged_bpf_disabled forbids every command of bpf(2) to such a process.
// From 5.19 on it forbids only commands that make an object ("bpf: refine
// kernel.unprivileged_bpf_disabled behaviour"). Distributions backport such changes, so
// this function makes a real call instead of comparing versions. The thread has no
// effective capability during the call.
absl::StatusOr<bool> UsersMayOpenPins();

// kernel.unprivileged_bpf_disabled; 2 if the file cannot be read.
int UnprivilegedBpfDisabled();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PRIVILEGES_H_
