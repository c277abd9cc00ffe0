// SPDX-License-Identifier: BSD-3-Clause
// What BPF programs may do on this kernel, with the rights of this process. It cannot
// be told from the version of the kernel, as distributions add and remove: a program of
// a few instructions is loaded to find out.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROBES_H_
#define NETMETER_LIB_LOADER_PROBES_H_

#include <linux/bpf.h>

namespace netmeter {
namespace internal {

bool HelperExists(bpf_prog_type type, bpf_func_id helper);

// Whether a program of a socket may follow it to its MPTCP socket.
bool MayFollowMptcp();

// Whether such a program may read the error of a TCP socket.
bool MayReadErrors();

// Whether a packet program may ask for the network namespace of the packet's socket.
bool MayAskForNetworks();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROBES_H_
