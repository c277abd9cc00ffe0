// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/adds.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

// libbpf's btf__load_vmlinux_btf() indexes all 130,000 types, which takes 16 ms of a
// load. This code needs only a few strings.
std::string ReadKernelTypes() {
  const UniqueFd fd(open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC));
  struct stat about;
  if (!fd.ok() || fstat(fd.get(), &about) != 0) return "";
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(fd.get(), &bytes[done], bytes.size() - done);
    if (got <= 0) return "";
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// The strings of BTF: Documentation/bpf/btf.rst of the kernel. Empty if `btf` is not BTF.
absl::string_view StringsOf(absl::string_view btf) {
  btf_header header;
  if (btf.size() < sizeof(header)) return "";
  memcpy(&header, btf.data(), sizeof(header));
  const uint64_t begin = uint64_t{header.hdr_len} + header.str_off;
  if (header.magic != BTF_MAGIC || begin + header.str_len > btf.size()) {
    return "";
  }
  return btf.substr(begin, header.str_len);
}

bool Contains(absl::string_view strings, const std::string& name) {
  const std::string pattern =
      absl::StrCat(std::string(1, '\0'), name, std::string(1, '\0'));
  return !strings.empty() && memmem(strings.data(), strings.size(),
                                    pattern.data(), pattern.size()) != nullptr;
}

bool Loads(const std::vector<bpf_insn>& code) {
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_CGROUP_INET_EGRESS;
  return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "nm_probe", "GPL",
                                code.data(), code.size(), &options))
      .ok();
}

bool HasExchange() {
  return Loads({
      {BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_10, BPF_REG_0, -8, BPF_XCHG},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  });
}

}  // namespace

Adds ChooseAdds(const Preemption& preemption) {
  Adds adds;
  // Disabled bottom halves keep other programs out, except with PREEMPT_RT.
  if (!preemption.realtime) adds.ingress = NM_ADDS_PLAIN;
  if (!preemption.in_kernel || !preemption.in_programs) {
    adds.egress = NM_ADDS_PLAIN;
  } else if (preemption.has_exchange) {
    adds.egress = NM_ADDS_CLAIMED;
  }
  return adds;
}

Preemption PreemptionOf(absl::string_view btf, absl::string_view version) {
  Preemption preemption;
  const absl::string_view strings = StringsOf(btf);
  if (strings.empty() || version.empty()) return preemption;
  const auto has = [&](const char* name) { return Contains(strings, name); };
  // task_struct has the first field if bottom halves are disabled for a task and not for
  // a CPU. The second one is then the type of a semaphore. Both mean CONFIG_PREEMPT_RT,
  // also with the patches for 5.10. `uname -v` says it as well.
  preemption.realtime = has("softirq_disable_cnt") || has("rwbase_rt") ||
                        absl::StrContains(version, "PREEMPT_RT");
  // task_struct.rcu_read_lock_nesting means CONFIG_PREEMPT_RCU, which came with
  // CONFIG_PREEMPTION up to 6.12. With PREEMPT_LAZY alone `uname -v` still has the word
  // (init/Makefile, CONFIG_PREEMPT_BUILD).
  preemption.in_kernel = preemption.realtime || has("rcu_read_lock_nesting") ||
                         absl::StrContains(version, "PREEMPT");
  // Up to 5.14 migrate_disable(), which surrounds each program, was preempt_disable().
  // Since then a task counts its calls if there is more than one CPU. With one CPU (no
  // "SMP" in `uname -v`) it does nothing.
  preemption.in_programs = preemption.realtime || has("migration_disabled") ||
                           !absl::StrContains(version, " SMP");
  return preemption;
}

Preemption ReadPreemption() {
  const std::string btf = ReadKernelTypes();
  utsname name;
  Preemption preemption =
      PreemptionOf(btf, uname(&name) == 0 ? name.version : "");
  preemption.has_exchange = HasExchange();
  return preemption;
}

Adds FindAdds() { return ChooseAdds(ReadPreemption()); }

const char* NameOf(nm_adds adds) {
  switch (adds) {
    case NM_ADDS_ATOMIC:
      return "atomic";
    case NM_ADDS_PLAIN:
      return "plain";
    case NM_ADDS_CLAIMED:
      return "claimed";
  }
  return "unknown";
}

const char* EgressProgramOf(nm_adds adds) {
  return adds == NM_ADDS_CLAIMED ? "nm_egress_claim" : "nm_egress";
}

}  // namespace internal
}  // namespace netmeter
