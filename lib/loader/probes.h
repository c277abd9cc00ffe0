// SPDX-License-Identifier: BSD-3-Clause
// What BPF programs may do on this kernel, with the rights of this process. It cannot
// be told from the version of the kernel, as distributions add and remove: a program of
// a few instructions is loaded to find out.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROBES_H_
#define NETMETER_LIB_LOADER_PROBES_H_

#include <linux/bpf.h>

#include <cstddef>

namespace netmeter {
namespace internal {

// Whether the kernel takes this program. It is tried: libbpf_probe_bpf_helper() of
// libbpf 1.1 does not know the words by which newer kernels refuse a helper.
bool MayLoad(bpf_prog_type type, const bpf_insn* code, size_t instructions,
             bpf_attach_type attach);
template <size_t N>
bool MayLoad(bpf_prog_type type, const bpf_insn (&code)[N],
             bpf_attach_type attach = bpf_attach_type()) {
  return MayLoad(type, code, N, attach);
}

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
