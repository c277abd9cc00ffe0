// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter report` writes: one HTML page for a billing period, with nothing to
// load from anywhere and no script.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_HISTORY_REPORT_H_
#define NETMETER_LIB_TOOLS_HISTORY_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/text.h"
#include "lib/history/budget.h"
#include "lib/history/usage.h"

namespace netmeter {
namespace internal {

// A part of the page: who used the link, over the days of the period.
struct ReportPart {
  UsageBy by = UsageBy::kService;
  Usage usage;
  // Bytes of each day, one vector for each of the first rows of `usage`, and at last
  // one for all others. No day is below 0.
  std::vector<std::vector<int64_t>> days;
};

struct Report {
  SizeUnits units = SizeUnits::kBinary;
  std::optional<SizeUnits> budget_units;  // none: those of each limit
  std::string host;
  std::string made;  // when
  std::string path;
  std::string uplink;  // "": any
  Period period;
  std::vector<ReportPart> parts;
  std::vector<Budget> budgets;
  std::vector<BudgetState> states;  // of these
};

// Of the report's period, path and uplink. Errors as ReadUsage().
absl::StatusOr<ReportPart> ReadReportPart(Database* history,
                                          const Report& report, UsageBy by);

std::string FormatReport(const Report& report);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_HISTORY_REPORT_H_
