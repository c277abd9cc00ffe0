// SPDX-License-Identifier: BSD-3-Clause
// What every BPF program of the host costs: run time, maps, and who holds it.
// The answer of `netmeter cost --all`. Root only, as the kernel tells nobody
// else.
//
//   const UniqueFd stats(bpf_enable_stats(BPF_STATS_RUN_TIME));
//   auto before = ReadHostCost();
//   ...
//   auto after = ReadHostCost();
//   HostCost cost = CostBetween(*before, *after, seconds);
//
// The kernel measures as long as somebody has the descriptor of
// bpf_enable_stats() open: it ends with the process, however that ends.
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_TOOLS_COST_HOST_COST_H_
#define NETMETER_LIB_TOOLS_COST_HOST_COST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

struct HostMap {
  uint32_t id = 0;
  std::string name;
  std::string type;
  uint64_t bytes = 0;  // "memlock" of fdinfo
};

struct HostProgram {
  uint32_t id = 0;
  std::string name;  // at most 15 bytes; the kernel keeps no more
  std::string type;  // as bpftool shows it: cgroup_skb
  uint64_t runs = 0;
  uint64_t run_ns = 0;
  uint64_t recursion_misses = 0;  // runs that the kernel left out (5.12)
  uint32_t jited_bytes = 0;
  std::vector<uint32_t> maps;  // ids
  // Processes that have it, or a link or a perf event of it, open: "PID/NAME".
  // Pins of it, or of a link of it: their paths. Where there is neither, what it is
  // attached to holds it, or a pin in another mount namespace.
  std::vector<std::string> processes;
  std::vector<std::string> pins;
};

struct HostCost {
  double seconds = 0;  // 0: totals since the programs were loaded
  std::vector<HostProgram> programs;  // by id
  std::map<uint32_t, HostMap> maps;   // of these programs
};

// The totals now. Costs two system calls for each program and map, and one for
// each descriptor of each process. PermissionDenied without CAP_SYS_ADMIN.
absl::StatusOr<HostCost> ReadHostCost();

// What ran between two readings, most time first. A program that has gone is
// not in it; one that came meanwhile is, with all of its runs.
HostCost CostBetween(const HostCost& before, HostCost after, double seconds);

// A table, and one JSON object in one line.
std::string HostCostTable(const HostCost& cost);
std::string HostCostJson(const HostCost& cost);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_COST_HOST_COST_H_
