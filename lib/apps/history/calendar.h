// SPDX-License-Identifier: BSD-3-Clause
// Local days and billing periods. A day is a number that is readable, 20261122, and sorts
// by date. The time zone is that of the process (TZ of environ(7), else /etc/localtime).
//
// Threads: any, unless one changes TZ.

#ifndef NETMETER_LIB_APPS_HISTORY_CALENDAR_H_
#define NETMETER_LIB_APPS_HISTORY_CALENDAR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// 20261122.
using Day = int32_t;

// The local hour of a time: its start, as Unix time, and its day. If clocks are set back,
// there are two hours of one name, with different starts.
struct LocalHour {
  int64_t start = 0;
  Day day = 0;
};
LocalHour HourOf(int64_t unix_seconds);

// The day `days` later, or earlier if `days` is negative.
Day AddDays(Day day, int days);
// The number of days from `from` to `to`.
int DaysBetween(Day from, Day to);
// The start of the day, as Unix time: local midnight.
int64_t StartOf(Day day);
// The time at which clocks show `minutes` after 0:00 on that day, as Unix time. If clocks
// are set forward over it, the time is shifted by the hour of the change.
int64_t TimeOf(Day day, int minutes);

// "2026-11-22". InvalidArgument if the text is not a day.
std::string FormatDay(Day day);
absl::StatusOr<Day> ParseDay(absl::string_view text);
// "2026-11-22 13:05", in local time. After clocks were set back, the times that they show
// again end with " (2nd)".
std::string FormatTime(int64_t unix_seconds);
// With seconds: "2026-11-22 13:05:09".
std::string FormatSecond(int64_t unix_seconds);
// For programs (RFC 3339): "2026-11-22T12:05:09Z", and local time with its offset from
// UTC, "2026-11-22T13:05:09+01:00".
std::string FormatUtc(int64_t unix_seconds);
std::string FormatWithOffset(int64_t unix_seconds);

// The first and the last day; both belong to the period.
struct Period {
  Day from = 0;
  Day to = 0;
};

// The billing period that begins on the `reset_day` (1 to 31) of this month. In a month
// that is too short it begins on the last day.
Period PeriodOf(int year, int month, int reset_day);
// The billing period that contains `day`.
Period PeriodAround(Day day, int reset_day);
// The period of `days` days that contains `day`, if one of them begins on `start`.
Period PeriodOfDays(Day day, int days, Day start);
// The hour of the week of a local time: 0 is Monday 0:00 to 1:00, 167 the last one.
int HourOfWeek(int64_t unix_seconds);
// "2026-11". InvalidArgument if the text is not a month.
absl::StatusOr<Period> ParseMonth(absl::string_view text, int reset_day);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_CALENDAR_H_
