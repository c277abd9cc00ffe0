// SPDX-License-Identifier: BSD-3-Clause
// The cost of every BPF program of the host: run time, maps, and the holders. `netmeter
// cost --all` prints it. Root only, because the kernel tells no other user.
//
//   const UniqueFd stats(bpf_enable_stats(BPF_STATS_RUN_TIME));
//   auto before = ReadHostCost();
//   ...
//   auto after = ReadHostCost();
//   HostCost cost = CostBetween(*before, *after, seconds);
//
// The kernel measures while a process has a descriptor of bpf_enable_stats() open, so
// measuring ends with the process in any case.
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_TOOLS_COST_HOST_COST_H_
#define NETMETER_LIB_TOOLS_COST_HOST_COST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/text.h"

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
  std::string name;  // at most 15 bytes, the kernel's limit
  std::string type;  // in bpftool's words, such as cgroup_skb
  uint64_t runs = 0;
  uint64_t run_ns = 0;
  uint64_t recursion_misses = 0;  // runs that the kernel skipped (Linux 5.12)
  uint32_t jited_bytes = 0;
  std::vector<uint32_t> maps;  // ids
  // Processes ("PID/NAME") that have the program, or a link or perf event for it, open;
  // and the paths of its pins and of its links' pins. If there are neither, an
  // attachment holds it, or a pin in another mount namespace.
  std::vector<std::string> processes;
  std::vector<std::string> pins;
};

struct HostCost {
  double seconds = 0;  // 0: totals since the programs were loaded
  std::vector<HostProgram> programs;  // by id
  std::map<uint32_t, HostMap> maps;   // of these programs
};

// The present totals. Costs two system calls for each program and map, and one for each
// descriptor of each process. PermissionDenied without CAP_SYS_ADMIN.
absl::StatusOr<HostCost> ReadHostCost();

// The runs between two readings, most time first. A program that has gone is left out;
// a new one has all of its runs.
HostCost CostBetween(const HostCost& before, HostCost after, double seconds);

// A table that fits `width` (0: any), and one JSON object in one line.
std::string HostCostTable(const HostCost& cost, SizeUnits units, size_t width);
std::string HostCostJson(const HostCost& cost);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_COST_HOST_COST_H_
