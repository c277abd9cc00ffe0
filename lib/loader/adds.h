// SPDX-License-Identifier: BSD-3-Clause
// Chooses how packet programs may add to a CPU's own cell on this kernel: enum nm_adds in
// bpf/internal.h. A non-atomic add loses nothing if no other run on the same CPU comes
// between its load and its store. The preemption options of a kernel show in its types
// (/sys/kernel/btf/vmlinux) and in its version text, `uname -v`; both are fixed at build
// time. The preemption model, which PREEMPT_DYNAMIC kernels change at run time, does not
// matter.
//
//   const Adds adds = ChooseAdds(ReadPreemption());
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_LOADER_ADDS_H_
#define NETMETER_LIB_LOADER_ADDS_H_

#include "absl/strings/string_view.h"
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

// Each field defaults to the worst case.
struct Preemption {
  // PREEMPT_RT: softirqs are tasks, and preempt each other.
  bool realtime = true;
  // A task may preempt another task in the kernel, now or after a later change.
  bool in_kernel = true;
  // This includes BPF programs: migrate_disable() does not prevent it.
  bool in_programs = true;
  // A program may exchange a word of memory.
  bool has_exchange = false;
};

struct Adds {
  nm_adds ingress = NM_ADDS_ATOMIC;
  nm_adds egress = NM_ADDS_ATOMIC;
};

Adds ChooseAdds(const Preemption& preemption);

// Reads the properties of the running kernel, by tests if possible.
Preemption ReadPreemption();

// The best method on this host.
Adds FindAdds();

// Separate from ReadPreemption(), so that tests can pass the types
// (/sys/kernel/btf/vmlinux) and the `uname -v` of other kernels.
Preemption PreemptionOf(absl::string_view btf, absl::string_view version);

// "atomic", "plain", "claimed".
const char* NameOf(nm_adds adds);

// The program at the egress hook: "nm_egress" or a variant of it.
const char* EgressProgramOf(nm_adds adds);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ADDS_H_
