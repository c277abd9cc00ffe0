// SPDX-License-Identifier: BSD-3-Clause
// The output of `netmeter report`: one HTML page for a billing period, which loads
// nothing and has no script.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_HISTORY_REPORT_H_
#define NETMETER_LIB_APPS_NETMETER_HISTORY_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/budgets/plan.h"
#include "lib/apps/history/usage.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {

// A part of the page: the users of the link, over the days of the period.
struct ReportPart {
  UsageBy by = UsageBy::kService;
  Usage usage;
  // Bytes of each day: one vector for each of the first rows of `usage`, then one for
  // all others. No day is negative.
  std::vector<std::vector<int64_t>> days;
};

struct Report {
  SizeUnits units = SizeUnits::kBinary;
  std::optional<SizeUnits> budget_units;  // none: the units of each limit
  std::string host;
  std::string made;  // time
  std::string path;
  std::string uplink;  // "": any
  Period period;
  std::vector<ReportPart> parts;
  std::vector<Budget> budgets;
  std::vector<BudgetState> states;  // for these
  std::vector<Plan> plans;
  UsageCosts costs;  // that apply to the page
};

// Reads the part for the report's period, path and uplink, and its costs into
// report->costs. Errors as ReadUsageCosts().
absl::StatusOr<ReportPart> ReadReportPart(Database* history, Report* report,
                                          UsageBy by);

std::string FormatReport(const Report& report);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_HISTORY_REPORT_H_
