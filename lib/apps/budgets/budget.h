// SPDX-License-Identifier: BSD-3-Clause
// Budgets: the bytes that may be used in a billing period, and how many are used so far.
//
//   auto file = ReadBudgetFile("/etc/netmeter-budgets.yml");
//   if (!file.ok()) return file.status();
//   for (const Budget& budget : file->budgets)
//     auto state = ReadBudgetState(history.get(), budget, time(nullptr));
//
// Budgets only report: no packet is dropped.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_BUDGETS_BUDGET_H_
#define NETMETER_LIB_APPS_BUDGETS_BUDGET_H_

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/apps/budgets/plan.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/history.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {

constexpr char kDefaultBudgets[] = "/etc/netmeter-budgets.yml";

struct Budget {
  // kLarger: the direction with more bytes.
  enum class Direction { kBoth, kSent, kReceived, kLarger };

  std::string name;
  int64_t limit = 0;                     // bytes, above 0
  SizeUnits units = SizeUnits::kBinary;  // the units of the limit in the file
  // "": any
  std::string service;
  std::string destination;
  std::string kind;
  std::string uplink;
  std::string path = "direct";
  Direction direction = Direction::kBoth;
  int reset_day = 1;
  // Not 0: periods of this many days, one of which begins on `start`; 1 is a daily one.
  int days = 0;
  Day start = 20000101;
  // Hours of the week that are free: hour 0 is Monday 0:00 to 1:00.
  std::bitset<7 * 24> free_hours;
  // The provider counts the bytes times this, such as 1.04.
  double factor = 1;
  std::vector<int> warn = {80, 100};  // percent, ascending
};

struct Size {
  int64_t bytes = 0;
  SizeUnits units = SizeUnits::kBinary;
};

// Parses "100 GB", "1.5GiB", "4096 B": powers of 1000 and of 1024. InvalidArgument unless
// it is a size above 0. The unit is required: `limit: 10` once meant 10 bytes.
absl::StatusOr<Size> ParseSize(absl::string_view text);

// At least one of the two is not empty.
struct BudgetFile {
  std::vector<Budget> budgets;
  std::vector<Plan> plans;
};

// `file` is for messages. InvalidArgument has one line, "FILE:LINE: KEY: expected ...,
// not ...". An unknown key is an error: a misspelt budget would never be exceeded.
absl::StatusOr<BudgetFile> ParseBudgets(const std::string& yaml,
                                        const std::string& file);
// Reads and parses a file. NotFound and PermissionDenied, as open(2).
absl::StatusOr<BudgetFile> ReadBudgetFile(const std::string& file);

struct BudgetState {
  Period period;
  int64_t used = 0;       // bytes, at the last record
  int64_t forecast = -1;  // for the whole period; -1: not known
  std::string
      forecast_unknown;      // the reason, and until when; "" if it is known
  int64_t percent = 0;       // of the limit, rounded down
  std::vector<int> crossed;  // levels of `warn`
};

// The state in the period that contains `now`. Errors as Database, and InvalidArgument if
// there is no such uplink, so that the budget would never be used up.
absl::StatusOr<BudgetState> ReadBudgetState(Database* history,
                                            const Budget& budget, int64_t now);

// Whether NoteWarning() was called in this period.
absl::StatusOr<bool> WasWarned(Database* history, const Budget& budget,
                               const BudgetState& state, int percent);
// Records that a warning was given.
absl::Status NoteWarning(Database* history, const Budget& budget,
                         const BudgetState& state, int percent);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_BUDGETS_BUDGET_H_
