// SPDX-License-Identifier: BSD-3-Clause
// Whether this host can have a meter at all.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_HOST_H_
#define NETMETER_LIB_LOADER_HOST_H_

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

// Refuses early, with the reason, where the load would fail later with another
// message. A try says more than the list of capabilities: a container's seccomp
// filter, a security module or lockdown may refuse what they allow.
absl::Status CheckHost();

// Without /proc nobody knows what is mounted, nor what a map is.
absl::Status CheckProc();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_HOST_H_
