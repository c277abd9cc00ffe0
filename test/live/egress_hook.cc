// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/egress_hook.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace netmeter {
namespace internal {

UniqueFd AttachToEgress(const Cgroup& cgroup, const bpf_insn* program,
                        uint32_t count) {
  const UniqueFd fd = LoadProgram(BPF_PROG_TYPE_CGROUP_SKB,
                                  BPF_CGROUP_INET_EGRESS, program, count);
  UniqueFd directory(open(cgroup.path().c_str(), O_RDONLY | O_CLOEXEC));
  bpf_attr attributes = {};
  attributes.link_create.prog_fd = fd.get();
  attributes.link_create.target_fd = directory.get();
  attributes.link_create.attach_type = BPF_CGROUP_INET_EGRESS;
  return UniqueFd(
      Check(static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attributes,
                                     sizeof(attributes))),
            "attach a program of the test"));
}

UniqueFd MapOfTwoNumbers(bpf_map_type type) {
  const UnlimitedLockedMemory unlimited;
  bpf_attr attributes = {};
  attributes.map_type = type;
  attributes.key_size = 4;
  attributes.value_size = 2 * sizeof(uint64_t);
  attributes.max_entries = 1;
  return UniqueFd(
      Check(static_cast<int>(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, 72)),
            "a map of the test"));
}

EgressCounter::EgressCounter(const Cgroup& cgroup, int header) {
  map_ = MapOfTwoNumbers(BPF_MAP_TYPE_ARRAY);  // bytes, packets
  const auto length = static_cast<int16_t>(offsetof(__sk_buff, len));
  const auto segments = static_cast<int16_t>(offsetof(__sk_buff, gso_segs));
  const bpf_insn program[] = {
      {BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0},
      {BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0},
      {BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0},
      {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4},
      {BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map_.get()},
      {0, 0, 0, 0, 0},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 9, 0},
      {BPF_LDX | BPF_MEM | BPF_W, 1, 6, length, 0},
      {BPF_LDX | BPF_MEM | BPF_W, 2, 6, segments, 0},
      {BPF_JMP | BPF_JNE | BPF_K, 2, 0, 1, 0},  // 0 is 1
      {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 1},
      {BPF_STX | BPF_XADD | BPF_DW, 0, 2, 8, 0},
      {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -1},
      {BPF_ALU64 | BPF_MUL | BPF_K, 2, 0, 0, header},
      {BPF_ALU64 | BPF_ADD | BPF_X, 1, 2, 0, 0},
      {BPF_STX | BPF_XADD | BPF_DW, 0, 1, 0, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  link_ = AttachToEgress(cgroup, program, sizeof(program) / sizeof(program[0]));
}

Totals EgressCounter::Read() const {
  const uint32_t key = 0;
  uint64_t value[2] = {};
  bpf_attr attributes = {};
  attributes.map_fd = map_.get();
  attributes.key = reinterpret_cast<uintptr_t>(&key);
  attributes.value = reinterpret_cast<uintptr_t>(value);
  Check(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attributes, 72), "read it");
  Totals totals;
  totals.tx_bytes = static_cast<int64_t>(value[0]);
  totals.tx_packets = static_cast<int64_t>(value[1]);
  return totals;
}

}  // namespace internal
}  // namespace netmeter
