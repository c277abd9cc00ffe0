// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/calendar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

namespace netmeter {
namespace internal {
namespace {

void SetZone(const char* zone) {
  setenv("TZ", zone, 1);
  tzset();
}

std::string Format(const Period& period) {
  return FormatDay(period.from) + " " + FormatDay(period.to);
}

TEST(Calendar, APeriodBeginsOnItsDayOrOnTheLastOneOfAShortMonth) {
  EXPECT_EQ(Format(PeriodOf(2026, 11, 1)), "2026-11-01 2026-11-30");
  EXPECT_EQ(Format(PeriodOf(2026, 12, 15)), "2026-12-15 2027-01-14");
  EXPECT_EQ(Format(PeriodOf(2026, 1, 31)), "2026-01-31 2026-02-27");
  EXPECT_EQ(Format(PeriodOf(2026, 2, 31)), "2026-02-28 2026-03-30");
  EXPECT_EQ(Format(PeriodOf(2028, 2, 31)), "2028-02-29 2028-03-30");
  EXPECT_EQ(Format(PeriodOf(2026, 4, 31)), "2026-04-30 2026-05-30");
}

// Each day of ten years is in the period that PeriodAround() returns for it. Periods
// follow each other without gaps and without overlaps.
TEST(Calendar, EveryDayIsInExactlyOnePeriod) {
  for (const int reset_day : {1, 2, 15, 28, 29, 30, 31}) {
    Day day = 20240101;
    Period period = PeriodAround(day, reset_day);
    for (; day < 20340101; day = AddDays(day, 1)) {
      if (day > period.to) {
        const Period next = PeriodAround(day, reset_day);
        ASSERT_EQ(next.from, AddDays(period.to, 1)) << day << " " << reset_day;
        period = next;
      }
      ASSERT_LE(period.from, day);
      ASSERT_EQ(Format(PeriodAround(day, reset_day)), Format(period));
    }
  }
}

TEST(Calendar, ParsesDaysAndMonthsAndNothingElse) {
  EXPECT_EQ(*ParseDay("2026-11-22"), 20261122);
  EXPECT_EQ(Format(*ParseMonth("2026-02", 31)), "2026-02-28 2026-03-30");
  for (const char* text : {"", "2026-02-30", "2026-13-01", "2026-1-1", "x",
                           "2026-11", "2026-11-22-01", "-001-01-01",
                           "2026-11-2x", "0001-01-01", "99999-01-01"}) {
    EXPECT_FALSE(ParseDay(text).ok()) << text;
  }
  for (const char* text : {"2026", "2026-00", "2026-13", "2026-11-22", ""}) {
    EXPECT_FALSE(ParseMonth(text, 1).ok()) << text;
  }
  EXPECT_EQ(ParseDay("11/22").status().message(),
            "expected a day as 2026-11-22, not '11/22'");
}

// Berlin, 2026-10-25: at 03:00 summer time clocks return to 02:00.
TEST(Calendar, TheNightOf25HoursHasTwoHoursOfOneName) {
  SetZone("Europe/Berlin");
  const int64_t midnight = StartOf(20261025);
  EXPECT_EQ(StartOf(20261026) - midnight, 25 * 3600);
  for (int i = 0; i < 25; ++i) {
    const LocalHour hour = HourOf(midnight + i * 3600 + 1800);
    EXPECT_EQ(hour.start, midnight + i * 3600);
    EXPECT_EQ(hour.day, 20261025);
  }
  EXPECT_EQ(FormatTime(midnight + 2 * 3600), "2026-10-25 02:00");
  EXPECT_EQ(FormatTime(midnight + 3 * 3600), "2026-10-25 02:00 (2nd)");
  EXPECT_EQ(FormatTime(midnight + 4 * 3600 - 1), "2026-10-25 02:59 (2nd)");
  EXPECT_EQ(FormatTime(midnight + 4 * 3600), "2026-10-25 03:00");
  EXPECT_EQ(FormatSecond(midnight + 3 * 3600), "2026-10-25 02:00:00 (2nd)");
  EXPECT_EQ(FormatWithOffset(midnight + 2 * 3600), "2026-10-25T02:00:00+02:00");
  EXPECT_EQ(FormatWithOffset(midnight + 3 * 3600), "2026-10-25T02:00:00+01:00");
  EXPECT_EQ(FormatUtc(midnight + 3 * 3600), "2026-10-25T01:00:00Z");
  EXPECT_EQ(FormatSecond(midnight + 7), "2026-10-25 00:00:07");
  EXPECT_EQ(StartOf(20260330) - StartOf(20260329), 23 * 3600);
}

TEST(Calendar, DaysOfZonesWithHalfHoursBeginAtTheirMidnight) {
  SetZone("Asia/Kathmandu");  // UTC+05:45
  const int64_t midnight = StartOf(20261122);
  EXPECT_EQ(midnight % 3600, 900);
  EXPECT_EQ(HourOf(midnight - 1).day, 20261121);
  EXPECT_EQ(HourOf(midnight).day, 20261122);
  EXPECT_EQ(HourOf(midnight + 3599).start, midnight);
  SetZone("Australia/Lord_Howe");  // clocks are set back by half an hour
  const int64_t night = StartOf(20260405);
  EXPECT_EQ(FormatTime(night + 119 * 60), "2026-04-05 01:59");
  EXPECT_EQ(FormatTime(night + 120 * 60), "2026-04-05 01:30 (2nd)");
  EXPECT_EQ(FormatTime(night + 150 * 60), "2026-04-05 02:00");
  EXPECT_EQ(FormatWithOffset(night + 120 * 60), "2026-04-05T01:30:00+10:30");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
