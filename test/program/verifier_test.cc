// SPDX-License-Identifier: BSD-3-Clause
// What the verifier walks is most of the time of a load, and it grows by leaps:
// a branch on each byte of a name once made it walk 454,000 instructions for a
// program of 313. No program may grow by a quarter unnoticed. The kernel tells
// the number from 5.16 on; its verifier's log does on every one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "test/program/fixture.h"

namespace netmeter {
namespace internal {
namespace {

// The highest of the kernels in bpf/README.md, which has each of them and the
// command that prints them.
const std::map<std::string, uint32_t>& Recorded() {
  static const auto* const recorded = new std::map<std::string, uint32_t>{
      {"nm_exec", 9121},
      {"nm_fork", 43},
      {"nm_exit", 13},
      {"nm_sock_create", 4349},
      {"nm_sock_release", 69},
      {"nm_setsockopt", 9081},
      {"nm_ingress", 9816},
      {"nm_egress", 33854},
      {"nm_sockops", 3795},
      {"nm_command", 963},
      {"nm_egress_claim", 33854},
  };
  return *recorded;
}

TEST(Verifier, WalksNotMuchMoreThanItDid) {
  VerifierLogs logs;
  ProgramOptions options;
  options.tracing = true;
  options.socket_hooks = true;
  options.proxy_ports = {1, 2, 3, 4, 5, 6, 7, 8};
  options.verifier_logs = &logs;
  const auto programs = LoadOrFail(options);
  ASSERT_NE(programs, nullptr);
  bpf_program* program;
  bpf_object__for_each_program(program, programs->skeleton()->obj) {
    const std::string name = bpf_program__name(program);
    SCOPED_TRACE(name);
    if (!bpf_program__autoload(program)) continue;
    // "processed 963 insns (limit 1000000) max_states_per_insn 4 ..."
    const std::string& log = logs[name];
    const std::string before = "processed ";
    const size_t at = log.find(before);
    ASSERT_NE(at, std::string::npos) << log;
    const unsigned long walked =
        std::strtoul(log.c_str() + at + before.size(), nullptr, 10);
    printf("walked: %-16s %6zu instructions, %7lu walked\n", name.c_str(),
           bpf_program__insn_cnt(program), walked);
    const auto found = Recorded().find(name);
    ASSERT_NE(found, Recorded().end()) << "record it here and in bpf/README.md";
    EXPECT_GT(walked, 0u);
    EXPECT_LE(walked, found->second + found->second / 4);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
