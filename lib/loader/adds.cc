// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/adds.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

// libbpf's btf__load_vmlinux_btf() indexes all 130,000 types, which takes 16 ms
// of a load; some strings and one id are wanted here.
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

// The two parts of BTF: Documentation/bpf/btf.rst of the kernel.
struct Sections {
  absl::string_view types;
  absl::string_view strings;
};

Sections SectionsOf(absl::string_view btf) {
  Sections sections;
  btf_header header;
  if (btf.size() < sizeof(header)) return sections;
  memcpy(&header, btf.data(), sizeof(header));
  const uint64_t types = uint64_t{header.hdr_len} + header.type_off;
  const uint64_t strings = uint64_t{header.hdr_len} + header.str_off;
  if (header.magic != BTF_MAGIC || types + header.type_len > btf.size() ||
      strings + header.str_len > btf.size()) {
    return sections;
  }
  sections.types = btf.substr(types, header.type_len);
  sections.strings = btf.substr(strings, header.str_len);
  return sections;
}

// Where a name is among the strings, each of which is there once; 0: nowhere.
uint32_t OffsetOf(absl::string_view strings, const std::string& name) {
  if (strings.empty()) return 0;
  const std::string pattern =
      absl::StrCat(std::string(1, '\0'), name, std::string(1, '\0'));
  const void* found =
      memmem(strings.data(), strings.size(), pattern.data(), pattern.size());
  return found == nullptr
             ? 0
             : static_cast<uint32_t>(static_cast<const char*>(found) -
                                     strings.data() + 1);
}

// Bytes of what follows a btf_type; more than any BTF has: not known.
uint64_t BytesBehind(const btf_type& type) {
  const uint64_t count = BTF_INFO_VLEN(type.info);
  switch (BTF_INFO_KIND(type.info)) {
    case BTF_KIND_INT:
      return sizeof(uint32_t);
    case BTF_KIND_ARRAY:
      return sizeof(struct btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
      return count * sizeof(struct btf_member);
    case BTF_KIND_ENUM:
      return count * sizeof(struct btf_enum);
    case BTF_KIND_ENUM64:
      return count * sizeof(struct btf_enum64);
    case BTF_KIND_FUNC_PROTO:
      return count * sizeof(struct btf_param);
    case BTF_KIND_VAR:
      return sizeof(struct btf_var);
    case BTF_KIND_DATASEC:
      return count * sizeof(struct btf_var_secinfo);
    case BTF_KIND_DECL_TAG:
      return sizeof(struct btf_decl_tag);
    case BTF_KIND_PTR:
    case BTF_KIND_FWD:
    case BTF_KIND_TYPEDEF:
    case BTF_KIND_VOLATILE:
    case BTF_KIND_CONST:
    case BTF_KIND_RESTRICT:
    case BTF_KIND_FUNC:
    case BTF_KIND_FLOAT:
    case BTF_KIND_TYPE_TAG:
      return 0;
  }
  return UINT32_MAX;
}

bool Loads(const std::vector<bpf_insn>& code) {
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_CGROUP_INET_EGRESS;
  return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "nm_probe", "GPL",
                                code.data(), code.size(), &options))
      .ok();
}

// That a kernel has the functions does not say that this program may call them:
// the interpreter calls none.
bool MayDisablePreemption(absl::string_view btf) {
  const auto id = [&](const char* name) {
    return static_cast<int32_t>(FindFunction(btf, name));
  };
  const int32_t disable = id("bpf_preempt_disable"),
                enable = id("bpf_preempt_enable");
  if (disable == 0 || enable == 0) return false;
  return Loads({
      {BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, disable},
      {BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, enable},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  });
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
  // Bottom halves that are disabled keep others out, but for PREEMPT_RT.
  if (!preemption.realtime) adds.ingress = NM_ADDS_PLAIN;
  // From the cheapest on: an exchange is one atomic instruction, where the two
  // calls of a fence cost as much as several (test/benchmark.sh datapath).
  if (!preemption.in_kernel || !preemption.in_programs) {
    adds.egress = NM_ADDS_PLAIN;
  } else if (preemption.has_exchange) {
    adds.egress = NM_ADDS_CLAIMED;
  } else if (preemption.may_disable) {
    adds.egress = NM_ADDS_FENCED;
  }
  return adds;
}

uint32_t FindFunction(absl::string_view btf, const std::string& name) {
  const Sections sections = SectionsOf(btf);
  const uint32_t wanted = OffsetOf(sections.strings, name);
  if (wanted == 0) return 0;
  uint32_t id = 1;
  for (uint64_t at = 0; at + sizeof(btf_type) <= sections.types.size(); ++id) {
    btf_type type;
    memcpy(&type, sections.types.data() + at, sizeof(type));
    if (type.name_off == wanted && BTF_INFO_KIND(type.info) == BTF_KIND_FUNC) {
      return id;
    }
    at += sizeof(type) + BytesBehind(type);
  }
  return 0;
}

Preemption PreemptionOf(absl::string_view btf, absl::string_view version) {
  Preemption preemption;
  const absl::string_view strings = SectionsOf(btf).strings;
  if (strings.empty() || version.empty()) return preemption;
  const auto has = [&](const char* name) {
    return OffsetOf(strings, name) != 0;
  };
  // task_struct has the first where bottom halves are disabled for a task and
  // not for a CPU, and struct mutex the second: CONFIG_PREEMPT_RT, which the
  // patches for 5.10 have, too. `uname -v` says it as well.
  preemption.realtime = has("softirq_disable_cnt") || has("rtmutex") ||
                        absl::StrContains(version, "PREEMPT_RT");
  // task_struct.rcu_read_lock_nesting is CONFIG_PREEMPT_RCU, which came with
  // CONFIG_PREEMPTION up to 6.12. With PREEMPT_LAZY alone `uname -v` still has
  // the word (init/Makefile, CONFIG_PREEMPT_BUILD).
  preemption.in_kernel = preemption.realtime || has("rcu_read_lock_nesting") ||
                         absl::StrContains(version, "PREEMPT");
  // Up to 5.14 migrate_disable(), which is around each program, was
  // preempt_disable(). Since then a task counts its calls, if there is more than
  // one CPU; with one (no "SMP" in `uname -v`) it is nothing.
  preemption.in_programs = preemption.realtime || has("migration_disabled") ||
                           !absl::StrContains(version, " SMP");
  return preemption;
}

Preemption ReadPreemption() {
  const std::string btf = ReadKernelTypes();
  utsname name;
  Preemption preemption =
      PreemptionOf(btf, uname(&name) == 0 ? name.version : "");
  preemption.may_disable = MayDisablePreemption(btf);
  preemption.has_exchange = HasExchange();
  return preemption;
}

const char* NameOf(nm_adds adds) {
  switch (adds) {
    case NM_ADDS_ATOMIC:
      return "atomic";
    case NM_ADDS_PLAIN:
      return "plain";
    case NM_ADDS_FENCED:
      return "fenced";
    case NM_ADDS_CLAIMED:
      return "claimed";
  }
  return "unknown";
}

const char* EgressProgramOf(nm_adds adds) {
  return adds == NM_ADDS_FENCED    ? "nm_egress_fence"
         : adds == NM_ADDS_CLAIMED ? "nm_egress_claim"
                                   : "nm_egress";
}

}  // namespace internal
}  // namespace netmeter
