// SPDX-License-Identifier: BSD-3-Clause
// The network namespaces of the host: those of its threads, those that ip-netns(8)
// keeps in /run/netns, and those that a process has open as a file. Does not find a
// namespace that only its sockets and interfaces keep alive.
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

// The namespace of the calling thread.
Network OwnNetwork();

// Each namespace once, that of the calling thread first. `open`: further known ones, such
// as those of Holders. *hidden: there may be others, which this process has no right to
// see (proc_pid_ns(5): PTRACE_MODE_READ_FSCREDS).
std::vector<Network> AllNetworks(const std::vector<Network>& open,
                                 bool* hidden);

// Runs body() within the namespace, and returns to the present one. PermissionDenied
// without CAP_SYS_ADMIN; NotFound if the namespace has gone meanwhile. A failure to
// return, for which no cause is known, is also an error.
absl::Status InNetwork(const Network& network,
                       const std::function<absl::Status()>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_NETWORKS_H_
