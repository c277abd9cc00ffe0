// SPDX-License-Identifier: BSD-3-Clause
// Budgets and costs as metrics, for the page of netmeter-exporter.
//
//   BudgetMetrics budgets("/etc/netmeter-budgets.yml", kDefaultHistory);
//   budgets.AddTo(options.families, BudgetMetrics::Clock::now(), &families);
//
// A scrape rarely reads the budget file or the history. They are read at most once a
// minute, which is as often as `netmeter record` runs, and reading takes at most a
// hundredth of the time. In between, the values are those of the last read. A changed
// file needs no restart.
//
// A separate thread reads them, so that a slow disk or hundreds of budgets delay a
// scrape by kTimeout at most. A page made during a read has the values of the previous
// read.
//
// Threads: one, beside the reading thread.

#ifndef NETMETER_LIB_APPS_EXPORTER_BUDGET_METRICS_H_
#define NETMETER_LIB_APPS_EXPORTER_BUDGET_METRICS_H_

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/publish/families.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

class BudgetMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  // How long AddTo() waits for a read that it begins.
  static constexpr std::chrono::milliseconds kTimeout{250};
  // How long a read waits for the lock on the history, and so the longest time that the
  // destructor waits for a read. `netmeter record` does not block readers
  // (docs/history.md).
  static constexpr std::chrono::milliseconds kLockTimeout{500};

  // Publishes the budgets in `config`; nothing if it is kOff. Reads nothing yet.
  BudgetMetrics(const std::string& config, const std::string& database);
  // Waits for a read that is under way.
  ~BudgetMetrics();
  BudgetMetrics(const BudgetMetrics&) = delete;
  BudgetMetrics& operator=(const BudgetMetrics&) = delete;

  // Adds the chosen ones of the four families, and reads the files first if that is due.
  // The limits are there if the budget file could be read, and the used bytes and costs
  // if the history could be read as well. While another program locks the history, these
  // are the previous ones.
  void AddTo(const FamilySet& chosen, Clock::time_point now,
             std::vector<Family>* families);

  // Why a family or a budget is missing; OK if none is. A missing file at the default
  // path of the budgets is no error, and without budgets no history is none.
  const absl::Status& status() const { return values_.status; }

 private:
  struct Values {
    std::vector<Metric> limits;
    std::vector<Metric> used;
    std::vector<Metric> costs;
    bool any = false;  // the file has a budget or a plan
    absl::Status status;
    Clock::duration took{};
  };

  Values Read() const;
  absl::Status ReadInto(Values* values) const;
  void Begin();

  const std::string config_;
  const std::string database_;
  Clock::time_point due_ = Clock::time_point::min();
  Values values_;
  std::atomic<bool> ending_{false};
  // Last: its destructor waits for the thread, which uses the members above.
  std::future<Values> reading_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_BUDGET_METRICS_H_
