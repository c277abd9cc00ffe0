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
// Threads: one.

#ifndef NETMETER_LIB_TOOLS_BUDGET_METRICS_H_
#define NETMETER_LIB_TOOLS_BUDGET_METRICS_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/metrics/families.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

class BudgetMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  // Of budgets in `config`; kOff: none. Nothing is read yet.
  BudgetMetrics(const std::string& config, const std::string& database);

  // Adds those of the two families that are chosen, after reading if that is due. The
  // limits are there if the file of the budgets could be read, and what is used, if
  // the history could, too.
  void AddTo(const FamilySet& chosen, Clock::time_point now,
             std::vector<Family>* families);

  // Why something is not there; OK if nothing is missing. It is no error that there
  // is no file where the budgets are by default.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Read();

  const std::string config_;
  const std::string database_;
  Clock::time_point due_ = Clock::time_point::min();
  std::vector<Metric> limits_;
  std::vector<Metric> used_;
  absl::Status status_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_BUDGET_METRICS_H_
