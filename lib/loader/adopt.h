// SPDX-License-Identifier: BSD-3-Clause
// What runs already when a meter is loaded. The programs learn who a process is
// when it executes, and whose a socket is when it is made: of those that are
// older the loader tells them.
//
// Both happen between the attaching of the programs that learn and of those
// that count, in an order that leaves no gap: first the tracing programs are
// attached, then the running processes are named, so that an exec in between is
// seen by one of the two, and what a program wrote is not overwritten. The same
// holds for sockets. Both are best effort: a process without a name is counted
// by the name of the thread that opens a socket, a socket without an owner as
// unattributed.
//
// A socket is adopted through a descriptor of our own: pidfd_getfd(2), Linux
// 5.6, duplicates it from the process that holds it, and bpf(2) takes it as the
// key of socket storage.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_ADOPT_H_
#define NETMETER_LIB_LOADER_ADOPT_H_

#include <string>

#include "absl/status/status.h"
#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"

namespace netmeter {
namespace internal {

// What could not be done, as where the kernel had no memory: for how many, and why.
struct LeftOut {
  int count = 0;
  absl::Status why;
};

// Names the processes of the host that the table does not have yet.
LeftOut NameRunningProcesses(const Config& config,
                             const Registrants& registrants,
                             const MeterObject& object);

// Gives the IP sockets that are open already to the processes of the cgroup
// that hold them.
LeftOut AdoptOpenSockets(const std::string& cgroup, const MeterObject& object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ADOPT_H_
