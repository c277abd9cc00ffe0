// SPDX-License-Identifier: BSD-3-Clause
// What BPF programs may do on this kernel, with the rights of this process. The kernel
// version does not tell, because distributions add and remove features. So the probes
// load programs of a few instructions. This file also finds the kernel's types (BTF), by
// which libbpf finds the fields of kernel structures.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROBES_H_
#define NETMETER_LIB_LOADER_PROBES_H_

#include <linux/bpf.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Whether the kernel accepts this program. libbpf_probe_bpf_helper() of libbpf 1.1 is not
// enough, because it does not know how newer kernels report a refused helper.
bool MayLoad(bpf_prog_type type, const bpf_insn* code, size_t instructions,
             bpf_attach_type attach);
template <size_t N>
bool MayLoad(bpf_prog_type type, const bpf_insn (&code)[N],
             bpf_attach_type attach = bpf_attach_type()) {
  return MayLoad(type, code, N, attach);
}

bool HelperExists(bpf_prog_type type, bpf_func_id helper);

// Whether a socket program may follow a socket to its MPTCP socket.
bool MayFollowMptcp();

// Whether a socket program may read the error of a TCP socket.
bool MayReadErrors();

// Whether a packet program may ask for the network namespace of the packet's socket.
bool MayAskForNetworks();

// Whether the kernel shows its types (CONFIG_DEBUG_INFO_BTF). Without them there are no
// tracing programs, pointers to tasks or iterators, but a file with types is enough for
// counting.
bool KernelShowsTypes();

// The file with types (key btf) that libbpf reads if the kernel shows none: "" if the
// kernel shows its own, else `file`.
//   Unimplemented    the kernel shows none, and `file` is ""
//   NotFound, PermissionDenied, InvalidArgument    libbpf cannot read `file`
absl::StatusOr<std::string> FindKernelTypes(const std::string& file);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROBES_H_
