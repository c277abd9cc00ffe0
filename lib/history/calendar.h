// SPDX-License-Identifier: BSD-3-Clause
// Local days and billing periods. A day is a number that people can read,
// 20261122, and that sorts. The time zone is that of the process (TZ of
// environ(7), else /etc/localtime).
//
// Threads: any, unless one changes TZ.

#ifndef NETMETER_LIB_HISTORY_CALENDAR_H_
#define NETMETER_LIB_HISTORY_CALENDAR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// 20261122.
using Day = int32_t;

// The local hour of a moment: where it began, as Unix time, and its day. Where
// clocks are set back there are two hours of one name, with two beginnings.
struct LocalHour {
  int64_t start = 0;
  Day day = 0;
};
LocalHour HourOf(int64_t unix_seconds);

// The day `days` later, or, below 0, earlier.
Day AddDays(Day day, int days);
// How many days `to` is after `from`.
int DaysBetween(Day from, Day to);
// When the day begins, as Unix time: local midnight.
int64_t StartOf(Day day);
// When clocks show so many minutes after 0:00 on that day, as Unix time. Where they are
// set forward meanwhile, it is the moment that an hour's difference makes of it.
int64_t TimeOf(Day day, int minutes);

// "2026-11-22". InvalidArgument for what is no day.
std::string FormatDay(Day day);
absl::StatusOr<Day> ParseDay(absl::string_view text);
// "2026-11-22 13:05".
std::string FormatTime(int64_t unix_seconds);
// The same with seconds.
std::string FormatSecond(int64_t unix_seconds);

// Both days are in it.
struct Period {
  Day from = 0;
  Day to = 0;
};

// The billing period that begins on the `reset_day` (1 to 31) of this month. A
// month that is too short begins it on its last day.
Period PeriodOf(int year, int month, int reset_day);
// The one that `day` is in.
Period PeriodAround(Day day, int reset_day);
// "2026-11". InvalidArgument for what is no month.
absl::StatusOr<Period> ParseMonth(absl::string_view text, int reset_day);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_HISTORY_CALENDAR_H_
