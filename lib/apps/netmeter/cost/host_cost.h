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

#ifndef NETMETER_LIB_APPS_NETMETER_COST_HOST_COST_H_
#define NETMETER_LIB_APPS_NETMETER_COST_HOST_COST_H_

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
  uint64_t total_runs =
      0;  // since the program was loaded, while the kernel measured
  uint64_t total_run_ns = 0;
  uint64_t recursion_misses = 0;  // runs that the kernel skipped (Linux 5.12)
  uint32_t jited_bytes = 0;
  std::vector<uint32_t> maps;  // ids
  // Whether it may run other programs by tail calls. The kernel adds their time to this
  // program.
  bool tail_calls = false;
  std::vector<std::string> attachments;  // see ProgramAttachments
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

// Which programs are shown, and in which order.
struct HostCostView {
  std::string filter;  // a part of a program's name, type, attachment or holder
  std::string sort;    // one of HostCostColumns(); "": as CostBetween()
  size_t most = SIZE_MAX;            // programs
  std::vector<std::string> columns;  // of HostCostColumns(); empty: all
};

// "id", "name" and so on, in the order of the table.
std::vector<std::string> HostCostColumns();

// Removes programs that the filter does not match, and sorts the others.
HostCost Select(HostCost cost, const HostCostView& view);

// A table that fits `width` (0: any), and one JSON object in one line, of a selected
// cost. The last line of the table is the sum, with the programs beyond `most`.
std::string HostCostTable(const HostCost& cost, const HostCostView& view,
                          SizeUnits units, size_t width);
std::string HostCostJson(const HostCost& cost, const HostCostView& view);

// The totals as metrics in Prometheus' text format.
std::string HostCostMetrics(const HostCost& cost);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COST_HOST_COST_H_
