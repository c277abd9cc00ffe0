// SPDX-License-Identifier: BSD-3-Clause
// The object as others see it: the names and kinds of programs and maps, and that
// each build makes the same bytes.
#include <bpf/bpf.h>
#include <bpf/btf.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/program/fixture.h"
// This source, compiled by another target in another folder.
#include "netmeter_again.skel.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kLongestName = 15;  // BPF_OBJ_NAME_LEN without the NUL

class Object : public testing::Test {
 protected:
  void SetUp() override {
    skeleton_.reset(netmeter_bpf__open());
    ASSERT_NE(skeleton_, nullptr);
    btf_ = bpf_object__btf(skeleton_->obj);
    ASSERT_NE(btf_, nullptr);
  }

  std::unique_ptr<netmeter_bpf, void (*)(netmeter_bpf*)> skeleton_{
      nullptr, netmeter_bpf__destroy};
  const btf* btf_ = nullptr;
};

// --- Programs ----------------------------------------------------------------

struct ProgramKind {
  std::string section;
  bpf_prog_type type;
  bpf_attach_type attach;

  bool operator==(const ProgramKind& other) const {
    return section == other.section && type == other.type &&
           attach == other.attach;
  }
};

void PrintTo(const ProgramKind& kind, std::ostream* out) {
  *out << kind.section << ", type " << kind.type << ", attach " << kind.attach;
}

TEST_F(Object, ProgramsAreTheseAndNoOthers) {
  const std::map<std::string, ProgramKind> expected = {
      {"nm_ingress",
       {"cgroup_skb/ingress", BPF_PROG_TYPE_CGROUP_SKB,
        BPF_CGROUP_INET_INGRESS}},
      {"nm_egress",
       {"cgroup_skb/egress", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS}},
      {"nm_egress_claim",
       {"cgroup_skb/egress", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS}},
      {"nm_sock_create",
       {"cgroup/sock_create", BPF_PROG_TYPE_CGROUP_SOCK,
        BPF_CGROUP_INET_SOCK_CREATE}},
      {"nm_sock_release",
       {"cgroup/sock_release", BPF_PROG_TYPE_CGROUP_SOCK,
        BPF_CGROUP_INET_SOCK_RELEASE}},
      {"nm_sockops", {"sockops", BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS}},
      {"nm_setsockopt",
       {"cgroup/setsockopt", BPF_PROG_TYPE_CGROUP_SOCKOPT,
        BPF_CGROUP_SETSOCKOPT}},
      {"nm_exec",
       {"tp_btf/sched_process_exec", BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP}},
      {"nm_fork",
       {"tp_btf/sched_process_fork", BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP}},
      {"nm_exit",
       {"tp_btf/sched_process_exit", BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP}},
      {"nm_command",
       {"tc", BPF_PROG_TYPE_SCHED_CLS, static_cast<bpf_attach_type>(0)}},
      {"nm_scan",
       {"iter/bpf_sk_storage_map", BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER}},
  };
  std::map<std::string, ProgramKind> found;
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton_->obj) {
    EXPECT_LE(std::strlen(bpf_program__name(program)), kLongestName);
    found[bpf_program__name(program)] = {
        bpf_program__section_name(program), bpf_program__type(program),
        bpf_program__expected_attach_type(program)};
  }
  EXPECT_EQ(found, expected);
}

// --- Maps --------------------------------------------------------------------

struct MapKind {
  bpf_map_type type;
  size_t key_size;
  size_t value_size;
  uint32_t flags;

  bool operator==(const MapKind& other) const {
    return type == other.type && key_size == other.key_size &&
           value_size == other.value_size && flags == other.flags;
  }
};

void PrintTo(const MapKind& kind, std::ostream* out) {
  *out << "type " << kind.type << ", key " << kind.key_size << ", value "
       << kind.value_size << ", flags " << kind.flags;
}

TEST_F(Object, MapsAreTheseAndNoOthers) {
  const std::map<std::string, MapKind> expected = {
      {"nm_counters", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_cell), BPF_F_MMAPABLE}},
      {"nm_tcp", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_tcp), BPF_F_MMAPABLE}},
      {"nm_counters_1",
       {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_cell), BPF_F_MMAPABLE}},
      {"nm_counters_2",
       {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_cell), BPF_F_MMAPABLE}},
      {"nm_counters_3",
       {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_cell), BPF_F_MMAPABLE}},
      {"nm_tcp_1", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_tcp), BPF_F_MMAPABLE}},
      {"nm_tcp_2", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_tcp), BPF_F_MMAPABLE}},
      {"nm_tcp_3", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_tcp), BPF_F_MMAPABLE}},
      {"nm_names_1", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_name), BPF_F_MMAPABLE}},
      {"nm_names_2", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_name), BPF_F_MMAPABLE}},
      {"nm_names_3", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_name), BPF_F_MMAPABLE}},
      {"nm_names", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_name), BPF_F_MMAPABLE}},
      {"nm_stats", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_stats), BPF_F_MMAPABLE}},
      {"nm_info", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_info), BPF_F_MMAPABLE}},
      {"nm_series",
       {BPF_MAP_TYPE_HASH, sizeof(nm_series_key), sizeof(nm_series_value),
        BPF_F_NO_PREALLOC}},
      {"nm_free_slots", {BPF_MAP_TYPE_QUEUE, 0, 4, 0}},
      {"nm_free_names", {BPF_MAP_TYPE_QUEUE, 0, 4, 0}},
      {"nm_name_ids",
       {BPF_MAP_TYPE_HASH, sizeof(nm_name_key), 4, BPF_F_NO_PREALLOC}},
      {"nm_processes", {BPF_MAP_TYPE_HASH, 4, sizeof(nm_process), 0}},
      {"nm_binaries", {BPF_MAP_TYPE_HASH, NM_NAME_BYTES, NM_NAME_BYTES, 0}},
      {"nm_units",
       {BPF_MAP_TYPE_LPM_TRIE, sizeof(nm_unit_key), sizeof(nm_unit_service),
        BPF_F_NO_PREALLOC}},
      {"nm_registrants",
       {BPF_MAP_TYPE_HASH, NM_NAME_BYTES, sizeof(nm_registrant), 0}},
      {"nm_uplink_names",
       {BPF_MAP_TYPE_LPM_TRIE, sizeof(nm_uplink_key), 4, BPF_F_NO_PREALLOC}},
      {"nm_interfaces",
       {BPF_MAP_TYPE_HASH, sizeof(nm_interface_key), sizeof(nm_interface),
        BPF_F_NO_PREALLOC}},
      {"nm_rules", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_rule), 0}},
      {"nm_sockets", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_entry), 0}},
      {"nm_namings",
       {BPF_MAP_TYPE_SK_STORAGE, 4, sizeof(nm_naming), BPF_F_NO_PREALLOC}},
      {"nm_wire_names", {BPF_MAP_TYPE_ARRAY, 4, 4, 0}},
      {"nm_users", {BPF_MAP_TYPE_ARRAY, 4, sizeof(nm_user), 0}},
      {"nm_duplicates", {BPF_MAP_TYPE_PERCPU_ARRAY, 4, 136, 0}},
      {"nm_listeners", {BPF_MAP_TYPE_LRU_HASH, 32, 20, 0}},
      {"nm_marks", {BPF_MAP_TYPE_ARRAY, 4, 4, 0}},
      {"nm_decisions", {BPF_MAP_TYPE_PERCPU_ARRAY, 4, 184, 0}},
      {".data.followers", {BPF_MAP_TYPE_ARRAY, 4, 4, BPF_F_MMAPABLE}},
      {"nm_owners",
       {BPF_MAP_TYPE_SK_STORAGE, 4, sizeof(nm_stored_owner),
        BPF_F_NO_PREALLOC | BPF_F_CLONE}},
  };
  std::map<std::string, MapKind> found;
  const bpf_map* map;
  bpf_object__for_each_map(map, skeleton_->obj) {
    // Named by libbpf: nm_config, and nm_uplinks. nm_followers is .data.followers.
    if (map == skeleton_->maps.rodata || map == skeleton_->maps.bss) continue;
    EXPECT_LE(std::strlen(bpf_map__name(map)), kLongestName);
    found[bpf_map__name(map)] = {bpf_map__type(map), bpf_map__key_size(map),
                                 bpf_map__value_size(map),
                                 bpf_map__map_flags(map)};
  }
  EXPECT_EQ(found, expected);
}

// Here, and on any other kernel that has what they need.
TEST_F(Object, EveryVariantOfEgressLoads) {
  const Preemption preemption = ReadPreemption().value();
  for (nm_adds adds : {NM_ADDS_ATOMIC, NM_ADDS_PLAIN, NM_ADDS_CLAIMED}) {
    if (adds == NM_ADDS_CLAIMED && !preemption.has_exchange) continue;
    SCOPED_TRACE(NameOf(adds));
    const Adds chosen = {adds == NM_ADDS_ATOMIC ? adds : NM_ADDS_PLAIN, adds};
    ProgramOptions options;
    options.adds = &chosen;
    auto programs = LoadOrFail(options);
    ASSERT_NE(programs, nullptr);
    const Packet packet = Packet::Ipv4().Udp(1, 2).Payload(10);
    EXPECT_EQ(programs->Run(Direction::kEgress, packet).error, 0);
    EXPECT_EQ(programs->Run(Direction::kIngress, packet).error, 0);
    const Counters counters = programs->ReadCounters();
    ASSERT_EQ(counters.size(), 1u);
    EXPECT_EQ(counters.begin()->second.tx_bytes, 38u);
    EXPECT_EQ(counters.begin()->second.rx_bytes, 38u);
  }
}

// --- The same bytes from every build -----------------------------------------

TEST_F(Object, BytesAreTheSameFromAnotherFolder) {
  size_t size = 0, again_size = 0;
  const void* bytes = netmeter_bpf__elf_bytes(&size);
  const void* again = netmeter_again_bpf__elf_bytes(&again_size);
  ASSERT_GT(size, 0u);
  ASSERT_EQ(size, again_size);
  EXPECT_EQ(std::memcmp(bytes, again, size), 0);
}

// BTF names the source files of the lines: relative to the workspace, and the
// system's headers.
TEST_F(Object, NamesNoFolderOfTheMachineThatBuiltIt) {
  uint32_t size = 0;
  std::set<std::string> absolute;
  const btf_header* header =
      static_cast<const btf_header*>(btf__raw_data(btf_, &size));
  for (uint32_t at = 1; at < header->str_len;) {
    const char* text = btf__str_by_offset(btf_, at);
    ASSERT_NE(text, nullptr);
    // Lines of source code are among them: those begin with spaces or words.
    if (text[0] == '/' && text[1] != '*' && text[1] != '/') {
      absolute.insert(text);
    }
    at += static_cast<uint32_t>(std::strlen(text)) + 1;
  }
  for (const std::string& path : absolute) {
    EXPECT_EQ(path.compare(0, 13, "/usr/include/"), 0) << path;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
