// SPDX-License-Identifier: BSD-3-Clause
// Plans: what a provider bills for an uplink. docs/history.md ("Costs") has the rules.
//
//   auto file = ReadBudgetFile("/etc/netmeter-budgets.yml");
//   if (!file.ok()) return file.status();
//   for (const Plan& plan : file->plans)
//     auto cost = ReadCost(history.get(), plan, today);
//
// Money is an integer: millionths ("micros") of the plan's currency. There is no floating
// point. Each part of a period with other terms is rounded half up, once.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_BUDGETS_PLAN_H_
#define NETMETER_LIB_APPS_BUDGETS_PLAN_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/history.h"
#include "lib/apps/history/usage.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {

// What a provider bills from one day to another.
struct PlanTerms {
  // The price of the bytes up to `to` that no tier before it has.
  struct Tier {
    int64_t to = std::numeric_limits<int64_t>::max();
    int64_t micros = 0;  // for each price_bytes
  };

  Day from = 0;
  Day to = 99991231;
  int64_t fee_micros = 0;
  bool fee_is_daily = false;  // or for a period
  int64_t included_bytes = 0;
  int64_t price_bytes = 1;
  std::vector<Tier>
      tiers;  // of the bytes above included_bytes; empty: they cost nothing
  // Rounded up to a multiple of this: the bytes above included_bytes, or those of each
  // day.
  int64_t round_bytes = 1;
  bool rounds_days = false;
};

struct Plan {
  std::string name;
  std::string uplink;    // "": the sum of paid uplinks
  std::string currency;  // ISO 4217
  bool counts_sent = true;
  bool counts_received = true;
  int reset_day = 1;
  int days = 0;  // as Budget::days
  Day start = 20000101;
  std::vector<PlanTerms> terms;  // one after another
};

struct PlanCost {
  Period period;
  int64_t micros = 0;
  int64_t used_bytes =
      0;  // in the directions of the plan, as ReadUsage() has them
  int64_t billed_bytes = 0;  // rounded, and with a price above 0
};

// The billing period that contains `day`.
Period PeriodOf(const Plan& plan, Day day);

// What the billing period that contains `day` costs, with what was recorded until now,
// and with the fee of the whole period. Errors as Database, InvalidArgument if there is
// no such uplink, and OutOfRange if the cost is above 9 * 10^12 of the currency.
absl::StatusOr<PlanCost> ReadCost(Database* history, const Plan& plan, Day day);

// The plans that apply to a query.
struct UsageCosts {
  struct Entry {
    Plan plan;
    PlanCost cost;  // of the query's period
  };
  std::vector<Entry> plans;
  // That of the sum and the rows. "": they have no cost, because no plan applies, or not
  // all plans have one currency, or one is in `unknown`.
  std::string currency;
  int64_t micros = 0;
  std::string unknown;  // why a plan has no cost; "": all have theirs
};

// Sets the cost of each row, whose sum is the cost of `usage`: a plan's cost of a billing
// period is divided by the bytes that each row has of it. A period without traffic has
// its cost in a further row of kind "fee". Leaves out plans of other uplinks; all if the
// query has less than uplinks, such as one service. Errors as Database, and OutOfRange.
absl::StatusOr<UsageCosts> ReadUsageCosts(Database* history,
                                          const std::vector<Plan>& plans,
                                          const UsageQuery& query,
                                          Usage* usage);

// Parts of `total` in proportion to `weights`, each less than one away from its exact
// share. Their sum is `total`, if any weight is above 0. None may be negative.
std::vector<int64_t> Divide(int64_t total, const std::vector<int64_t>& weights);

// "1234.50" or, if `exact` or below a cent, "1234.500001".
std::string MoneyText(int64_t micros, bool exact);

// "plan satellite: 115.00 USD (61.2 GB used, 50.0 GB billed)".
std::string DescribeCost(const Plan& plan, const PlanCost& cost,
                         SizeUnits units);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_BUDGETS_PLAN_H_
