// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/budget_metrics.h"

#include <time.h>

#include <algorithm>

#include "lib/core/text.h"
#include "lib/history/budget.h"
#include "lib/history/history.h"
#include "lib/metrics/family_table.h"
#include "lib/tools/exporter_flags.h"

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
  }
  return "";
}

// The words are those of a series. What is empty stands for any, and is no label to
// Prometheus. There is never a label `service`: Magma adds its own.
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

absl::Status BudgetMetrics::Read() {
  limits_.clear();
  used_.clear();
  const auto budgets = ReadBudgetFile(config_);
  if (absl::IsNotFound(budgets.status()) && config_ == kDefaultBudgets) {
    return absl::OkStatus();
  }
  if (!budgets.ok()) return budgets.status();
  for (const Budget& budget : *budgets) {
    limits_.push_back({LabelsOf(budget), static_cast<uint64_t>(budget.limit)});
  }
  SortByLabels(&limits_);
  const auto history = OpenHistory(database_, Database::Mode::kRead);
  if (!history.ok()) return history.status();
  std::vector<Metric> used;
  for (const Budget& budget : *budgets) {
    const auto state = ReadBudgetState(history->get(), budget, time(nullptr));
    if (!state.ok()) return state.status();
    // Below 0 it may be where connections of a period before named their
    // destination.
    used.push_back({LabelsOf(budget),
                    static_cast<uint64_t>(std::max<int64_t>(0, state->used))});
  }
  SortByLabels(&used);
  used_ = std::move(used);
  return absl::OkStatus();
}

void BudgetMetrics::AddTo(const FamilySet& chosen, Clock::time_point now,
                          std::vector<Family>* families) {
  if (config_ == kOff) return;
  const bool wanted = FamilySetAccess::Has(chosen, FamilyId::kBudgetLimit) ||
                      FamilySetAccess::Has(chosen, FamilyId::kBudgetUsed);
  if (wanted && now >= due_) {
    const Clock::time_point begin = Clock::now();
    status_ = Read();
    due_ = now + std::max<Clock::duration>(
                     kLifetime, kLifetimePerReading * (Clock::now() - begin));
  }
  AddFamily(FamilyId::kBudgetLimit, limits_, chosen, families);
  AddFamily(FamilyId::kBudgetUsed, used_, chosen, families);
}

}  // namespace internal
}  // namespace netmeter
