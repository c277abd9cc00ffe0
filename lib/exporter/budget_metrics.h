// SPDX-License-Identifier: BSD-3-Clause
// The budgets as metrics, for the page of netmeter-exporter.
//
//   BudgetMetrics budgets("/etc/netmeter-budgets.yml", kDefaultHistory);
//   budgets.AddTo(options.families, BudgetMetrics::Clock::now(), &families);
//
// Neither the file of the budgets nor the history is read by each scrape: once a
// minute at most, which is as often as `netmeter record` runs, and so seldom that it
// takes a hundredth of the time at most. In between the values are those of the last
// read. A file that is changed needs no restart.
//
// They are read by a thread of their own: a slow disk, or hundreds of budgets, keep
// nobody waiting for longer than kPatience. A page that is made meanwhile has the
// values of the read before.
//
// Threads: one, beside that one.

#ifndef NETMETER_LIB_EXPORTER_BUDGET_METRICS_H_
#define NETMETER_LIB_EXPORTER_BUDGET_METRICS_H_

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
  static constexpr std::chrono::milliseconds kPatience{250};
  // How long a read waits for who has locked the history, and so the destructor for
  // the read. `netmeter record` keeps no reader waiting (docs/history.md).
  static constexpr std::chrono::milliseconds kLockPatience{500};

  // Of budgets in `config`; kOff: none. Nothing is read yet.
  BudgetMetrics(const std::string& config, const std::string& database);
  // Ends a read that is under way.
  ~BudgetMetrics();
  BudgetMetrics(const BudgetMetrics&) = delete;
  BudgetMetrics& operator=(const BudgetMetrics&) = delete;

  // Adds those of the two families that are chosen, after reading if that is due. The
  // limits are there if the file of the budgets could be read, and what is used, if
  // the history could, too; while somebody keeps it locked, what was used before.
  void AddTo(const FamilySet& chosen, Clock::time_point now,
             std::vector<Family>* families);

  // Why something is not there; OK if nothing is missing. It is no error that there
  // is no file where the budgets are by default.
  const absl::Status& status() const { return values_.status; }

 private:
  struct Values {
    std::vector<Metric> limits;
    std::vector<Metric> used;
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
  // Its destructor waits for the thread, which uses what is above.
  std::future<Values> reading_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_BUDGET_METRICS_H_
