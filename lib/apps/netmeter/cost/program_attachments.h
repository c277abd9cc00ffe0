// SPDX-License-Identifier: BSD-3-Clause
// Where BPF programs are attached: cgroups, the interfaces of this network namespace,
// tracepoints and other hooks. Socket filters and programs in maps are left out: the
// kernel does not tell.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_ATTACHMENTS_H_
#define NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_ATTACHMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace netmeter {
namespace internal {

// Texts by the program's id: the hook in bpftool's words, and the place.
//   cgroup_inet_egress /system.slice
//   tc ingress eth0, tcx_egress eth0, xdp eth0
//   raw_tracepoint sched_process_exec, trace_fentry tcp_sendmsg
using ProgramAttachments = std::map<uint32_t, std::set<std::string>>;

// Costs some 30 system calls for each cgroup and 8 for each interface. Leaves out what
// the kernel does not tell.
ProgramAttachments ReadProgramAttachments();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_ATTACHMENTS_H_
