// SPDX-License-Identifier: BSD-3-Clause
// What BPF programs may do on this kernel, with the rights of this process. The version
// of the kernel does not tell, as distributions add and remove: a program of a few
// instructions is loaded to find out. And where the types of the kernel (BTF) are, by
// which libbpf finds the fields of its structures.
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

// Whether the kernel shows its types (CONFIG_DEBUG_INFO_BTF). Without them it has no
// tracing programs, pointers to tasks or iterators, but a file is enough to count.
bool KernelShowsTypes();

// The file with the types (key btf) that libbpf reads in place of the kernel's own: "" if
// the kernel shows its own, else `file`.
//   Unimplemented    the kernel shows none, and `file` is ""
//   NotFound, PermissionDenied, InvalidArgument    libbpf cannot read `file`
absl::StatusOr<std::string> FindKernelTypes(const std::string& file);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROBES_H_
