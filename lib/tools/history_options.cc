// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/history_options.h"

#include <time.h>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kThisMonth[] = "this";

absl::Status Prefixed(const char* option, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", status.message()));
}

}  // namespace

void AddDatabase(Flags* flags, std::string* path) {
  *path = kDefaultHistory;
  flags->AddOption("--database", path, "The history, an SQLite database")
      .Type("FILE")
      .ShowDefault();
}

absl::Status CheckDatabase(const std::string& path) {
  if (!path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--database: expected a path, not ''");
}

void PeriodOptions::Declare(Flags* flags) {
  const Option month =
      flags
          ->AddOption("--month", &month_,
                      "The billing period that begins in this month, as "
                      "2026-11; the present one without a value")
          .Type("MONTH")
          .OptionalValue()
          .Default(kThisMonth);
  const Option from =
      flags->AddOption("--from", &from_, "The first day, as 2026-11-22")
          .Type("DAY")
          .Excludes(month);
  flags->AddOption("--to", &to_, "The last day; today without it")
      .Type("DAY")
      .Needs(from);
  flags
      ->AddOption("--reset-day", &reset_day_,
                  "On which day of a month the period begins")
      .Excludes(from)
      .Type("DAY")
      .InRange(1, 31)
      .ShowDefault();
}

absl::StatusOr<Period> PeriodOptions::Get(Day today) const {
  if (from_.empty()) {
    if (month_.empty() || month_ == kThisMonth) {
      return PeriodAround(today, reset_day_);
    }
    const auto period = ParseMonth(month_, reset_day_);
    if (!period.ok()) return Prefixed("--month", period.status());
    return period;
  }
  const auto from = ParseDay(from_);
  if (!from.ok()) return Prefixed("--from", from.status());
  if (to_.empty()) return Period{*from, std::max(*from, today)};
  const auto to = ParseDay(to_);
  if (!to.ok()) return Prefixed("--to", to.status());
  if (*to < *from) {
    return absl::InvalidArgumentError(
        absl::StrCat("--to: ", to_, " is before ", from_));
  }
  return Period{*from, *to};
}

Day Today() { return HourOf(time(nullptr)).day; }

}  // namespace internal
}  // namespace netmeter
