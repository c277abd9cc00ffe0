// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/run_time.h"

#include <bpf/bpf.h>

#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {

UniqueFd EnableRunTime() {
  return UniqueFd(
      Check(bpf_enable_stats(BPF_STATS_RUN_TIME), "enable statistics"));
}

RunTime ReadRunTime(int program_fd) {
  bpf_prog_info info = {};
  uint32_t size = sizeof(info);
  Check(bpf_obj_get_info_by_fd(program_fd, &info, &size), "program info");
  RunTime time;
  time.ns = info.run_time_ns;
  time.runs = info.run_cnt;
  return time;
}

double NsPerRun(const RunTime& before, const RunTime& after) {
  if (after.runs == before.runs) Die("the program did not run");
  return static_cast<double>(after.ns - before.ns) /
         static_cast<double>(after.runs - before.runs);
}

}  // namespace internal
}  // namespace netmeter
