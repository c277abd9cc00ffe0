// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/budget_metrics.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/exporter/exporter_flags.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/publish/family_table.h"

namespace netmeter {
namespace internal {
namespace {

constexpr std::chrono::seconds kLifetime(60);
constexpr int kLifetimePerReading = 100;

const char* WordOf(Budget::Direction direction) {
  switch (direction) {
    case Budget::Direction::kBoth:
      return "both";
    case Budget::Direction::kSent:
      return "tx";
    case Budget::Direction::kReceived:
      return "rx";
    case Budget::Direction::kLarger:
      return "larger";
  }
  return "";
}

// The words are those of a series. An empty value means any, and Prometheus treats it
// as no label. There is never a label `service`, because Magma adds its own.
Labels LabelsOf(const Budget& budget) {
  return {{"budget", ToUtf8(budget.name)},
          {"uplink", ToUtf8(budget.uplink)},
          {"kind", budget.kind},
          {"name", ToUtf8(budget.service)},
          {"destination", ToUtf8(budget.destination)},
          {"path", budget.path},
          {"direction", WordOf(budget.direction)}};
}

void AddFamily(FamilyId id, const std::vector<Metric>& metrics,
               const FamilySet& chosen, std::vector<Family>* families) {
  if (metrics.empty() || !FamilySetAccess::Has(chosen, id)) return;
  const FamilyInfo& info = InfoOf(id);
  families->push_back({info.name, info.help, info.type, metrics});
}

void SortByLabels(std::vector<Metric>* metrics) {
  std::sort(metrics->begin(), metrics->end(),
            [](const Metric& a, const Metric& b) {
              return a.labels.Compare(b.labels) < 0;
            });
}

}  // namespace

BudgetMetrics::BudgetMetrics(const std::string& config,
                             const std::string& database)
    : config_(config), database_(database) {}

BudgetMetrics::~BudgetMetrics() { ending_ = true; }

constexpr std::chrono::milliseconds BudgetMetrics::kTimeout;
constexpr std::chrono::milliseconds BudgetMetrics::kLockTimeout;

absl::Status BudgetMetrics::ReadInto(Values* values) const {
  const auto file = ReadBudgetFile(config_);
  if (absl::IsNotFound(file.status()) && config_ == kDefaultBudgets) {
    return absl::OkStatus();
  }
  if (!file.ok()) return file.status();
  values->any = true;
  for (const Budget& budget : file->budgets) {
    values->limits.push_back(
        {LabelsOf(budget), static_cast<uint64_t>(budget.limit)});
  }
  SortByLabels(&values->limits);
  const auto history =
      OpenHistory(database_, Database::Mode::kRead, kLockTimeout);
  if (!history.ok()) return history.status();
  std::vector<Metric> used, costs;
  absl::Status wrong;
  const int64_t now = time(nullptr);
  for (const Budget& budget : file->budgets) {
    if (ending_) return absl::CancelledError("read the budgets");
    const auto state = ReadBudgetState(history->get(), budget, now);
    // The other budgets are measured all the same.
    if (absl::IsInvalidArgument(state.status())) {
      wrong.Update(state.status());
      continue;
    }
    if (!state.ok()) return state.status();
    // May be negative if connections that began before this period named their
    // destination in it.
    used.push_back({LabelsOf(budget),
                    static_cast<uint64_t>(std::max<int64_t>(0, state->used))});
  }
  for (const Plan& plan : file->plans) {
    if (ending_) return absl::CancelledError("read the budgets");
    const auto cost = ReadCost(history->get(), plan, HourOf(now).day);
    if (absl::IsInvalidArgument(cost.status()) ||
        absl::IsOutOfRange(cost.status())) {
      wrong.Update(cost.status());
      continue;
    }
    if (!cost.ok()) return cost.status();
    costs.push_back({{{"plan", ToUtf8(plan.name)},
                      {"uplink", ToUtf8(plan.uplink)},
                      {"currency", plan.currency}},
                     static_cast<uint64_t>(cost->micros)});
  }
  SortByLabels(&used);
  SortByLabels(&costs);
  values->used = std::move(used);
  values->costs = std::move(costs);
  return wrong;
}

BudgetMetrics::Values BudgetMetrics::Read() const {
  const Clock::time_point begin = Clock::now();
  Values values;
  values.status = ReadInto(&values);
  values.took = Clock::now() - begin;
  return values;
}

void BudgetMetrics::Begin() {
  // Most hosts have no budgets. A look at the file needs no thread, for each of which
  // glibc reserves 64 MiB of address space.
  if (config_ == kDefaultBudgets && access(config_.c_str(), F_OK) != 0 &&
      errno == ENOENT) {
    values_ = Values();
    return;
  }
  try {
    reading_ = std::async(std::launch::async, &BudgetMetrics::Read, this);
    reading_.wait_for(kTimeout);
  } catch (const std::system_error& error) {  // no thread could be started
    values_.status = absl::ResourceExhaustedError(
        absl::StrCat("read the budgets: ", error.what()));
  }
}

void BudgetMetrics::AddTo(const FamilySet& chosen, Clock::time_point now,
                          std::vector<Family>* families) {
  if (config_ == kOff) return;
  const auto is_chosen = [&chosen](FamilyId id) {
    return FamilySetAccess::Has(chosen, id);
  };
  const bool wanted =
      is_chosen(FamilyId::kBudgetLimit) || is_chosen(FamilyId::kBudgetUsed) ||
      is_chosen(FamilyId::kCost) || is_chosen(FamilyId::kBudgetError);
  if (wanted && now >= due_ && !reading_.valid()) {
    due_ = now + kLifetime;
    Begin();
  }
  if (reading_.valid() &&
      reading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    Values values = reading_.get();
    // Another program locks the history: keep the previous values.
    if (absl::IsUnavailable(values.status)) {
      values.used = values_.used;
      values.costs = values_.costs;
    }
    values_ = std::move(values);
    due_ = std::max<Clock::time_point>(
        due_, now + kLifetimePerReading * values_.took);
  }
  AddFamily(FamilyId::kBudgetLimit, values_.limits, chosen, families);
  AddFamily(FamilyId::kBudgetUsed, values_.used, chosen, families);
  AddFamily(FamilyId::kCost, values_.costs, chosen, families);
  const absl::Status& status = values_.status;
  if (values_.any || !status.ok()) {
    // A lock ends by itself.
    const bool is_error = !status.ok() && !absl::IsUnavailable(status);
    AddFamily(FamilyId::kBudgetError, {{{}, is_error ? 1u : 0u}}, chosen,
              families);
  }
}

}  // namespace internal
}  // namespace netmeter
