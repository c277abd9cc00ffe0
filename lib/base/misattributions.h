// SPDX-License-Identifier: BSD-3-Clause
// The rows of Health::misattributed (sample.h) and of `netmeter-loader status`, in their
// order.
//
//   for (const MisattributionRow& row : kMisattributions) Print(stats.*row.count);
//
// Threads: constants.

#ifndef NETMETER_LIB_BASE_MISATTRIBUTIONS_H_
#define NETMETER_LIB_BASE_MISATTRIBUTIONS_H_

#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

struct MisattributionRow {
  const char* unit;
  const char* reason;
  const char* meaning;  // for people
  nm_u64 nm_stats::*count;
};

constexpr MisattributionRow kMisattributions[] = {
    {"packets", "series_full",
     "counted as overflow (if the table is full: raise max_series)",
     &nm_stats::series_full},
    {"packets", "series_over_quota",
     "counted as overflow: their user has too many series",
     &nm_stats::series_over_quota},
    {"packets", "storage_failed", "unattributed: no memory for socket storage",
     &nm_stats::storage_failed_packets},
    {"packets", "header_errors", "with an unreadable header",
     &nm_stats::header_errors},
    {"names", "full",
     "refused, or counted as overflow (if the table is full: raise max_names)",
     &nm_stats::names_full},
    {"names", "over_quota",
     "refused, or counted as overflow: their user has too many",
     &nm_stats::names_over_quota},
    {"processes", "full",
     "named late (if the table is full: raise max_processes)",
     &nm_stats::processes_full},
    {"sockets", "storage_failed",
     "without an owner: no memory for socket storage",
     &nm_stats::storage_failed_sockets},
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_MISATTRIBUTIONS_H_
