// SPDX-License-Identifier: BSD-3-Clause
// The kernel's own clock around each run of a program, which is on while a
// descriptor of bpf_enable_stats(BPF_STATS_RUN_TIME) is open. It costs every
// program of the host some 20 ns a run.

#ifndef NETMETER_TEST_BENCHMARK_RUN_TIME_H_
#define NETMETER_TEST_BENCHMARK_RUN_TIME_H_

#include <cstdint>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

struct RunTime {
  uint64_t ns = 0;
  uint64_t runs = 0;
};

// Turns the clock on; dies where that fails, as all here do.
UniqueFd EnableRunTime();
RunTime ReadRunTime(int program_fd);
double NsPerRun(const RunTime& before, const RunTime& after);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_RUN_TIME_H_
