// SPDX-License-Identifier: BSD-3-Clause
// Processes and sockets that are older than the meter. The programs learn the name of a
// process when it executes, and the owner of a socket when it is created. For older ones
// the loader tells them.
//
// At a first load both happen after the learning programs are attached and before the
// counting ones are, in an order that leaves no gap. First the tracing programs are
// attached, then the running processes are named. So an exec in between is seen by one of
// the two, and the loader does not overwrite what a program wrote. Sockets are handled in
// the same way. Both are best effort: a process without a name counts by the name of the
// thread that opens a socket, and a socket without an owner counts as unattributed.
//
// The loader reaches a pre-existing socket through a descriptor of its own:
// pidfd_getfd(2), Linux 5.6, duplicates it from the process that holds it, and bpf(2)
// takes it as the key of socket storage.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_ADOPT_H_
#define NETMETER_LIB_LOADER_ADOPT_H_

#include <string>

#include "absl/status/status.h"
#include "lib/loader/config.h"
#include "lib/loader/object.h"

namespace netmeter {
namespace internal {

// How many items failed, for example because the kernel had no memory, and why.
struct LeftOut {
  int count = 0;
  absl::Status why;
  absl::Status unreached;  // why others were not even seen
};

// Names the host's processes that are not in the table yet.
LeftOut NameRunningProcesses(const Config& config,
                             const Registrants& registrants,
                             const MeterObject& object);

// Assigns pre-existing IP sockets to the processes of the cgroup that hold them.
LeftOut AdoptOpenSockets(const std::string& cgroup, const MeterObject& object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ADOPT_H_
