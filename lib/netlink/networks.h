// SPDX-License-Identifier: BSD-3-Clause
// The network namespaces of the host: those of its processes, those that ip-netns(8)
// keeps in /run/netns, and those that a process has open as a file. One that nothing
// but its sockets and interfaces holds is not found.
//
// Threads: one; InNetwork() moves the calling thread for a moment.

#ifndef NETMETER_LIB_NETLINK_NETWORKS_H_
#define NETMETER_LIB_NETLINK_NETWORKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

struct Network {
  uint64_t inode = 0;  // as `ls -i /proc/PID/ns/net` shows
  std::string path;    // a file to open it by
};

// That of the calling thread.
Network OwnNetwork();

// Each once, the own one first. `open`: more that are known, as Holders knows those
// of open files. *hidden: there may be others, as
// this process may not look at all (proc_pid_ns(5): PTRACE_MODE_READ_FSCREDS).
std::vector<Network> AllNetworks(const std::vector<Network>& open,
                                 bool* hidden);

// Runs body() within the namespace, and comes back. PermissionDenied without
// CAP_SYS_ADMIN; NotFound where it has gone meanwhile. Where the way back fails,
// which no cause is known for, the error says so.
absl::Status InNetwork(const Network& network,
                       const std::function<absl::Status()>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_NETWORKS_H_
