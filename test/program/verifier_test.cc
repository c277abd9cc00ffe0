// SPDX-License-Identifier: BSD-3-Clause
// What the verifier walks is most of the time of a load, and it grows by leaps:
// a branch on each byte of a name once made it walk 454,000 instructions for a
// program of 313. No program may grow by a quarter unnoticed. The kernel tells
// the number from 5.16 on; its verifier's log does on every one.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string>

#include "lib/base/unique_fd.h"
#include "lib/loader/object.h"
#include "lib/loader/system.h"
#include "lib/netlink/interfaces.h"
#include "test/program/fixture.h"

namespace netmeter {
namespace internal {
namespace {

// The figures of bpf/README.md, which also has the command that prints the present ones:
// of 5.10 and 6.1, whose verifiers know less, and the highest of all later kernels.
struct Walked {
  const char* program;
  uint32_t on_5_10, on_6_1, later;
};
constexpr Walked kRecorded[] = {
    {"nm_ingress", 31747, 31975, 25373},
    {"nm_egress", 52831, 52917, 47886},
    {"nm_egress_claim", 0, 52917, 47886},
    {"nm_sock_create", 22107, 21267, 13226},
    {"nm_sock_release", 580, 580, 667},
    {"nm_sockops", 8069, 9543, 10615},
    {"nm_setsockopt", 4465, 4448, 4585},
    {"nm_exec", 25787, 25787, 17714},
    {"nm_fork", 43, 43, 41},
    {"nm_exit", 13, 13, 13},
    {"nm_command", 1554, 1554, 1532},
    {"nm_scan", 105, 105, 105},
};
// With units, containers and users in names_from: nm_exec alone reads them.
constexpr Walked kNamesByCgroup = {"nm_exec", 38582, 38582, 106954};

// The figures are of clang 14, with which libnetmeter is built. Another one's programs
// have to be loaded, too: test/run.sh and test/bazel_module.sh say so.
uint32_t MostOf(uint32_t recorded) {
  return std::getenv("NETMETER_OTHER_CLANG") != nullptr
             ? recorded * 4
             : recorded + recorded / 4;
}

// 0: not recorded.
uint32_t RecordedOf(const Walked& one) {
  if (KernelRelease().compare(0, 5, "5.10.") == 0) return one.on_5_10;
  return KernelRelease().compare(0, 4, "6.1.") == 0 ? one.on_6_1 : one.later;
}

uint32_t RecordedOf(const std::string& program) {
  for (const Walked& one : kRecorded) {
    if (program == one.program) return RecordedOf(one);
  }
  return 0;
}

void ExpectWalked(const bpf_program* program, const VerifierLogs& logs,
                  uint32_t recorded) {
  const std::string name = bpf_program__name(program);
  SCOPED_TRACE(name);
  // "processed 963 insns (limit 1000000) max_states_per_insn 4 ..."
  const std::string& log = logs.at(name);
  const std::string before = "processed ";
  const size_t at = log.find(before);
  ASSERT_NE(at, std::string::npos) << log;
  const unsigned long walked =
      std::strtoul(log.c_str() + at + before.size(), nullptr, 10);
  printf("walked: %-16s %6zu instructions, %7lu walked\n", name.c_str(),
         bpf_program__insn_cnt(program), walked);
  EXPECT_GT(walked, 0u);
  ASSERT_NE(recorded, 0u) << "record it here and in bpf/README.md";
  EXPECT_LE(walked, MostOf(recorded));
}

// A host's security policy may refuse iterators over maps, such as nm_scan
// (docs/kernels.md). The kernels of virtual machines never do.
bool MayIterateMaps() {
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_TRACE_ITER;
  options.attach_btf_id = static_cast<uint32_t>(
      libbpf_find_vmlinux_btf_id("bpf_sk_storage_map", BPF_TRACE_ITER));
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const UniqueFd fd(bpf_prog_load(BPF_PROG_TYPE_TRACING, "nm_probe", "GPL",
                                  code, std::size(code), &options));
  return fd.ok() || errno != EPERM;
}

TEST(Verifier, WalksNotMuchMoreThanItDid) {
  VerifierLogs logs;
  ProgramOptions options;
  options.tracing = true;
  options.socket_hooks = true;
  options.sweeps = MayIterateMaps();
  options.proxy_ports = {1, 2, 3, 4, 5, 6, 7, 8};
  options.sni_ports = {443};
  options.http_ports = {80};
  options.rules_count = NM_MAX_RULES;
  options.rules_ports.first = 53;
  options.rules_ports.count = 1;
  options.registrants = 1;
  options.uplinks = {"eth0"};
  options.verifier_logs = &logs;
  const auto programs = LoadOrFail(options);
  ASSERT_NE(programs, nullptr);
  bpf_program* program;
  bpf_object__for_each_program(program, programs->skeleton()->obj) {
    if (!bpf_program__autoload(program)) continue;
    ExpectWalked(program, logs, RecordedOf(bpf_program__name(program)));
  }
}

// The bug: the verifier refused nm_exec with this configuration only, and the load went
// on without tracing.
TEST(Verifier, WalksNotMuchMoreForUnitsContainersAndUsers) {
  VerifierLogs logs;
  ProgramOptions options;
  options.tracing = true;
  options.names_from = {"registration", "command_line", "service_list",
                        "container",    "unit",         "user",
                        "executable"};
  options.verifier_logs = &logs;
  const auto programs = LoadOrFail(options);
  ASSERT_NE(programs, nullptr);
  ExpectWalked(programs->skeleton()->progs.nm_exec, logs,
               RecordedOf(kNamesByCgroup));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
