// SPDX-License-Identifier: BSD-3-Clause
// Attaches programs to netfilter's FORWARD (Linux 6.4), behind all rules.
//
//   PrepareForNetfilter(skeleton->progs.nm_forward);  // before the load
//   AttachToForward(fd, kNetfilterIpv4, &link);
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_NETFILTER_H_
#define NETMETER_LIB_BASE_NETFILTER_H_

#include <bpf/libbpf.h>

#include <cstdint>

#include "absl/status/status.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// From linux/bpf.h of 6.4 and linux/netfilter.h. The headers and the libbpf of the build
// machine may be older.
constexpr auto kNetfilterProgram = static_cast<bpf_prog_type>(32);
constexpr auto kNetfilterAttach = static_cast<bpf_attach_type>(45);
constexpr uint32_t kNetfilterIpv4 = 2, kNetfilterIpv6 = 10;

// Sets the type of a program.
void PrepareForNetfilter(bpf_program* program);

// Attaches a program to FORWARD of this network namespace, at the last priority that is
// free, for one family.
absl::Status AttachToForward(int program, uint32_t family, UniqueFd* link);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_NETFILTER_H_
