// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/budgets/plan.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/apps/history/bill.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Products of bytes, micros and days. The parser keeps prices and fees at 10^15 micros
// or less, a period has 3660 days at most, and a price is for 2^40 bytes at most. So
// nothing below reaches 2^127.
using Wide = __int128;

int64_t BytesOf(const Plan& plan, const Counters& counters) {
  return (plan.counts_sent ? std::max<int64_t>(0, counters.tx_bytes()) : 0) +
         (plan.counts_received ? std::max<int64_t>(0, counters.rx_bytes()) : 0);
}

Wide RoundUp(Wide bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

absl::Status TooLarge(const Plan& plan) {
  return absl::OutOfRangeError(absl::StrCat(
      "plan ", ToTerminal(plan.name), ": the cost is too large to compute"));
}

// Adds what these days cost under these terms. Volumes and a fee for a period are those
// of its days, in proportion.
absl::Status AddPart(const Plan& plan, const PlanTerms& terms,
                     const std::vector<Counters>& by_day, int64_t period_days,
                     PlanCost* cost) {
  const int64_t days = static_cast<int64_t>(by_day.size());
  const auto share = [&](Wide bytes) { return bytes * days / period_days; };
  Wide rounded = 0;
  Counters sum;
  for (const Counters& counters : by_day) {
    sum += counters;
    rounded += RoundUp(BytesOf(plan, counters), terms.round_bytes);
  }
  const Wide used = BytesOf(plan, sum);
  Wide charged = std::max<Wide>(
      0, (terms.rounds_days ? rounded : used) - share(terms.included_bytes));
  if (!terms.rounds_days) charged = RoundUp(charged, terms.round_bytes);
  if (charged > kMost) return TooLarge(plan);
  Wide price = 0;  // in micros, times price_bytes
  Wide billed = 0, before = 0;
  for (const PlanTerms::Tier& tier : terms.tiers) {
    const Wide end = tier.to == kMost ? charged : share(tier.to);
    const Wide bytes = std::max<Wide>(0, std::min(charged, end) - before);
    before += bytes;
    price += bytes * tier.micros;
    if (tier.micros != 0) billed += bytes;
  }
  const Wide fee_days = terms.fee_is_daily ? 1 : period_days;
  const Wide divisor = fee_days * terms.price_bytes;
  const Wide both =
      price * fee_days + Wide{terms.fee_micros} * days * terms.price_bytes;
  const Wide micros = cost->micros + (2 * both + divisor) / (2 * divisor);
  if (micros > kMost || cost->used_bytes + used > kMost ||
      cost->billed_bytes + billed > kMost) {
    return TooLarge(plan);
  }
  cost->micros = static_cast<int64_t>(micros);
  cost->used_bytes += static_cast<int64_t>(used);
  cost->billed_bytes += static_cast<int64_t>(billed);
  return absl::OkStatus();
}

bool Applies(const Plan& plan, const UsageQuery& query) {
  return query.path == "direct" && query.service.empty() &&
         query.destination.empty() && query.kind.empty() &&
         (query.uplink.empty() || query.uplink == plan.uplink) &&
         std::any_of(plan.terms.begin(), plan.terms.end(),
                     [&](const PlanTerms& terms) {
                       return terms.from <= query.period.to &&
                              terms.to >= query.period.from;
                     });
}

// The row that has these bytes. Pending traffic may be in another row here than in that
// of one uplink and period.
UsageRow* FindRow(const UsageRow& wanted, std::vector<UsageRow>* rows) {
  UsageRow* same_name = &(*rows)[0];
  for (UsageRow& row : *rows) {
    if (row.name != wanted.name) continue;
    same_name = &row;
    if (row.kind == wanted.kind) break;
  }
  return same_name;
}

// Adds the cost of one billing period to the rows.
absl::Status AddToRows(Database* history, const Plan& plan,
                       const PlanCost& cost, const UsageQuery& query,
                       Usage* usage, UsageRow* without_traffic) {
  UsageQuery part = query;
  part.period = cost.period;
  part.uplink = plan.uplink;
  part.only_billed = query.uplink.empty();
  part.now = 0;
  const auto of_plan = ReadUsage(history, part);
  if (!of_plan.ok()) return of_plan.status();
  std::vector<int64_t> weights;
  bool any = false;
  for (const UsageRow& row : of_plan->rows) {
    weights.push_back(BytesOf(plan, row.counters));
    any = any || weights.back() != 0;
  }
  if (!any || usage->rows.empty()) {
    without_traffic->cost_micros += cost.micros;
    return absl::OkStatus();
  }
  const std::vector<int64_t> parts = Divide(cost.micros, weights);
  for (size_t i = 0; i < parts.size(); ++i) {
    FindRow(of_plan->rows[i], &usage->rows)->cost_micros += parts[i];
  }
  return absl::OkStatus();
}

}  // namespace

Period PeriodOf(const Plan& plan, Day day) {
  return plan.days == 0 ? PeriodAround(day, plan.reset_day)
                        : PeriodOfDays(day, plan.days, plan.start);
}

absl::StatusOr<PlanCost> ReadCost(Database* history, const Plan& plan,
                                  Day day) {
  const absl::Status uplink = CheckRecordedUplink(history, plan.uplink);
  if (!uplink.ok()) {
    return absl::Status(
        uplink.code(),
        absl::StrCat("plan ", ToTerminal(plan.name), ": ", uplink.message()));
  }
  PlanCost cost;
  cost.period = PeriodOf(plan, day);
  const Day first = cost.period.from;
  // The days of one read: their sum is that of the period, also where interfaces counted
  // less than the meter.
  UsageQuery query;
  query.period = cost.period;
  query.uplink = plan.uplink;
  query.by = UsageBy::kDay;
  const auto usage = ReadUsage(history, query);
  if (!usage.ok()) return usage.status();
  const int days = DaysBetween(first, cost.period.to) + 1;
  std::vector<Counters> by_day(static_cast<size_t>(days));
  for (const UsageRow& row : usage->rows) {
    const auto row_day = ParseDay(row.name);
    if (!row_day.ok()) return row_day.status();
    by_day[static_cast<size_t>(DaysBetween(first, *row_day))] = row.counters;
  }
  for (const PlanTerms& terms : plan.terms) {
    const Day from = std::max(terms.from, first);
    const Day to = std::min(terms.to, cost.period.to);
    if (from > to) continue;
    NETMETER_RETURN_IF_ERROR(AddPart(
        plan, terms,
        std::vector<Counters>(by_day.begin() + DaysBetween(first, from),
                              by_day.begin() + DaysBetween(first, to) + 1),
        days, &cost));
  }
  return cost;
}

absl::StatusOr<UsageCosts> ReadUsageCosts(Database* history,
                                          const std::vector<Plan>& plans,
                                          const UsageQuery& query,
                                          Usage* usage) {
  UsageCosts costs;
  std::vector<std::vector<PlanCost>> of_plans;  // by billing period
  bool one_currency = true;
  for (const Plan& plan : plans) {
    if (!Applies(plan, query)) continue;
    std::vector<PlanCost> periods;
    PlanCost sum;
    sum.period = query.period;
    absl::Status status;
    Period period = PeriodOf(plan, query.period.from);
    if (period.from == query.period.from) {
      for (Day day = period.from; day <= query.period.to && status.ok();
           day = AddDays(period.to, 1)) {
        const auto cost = ReadCost(history, plan, day);
        status = cost.status();
        if (!status.ok()) break;
        period = cost->period;
        periods.push_back(*cost);
        if (cost->micros > kMost - sum.micros) status = TooLarge(plan);
        sum.micros += status.ok() ? cost->micros : 0;
        sum.used_bytes += cost->used_bytes;
        sum.billed_bytes += cost->billed_bytes;
      }
    }
    if (absl::IsInvalidArgument(status)) {
      costs.unknown = std::string(status.message());
      continue;
    }
    if (!status.ok()) return status;
    if (periods.empty() || period.to != query.period.to) {
      costs.unknown = absl::StrCat(
          "plan ", ToTerminal(plan.name), " has the billing period ",
          FormatDay(period.from), " to ", FormatDay(period.to),
          plan.days == 0 ? absl::StrCat(" (--reset-day ", plan.reset_day, ")")
                         : "");
      continue;
    }
    if (sum.micros > kMost - costs.micros) return TooLarge(plan);
    costs.micros += sum.micros;
    if (costs.currency.empty()) costs.currency = plan.currency;
    one_currency = one_currency && costs.currency == plan.currency;
    costs.plans.push_back({plan, sum});
    of_plans.push_back(std::move(periods));
  }
  if (!one_currency || !costs.unknown.empty()) {
    costs.currency.clear();
    costs.micros = 0;
  }
  if (costs.currency.empty()) return costs;
  std::vector<UsageRow> fees;
  for (size_t i = 0; i < of_plans.size(); ++i) {
    UsageRow without_traffic;
    without_traffic.kind = "fee";
    without_traffic.name = costs.plans[i].plan.name;
    for (const PlanCost& cost : of_plans[i]) {
      NETMETER_RETURN_IF_ERROR(AddToRows(history, costs.plans[i].plan, cost,
                                         query, usage, &without_traffic));
    }
    if (without_traffic.cost_micros != 0) fees.push_back(without_traffic);
  }
  usage->rows.insert(usage->rows.end(), fees.begin(), fees.end());
  return costs;
}

std::vector<int64_t> Divide(int64_t total,
                            const std::vector<int64_t>& weights) {
  Wide all = 0;
  for (const int64_t weight : weights) all += weight;
  // The differences of the rounded sums so far, so that nothing is left over.
  std::vector<int64_t> parts;
  Wide before = 0, given = 0;
  for (const int64_t weight : weights) {
    before += weight;
    const Wide until = all == 0 ? 0 : Wide{total} * before / all;
    parts.push_back(static_cast<int64_t>(until - given));
    given = until;
  }
  return parts;
}

std::string MoneyText(int64_t micros, bool exact) {
  if (!exact && micros >= 10000) {
    const int64_t cents = micros / 10000 + (micros % 10000 >= 5000 ? 1 : 0);
    return absl::StrFormat("%d.%02d", cents / 100, cents % 100);
  }
  std::string text =
      absl::StrFormat("%d.%06d", micros / 1000000, micros % 1000000);
  while (text.back() == '0' && text[text.size() - 3] != '.') text.pop_back();
  return text;
}

std::string DescribeCost(const Plan& plan, const PlanCost& cost,
                         SizeUnits units) {
  return absl::StrCat("plan ", ToTerminal(plan.name), ": ",
                      MoneyText(cost.micros, units == SizeUnits::kExact), " ",
                      plan.currency, " (",
                      HumanSignedBytes(cost.used_bytes, units), " used, ",
                      HumanSignedBytes(cost.billed_bytes, units), " billed)");
}

}  // namespace internal
}  // namespace netmeter
