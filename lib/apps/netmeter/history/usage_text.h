// SPDX-License-Identifier: BSD-3-Clause
// The output of `netmeter usage`.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_HISTORY_USAGE_TEXT_H_
#define NETMETER_LIB_APPS_NETMETER_HISTORY_USAGE_TEXT_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/apps/budgets/budget.h"
#include "lib/apps/budgets/plan.h"
#include "lib/apps/history/samples.h"
#include "lib/apps/history/usage.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {

// "service", "destination", "uplink", "hour" and so on.
const char* UsageByName(UsageBy by);

// "ok", "warning" or "used up".
const char* BudgetWord(const BudgetState& state);

// "satellite 122.9 MB, lte 48.2 MB".
std::string DescribeUplinks(const std::vector<UsageRow>& uplinks,
                            SizeUnits units);

// "satellite: its interfaces counted ...".
std::string DescribeShortfall(const Shortfall& shortfall, SizeUnits units);

// The period, a table with shares and the sum, and a line for each shortfall and gap.
// With the costs that apply.
std::string FormatUsageTable(const Usage& usage, const UsageQuery& query,
                             SizeUnits units, size_t width,
                             const UsageCosts& costs = {});
std::string FormatUsageJson(const Usage& usage, const UsageQuery& query,
                            const UsageCosts& costs = {});
// RFC 4180, but with plain line feeds; without gaps.
std::string FormatUsageCsv(const Usage& usage, const UsageQuery& query,
                           const UsageCosts& costs = {});

// What a plan costs, for output of programs.
nlohmann::ordered_json CostJson(const Plan& plan, const PlanCost& cost);

// A percentile of five-minute samples.
std::string FormatRatesTable(const std::vector<UplinkRate>& rates,
                             const Period& period, int percent, size_t width);
std::string FormatRatesJson(const std::vector<UplinkRate>& rates,
                            const Period& period, int percent);
std::string FormatRatesCsv(const std::vector<UplinkRate>& rates);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_HISTORY_USAGE_TEXT_H_
