// SPDX-License-Identifier: BSD-3-Clause
// Budgets: how many bytes something may use in a billing period, and how far it is.
//
//   auto budgets = ReadBudgetFile("/etc/netmeter-budgets.yml");
//   if (!budgets.ok()) return budgets.status();
//   for (const Budget& budget : *budgets)
//     auto state = ReadBudgetState(history.get(), budget, time(nullptr));
//
// Nothing is limited by them: no packet is dropped.
//
// Threads: as Database.

#ifndef NETMETER_LIB_HISTORY_BUDGET_H_
#define NETMETER_LIB_HISTORY_BUDGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/text.h"
#include "lib/history/calendar.h"
#include "lib/history/history.h"

namespace netmeter {
namespace internal {

constexpr char kDefaultBudgets[] = "/etc/netmeter-budgets.yml";

struct Budget {
  enum class Direction { kBoth, kSent, kReceived };

  std::string name;
  int64_t limit = 0;                     // bytes, above 0
  SizeUnits units = SizeUnits::kBinary;  // those that the limit was given in
  // "": any
  std::string service;
  std::string destination;
  std::string kind;
  std::string uplink;
  std::string path = "direct";
  Direction direction = Direction::kBoth;
  int reset_day = 1;
  std::vector<int> warn = {80, 100};  // percent, ascending
};

struct Size {
  int64_t bytes = 0;
  SizeUnits units = SizeUnits::kBinary;
};

// "100 GB", "1.5GiB", "4096 B": powers of 1000 and of 1024. InvalidArgument for what
// is no size above 0. A number alone is none: `limit: 10` was 10 bytes.
absl::StatusOr<Size> ParseSize(absl::string_view text);

// `file` is for messages. InvalidArgument is one line, "FILE:LINE: KEY: expected ...,
// not ...". No key is ignored: a budget that is misspelt would never be crossed.
absl::StatusOr<std::vector<Budget>> ParseBudgets(const std::string& yaml,
                                                 const std::string& file);
// The same of a file. NotFound and PermissionDenied, as open(2).
absl::StatusOr<std::vector<Budget>> ReadBudgetFile(const std::string& file);

struct BudgetState {
  Period period;
  int64_t used = 0;              // bytes, as of the last record
  int64_t forecast = -1;         // for the whole period; -1: not known
  std::string forecast_unknown;  // why, and until when; "" if it is known
  int64_t percent = 0;           // of the limit, rounded down
  std::vector<int> crossed;      // levels of `warn`
};

// Of the period that `now` is in. Errors as Database.
absl::StatusOr<BudgetState> ReadBudgetState(Database* history,
                                            const Budget& budget, int64_t now);

// Whether NoteWarning() was called in this period.
absl::StatusOr<bool> WasWarned(Database* history, const Budget& budget,
                               const BudgetState& state, int percent);
// Notes that a warning has been given.
absl::Status NoteWarning(Database* history, const Budget& budget,
                         const BudgetState& state, int percent);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_HISTORY_BUDGET_H_
