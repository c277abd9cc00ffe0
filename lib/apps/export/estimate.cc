// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/export/estimate.h"

#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/usage.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kDays = 30;
constexpr int64_t kDay = 86400;
// One POST without its rows: TLS 1.3, HTTP, and the headers of TCP and IP in both
// directions, with a chain of two certificates. The keys are those of OpenSSL 3.5
// (X25519MLKEM768), 2,300 bytes longer than those before
// (test/apps/fleet/three_meters_root_test.py).
constexpr int64_t kPostBytes = 7500;

int64_t GzipSize(const std::string& text) {
  std::string out(compressBound(text.size()), '\0');
  uLongf size = out.size();
  compress2(reinterpret_cast<Bytef*>(&out[0]), &size,
            reinterpret_cast<const Bytef*>(text.data()), text.size(),
            Z_DEFAULT_COMPRESSION);
  constexpr int64_t kLongerHeader = 12;  // than zlib's
  return static_cast<int64_t>(size) + kLongerHeader;
}

}  // namespace

absl::StatusOr<std::string> EstimateExport(Database* history,
                                           const ExportOptions& options) {
  NETMETER_ASSIGN_OR_RETURN(const int64_t first, FirstRecord(history));
  const int64_t seconds =
      std::min(kDays * kDay, options.now - (first == 0 ? options.now : first));
  if (seconds < kDay) {
    return absl::FailedPreconditionError(
        absl::StrCat("--estimate needs a recorded day, and ", history->path(),
                     " has less yet"));
  }
  const auto a_month = [seconds](int64_t value) {
    return static_cast<int64_t>(static_cast<double>(value) * kDays * kDay /
                                static_cast<double>(seconds));
  };
  TextTable table({{"BY"},
                   {"EVERY"},
                   {"ROWS", TextColumn::kRight},
                   {"GZIPPED", TextColumn::kRight},
                   {"CONNECTIONS", TextColumn::kRight},
                   {"A MONTH", TextColumn::kRight}});
  for (const ExportBy by : {ExportBy::kHour, ExportBy::kDay}) {
    ExportOptions one = options;
    one.by = by;
    one.piece_rows = 1;  // as a call after each hour or day
    int64_t rows = 0, bytes = 0;
    // Versions follow Unix time.
    ExportPiece piece;
    piece.version = options.now - seconds;
    while (!piece.is_last) {
      NETMETER_ASSIGN_OR_RETURN(piece, ReadPiece(history, one, piece.version));
      rows += static_cast<int64_t>(piece.rows);
      bytes += GzipSize(piece.text);
    }
    const bool by_hour = by == ExportBy::kHour;
    const int64_t posts = kPostBytes * kDays * (by_hour ? 24 : 1);
    table.Add({by_hour ? "hour" : "day", by_hour ? "hour" : "day",
               absl::StrCat(a_month(rows)),
               HumanSignedBytes(a_month(bytes), SizeUnits::kDecimal),
               HumanSignedBytes(posts, SizeUnits::kDecimal),
               HumanSignedBytes(a_month(bytes) + posts, SizeUnits::kDecimal)});
  }
  return absl::StrCat(
      "30 days, from the rows of the last ", (seconds + kDay / 2) / kDay,
      seconds < 2 * kDay ? " day" : " days", " (", kPostBytes,
      " bytes a connection, with TLS):\n", table.Format(TerminalWidth()));
}

}  // namespace internal
}  // namespace netmeter
