// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/calendar.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"

namespace netmeter {
namespace internal {
namespace {

absl::CivilDay CivilOf(Day day) {
  return absl::CivilDay(day / 10000, day / 100 % 100, day % 100);
}

Day DayOf(absl::CivilDay day) {
  return static_cast<Day>(day.year() * 10000 + day.month() * 100 + day.day());
}

absl::CivilDay ResetDay(absl::CivilMonth month, int reset_day) {
  const absl::CivilDay last = absl::CivilDay(month + 1) - 1;
  return std::min(absl::CivilDay(month) + (reset_day - 1), last);
}

Period PeriodFrom(absl::CivilMonth month, int reset_day) {
  return {DayOf(ResetDay(month, reset_day)),
          DayOf(ResetDay(month + 1, reset_day) - 1)};
}

tm LocalOf(int64_t unix_seconds) {
  const time_t time = unix_seconds;
  tm local = {};
  localtime_r(&time, &local);
  return local;
}

std::string Format(const tm& parts, const char* format) {
  char text[64];
  return std::string(text, strftime(text, sizeof(text), format, &parts));
}

std::string TextOf(int64_t unix_seconds, const char* format) {
  return Format(LocalOf(unix_seconds), format);
}

// " (2nd)" if clocks showed this time before, and were set back since then.
const char* MarkOf(int64_t unix_seconds) {
  constexpr int64_t kMostSetBack = 3 * 3600;
  const int64_t before = LocalOf(unix_seconds - kMostSetBack).tm_gmtoff;
  const int64_t set_back = before - LocalOf(unix_seconds).tm_gmtoff;
  const bool is_second =
      set_back > 0 && LocalOf(unix_seconds - set_back).tm_gmtoff == before;
  return is_second ? " (2nd)" : "";
}

// Whether the text has `count` numbers of digits, with "-" between them.
bool ParseNumbers(absl::string_view text, int count, int* numbers) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '-');
  if (static_cast<int>(parts.size()) != count) return false;
  for (int i = 0; i < count; ++i) {
    const size_t digits = i == 0 ? 4 : 2;
    if (parts[i].size() != digits ||
        parts[i].find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(parts[i], &numbers[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

LocalHour HourOf(int64_t unix_seconds) {
  const tm local = LocalOf(unix_seconds);
  LocalHour hour;
  hour.start = unix_seconds - local.tm_min * 60 - local.tm_sec;
  hour.day =
      (local.tm_year + 1900) * 10000 + (local.tm_mon + 1) * 100 + local.tm_mday;
  return hour;
}

Day AddDays(Day day, int days) { return DayOf(CivilOf(day) + days); }

int DaysBetween(Day from, Day to) {
  return static_cast<int>(CivilOf(to) - CivilOf(from));
}

int64_t StartOf(Day day) { return TimeOf(day, 0); }

int64_t TimeOf(Day day, int minutes) {
  tm local = {};
  local.tm_hour = minutes / 60;
  local.tm_min = minutes % 60;
  local.tm_year = day / 10000 - 1900;
  local.tm_mon = day / 100 % 100 - 1;
  local.tm_mday = day % 100;
  local.tm_isdst = -1;
  return mktime(&local);
}

std::string FormatDay(Day day) {
  return absl::StrFormat("%04d-%02d-%02d", day / 10000, day / 100 % 100,
                         day % 100);
}

absl::StatusOr<Day> ParseDay(absl::string_view text) {
  int part[3] = {};
  if (ParseNumbers(text, 3, part)) {
    const Day day = part[0] * 10000 + part[1] * 100 + part[2];
    // The library turns a 30th of February into a day of March.
    if (part[0] >= 1970 && DayOf(CivilOf(day)) == day) return day;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a day as 2026-11-22, not '", text, "'"));
}

std::string FormatTime(int64_t unix_seconds) {
  return TextOf(unix_seconds, "%Y-%m-%d %H:%M") + MarkOf(unix_seconds);
}

std::string FormatSecond(int64_t unix_seconds) {
  return TextOf(unix_seconds, "%Y-%m-%d %H:%M:%S") + MarkOf(unix_seconds);
}

std::string FormatUtc(int64_t unix_seconds) {
  const time_t time = unix_seconds;
  tm parts = {};
  gmtime_r(&time, &parts);
  return Format(parts, "%Y-%m-%dT%H:%M:%SZ");
}

std::string FormatWithOffset(int64_t unix_seconds) {
  std::string text = TextOf(unix_seconds, "%Y-%m-%dT%H:%M:%S%z");
  return text.insert(text.size() - 2, ":");
}

Period PeriodOf(int year, int month, int reset_day) {
  return PeriodFrom(absl::CivilMonth(year, month), reset_day);
}

Period PeriodAround(Day day, int reset_day) {
  const absl::CivilMonth month(CivilOf(day));
  const Period period = PeriodFrom(month, reset_day);
  return day >= period.from ? period : PeriodFrom(month - 1, reset_day);
}

Period PeriodOfDays(Day day, int days, Day start) {
  const int since = DaysBetween(start, day);
  const int over = ((since % days) + days) % days;  // days since its first one
  const Day from = AddDays(day, -over);
  return {from, AddDays(from, days - 1)};
}

int HourOfWeek(int64_t unix_seconds) {
  const tm local = LocalOf(unix_seconds);
  return (local.tm_wday + 6) % 7 * 24 + local.tm_hour;
}

absl::StatusOr<Period> ParseMonth(absl::string_view text, int reset_day) {
  int part[2] = {};
  if (ParseNumbers(text, 2, part) && part[0] >= 1970 && part[1] >= 1 &&
      part[1] <= 12) {
    return PeriodOf(part[0], part[1], reset_day);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a month as 2026-11, not '", text, "'"));
}

}  // namespace internal
}  // namespace netmeter
