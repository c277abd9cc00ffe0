// SPDX-License-Identifier: BSD-3-Clause
// The history as rows for a store that has many gateways (docs/fleet-bill.md).
//
//   int64_t since = kFromTheBeginning;
//   do {
//     const auto piece = ReadPiece(history.get(), options, since);
//     if (!piece.ok()) return piece.status();
//     Send(piece->text);
//     since = piece->version;
//   } while (!piece->is_last);
//
// Each row has a key that never changes, and a version that grows with each change. So a
// store that keeps the newest row of each key is right, whatever it receives twice, late
// or in another order. A key never disappears: what it counted becomes 0.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_EXPORT_ROWS_H_
#define NETMETER_LIB_APPS_EXPORT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/history/history.h"

namespace netmeter {
namespace internal {

// Before the first version.
constexpr int64_t kFromTheBeginning = -1;

enum class ExportBy { kHour, kDay };

struct ExportOptions {
  // By hour, a day whose hours were folded into it is one row of each series.
  ExportBy by = ExportBy::kHour;
  bool samples = false;  // also the five-minute samples of uplinks
  // Also the hour or day that still runs. It is sent again when it is over.
  bool running = false;
  bool csv = false;  // else JSON lines
  // The fields of Origin::json(), which each row gets.
  std::string origin;
  int64_t now = 0;  // Unix time
  // A piece ends with the hour or day that reaches it. It is in memory as a whole.
  size_t piece_rows = 10000;
};

struct ExportPiece {
  // Never empty: the first row is of the host.
  std::string text;
  size_t rows = 0;
  int64_t version = 0;  // a cursor: the next piece begins after it
  bool is_last = false;
};

// The first line of CSV. It has the fields of all kinds of rows, and a row leaves out
// those that it does not have.
std::string ExportCsvHeader();

// The rows that changed after version `since`, oldest change first, from one state of the
// history. Errors as Database and ReadHostId().
absl::StatusOr<ExportPiece> ReadPiece(Database* history,
                                      const ExportOptions& options,
                                      int64_t since);

// The start of the first day of which anything changed after version `since`, but at most
// options.now, as Unix time: from there on, budgets and costs may have changed.
absl::StatusOr<int64_t> FirstChange(Database* history,
                                    const ExportOptions& options,
                                    int64_t since);

// Adds to the piece a row for each period of the budget, from the one that contains
// `begin` (Unix time), or the first record, to the present one, but at most the last
// kMostPeriods of them. Errors as ReadBudgetState().
constexpr int kMostPeriods = 400;
absl::Status AddBudget(Database* history, const ExportOptions& options,
                       const Budget& budget, int64_t begin, ExportPiece* piece);
// Likewise, the cost of each period since the plan began. Errors as ReadCost().
absl::Status AddCost(Database* history, const ExportOptions& options,
                     const Plan& plan, int64_t begin, ExportPiece* piece);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORT_ROWS_H_
