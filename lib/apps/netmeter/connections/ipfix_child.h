// SPDX-License-Identifier: BSD-3-Clause
// Runs netmeter-ipfix on what this process prints.
//
//   const auto child = StartIpfix({"192.0.2.1:4739"});
//   ... print flow records as protobuf ...
//   return FinishIpfix(*child);
//
// Threads: one. The caller must not ignore SIGCHLD, because the kernel would reap it.

#ifndef NETMETER_LIB_APPS_NETMETER_CONNECTIONS_IPFIX_CHILD_H_
#define NETMETER_LIB_APPS_NETMETER_CONNECTIONS_IPFIX_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Starts it with these arguments. Afterwards, standard output is a pipe to it. NotFound
// if it is not installed.
absl::StatusOr<pid_t> StartIpfix(const std::vector<std::string>& arguments);

// Ends standard output, and waits until the child has sent all. Returns the child's exit
// status.
int FinishIpfix(pid_t child);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_CONNECTIONS_IPFIX_CHILD_H_
