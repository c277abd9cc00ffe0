// SPDX-License-Identifier: BSD-3-Clause
// The cost of the meter itself: run time of its programs, memory of its maps. `netmeter
// cost` prints it. Root only, because the kernel tells no other user.

#ifndef NETMETER_LIB_APPS_NETMETER_COST_METER_COST_H_
#define NETMETER_LIB_APPS_NETMETER_COST_METER_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// Totals of one program since it was loaded, while the kernel measured:
// bpf_prog_info.run_time_ns and run_cnt.
struct ProgramCost {
  std::string name;
  uint32_t id = 0;
  uint64_t run_ns = 0;
  uint64_t runs = 0;
};

struct MapCost {
  std::string name;
  uint64_t bytes = 0;  // "memlock" of fdinfo
};

struct MeterCost {
  std::vector<ProgramCost>
      programs;               // in the order of LinkPins(), then kForwardLinks
  std::vector<MapCost> maps;  // by name; with maps that are not pinned
};

// The present totals. NotFound if no meter is loaded.
absl::StatusOr<MeterCost> ReadMeterCost(const std::string& pin_dir);

enum class CostFormat { kText, kJson };

// The kernel measures while the descriptor is open (BPF_ENABLE_STATS, Linux 5.8).
// PermissionDenied without CAP_SYS_ADMIN.
absl::StatusOr<UniqueFd> MeasureRunTimes();

// Lets the kernel measure for `seconds` (BPF_ENABLE_STATS, Linux 5.8), which costs
// every BPF program of the host about 20 ns a run, and returns a report.
absl::StatusOr<std::string> MeasureCost(const std::string& pin_dir, int seconds,
                                        CostFormat format, SizeUnits units);

// The totals as metrics in Prometheus' text format, for the node exporter's textfile
// collector.
std::string CostMetrics(const MeterCost& cost);

// Whether sysctl kernel.bpf_stats_enabled lets the kernel measure all the time.
bool StatsAreEnabled();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COST_METER_COST_H_
