// SPDX-License-Identifier: BSD-3-Clause
// How the packet programs may add to a CPU's own cell on this kernel: enum
// nm_adds in bpf/internal.h. An add that is not atomic loses nothing where no
// other run on the same CPU comes between its load and its store. What a kernel
// has of preemption is in its types (/sys/kernel/btf/vmlinux) and in its
// version's text, `uname -v`; both are fixed when it is built. The preemption
// model, which PREEMPT_DYNAMIC kernels change at run time, is not asked for.
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

// What is not known is as it is worst.
struct Preemption {
  // PREEMPT_RT: softirqs are tasks, and preempt each other.
  bool realtime = true;
  // A task may preempt another one in the kernel, now or later.
  bool in_kernel = true;
  // ... also within a BPF program: migrate_disable() does not keep it away.
  bool in_programs = true;
  // A program may exchange a word of memory.
  bool has_exchange = false;
};

struct Adds {
  nm_adds ingress = NM_ADDS_ATOMIC;
  nm_adds egress = NM_ADDS_ATOMIC;
};

Adds ChooseAdds(const Preemption& preemption);

// Of the kernel that runs. Tries what can be tried.
Preemption ReadPreemption();

// What is best here; atomic adds for tables without spare cells, as older
// versions made them.
Adds FindAdds();

// The part that a test can give another kernel's: its types, as in
// /sys/kernel/btf/vmlinux, and `uname -v`.
Preemption PreemptionOf(absl::string_view btf, absl::string_view version);

// "atomic", "plain", "claimed".
const char* NameOf(nm_adds adds);

// The program at the egress hook: "nm_egress" or a variant of it.
const char* EgressProgramOf(nm_adds adds);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ADDS_H_
