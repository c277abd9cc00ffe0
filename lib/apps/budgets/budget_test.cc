// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/budgets/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "lib/apps/history/record.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Budget, SizesArePowersOf1000AndOf1024) {
  EXPECT_EQ(ParseSize("4096 B")->bytes, 4096);
  EXPECT_EQ(ParseSize("100 GB")->bytes, 100000000000);
  EXPECT_EQ(ParseSize("100 GB")->units, SizeUnits::kDecimal);
  EXPECT_EQ(ParseSize("1.5GiB")->bytes, 1610612736);
  EXPECT_EQ(ParseSize("1.5GiB")->units, SizeUnits::kBinary);
  EXPECT_EQ(ParseSize("1kB")->bytes, 1000);
  for (const char* text :
       {"", "GB", "0", "-5 GB", "1e9", "5 gb", "1.2.3 GB", "5 GB x", "nan",
        "inf", "99999999 TB", "0.1 B", "4096"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(Budget, ParsesAllKeys) {
  const auto budgets = ParseBudgets(
      "reset_day: 15\n"
      "budgets:\n"
      "  - {name: satellite, limit: 100 GB}\n"
      "  - name: backups\n"
      "    limit: 5 GiB\n"
      "    service: rsync\n"
      "    destination: store\n"
      "    kind: binary\n"
      "    path: proxy\n"
      "    uplink: satellite\n"
      "    direction: tx\n"
      "    reset_day: 31\n"
      "    warn: [100, 50]\n"
      "  - name: plan\n"
      "    limit: 1 GB\n"
      "    direction: larger\n"
      "    days: 28\n"
      "    start: 2026-11-03\n"
      "    free: [sat-sun, \"mon-fri 0-6\", \"fri 23-24\"]\n"
      "    factor: 1.04\n",
      "f");
  ASSERT_TRUE(budgets.ok()) << budgets.status();
  ASSERT_EQ(budgets->budgets.size(), 3u);
  EXPECT_EQ(budgets->budgets[0].limit, 100000000000);
  EXPECT_EQ(budgets->budgets[0].units, SizeUnits::kDecimal);
  EXPECT_EQ(budgets->budgets[1].units, SizeUnits::kBinary);
  EXPECT_EQ(budgets->budgets[0].reset_day, 15);
  EXPECT_THAT(budgets->budgets[0].warn, ElementsAre(80, 100));
  const Budget& backups = budgets->budgets[1];
  EXPECT_EQ(backups.service, "rsync");
  EXPECT_EQ(backups.destination, "store");
  EXPECT_EQ(backups.kind, "binary");
  EXPECT_EQ(backups.path, "proxy");
  EXPECT_EQ(backups.uplink, "satellite");
  EXPECT_EQ(backups.direction, Budget::Direction::kSent);
  EXPECT_EQ(backups.reset_day, 31);
  EXPECT_THAT(backups.warn, ElementsAre(50, 100));
  const Budget& plan = budgets->budgets[2];
  EXPECT_EQ(plan.direction, Budget::Direction::kLarger);
  EXPECT_EQ(plan.days, 28);
  EXPECT_EQ(plan.start, 20261103);
  EXPECT_EQ(plan.free_hours.count(), 2 * 24 + 5 * 6 + 1u);
  EXPECT_TRUE(plan.free_hours[4 * 24 + 5] && plan.free_hours[4 * 24 + 23]);
  EXPECT_FALSE(plan.free_hours[4 * 24 + 6] || plan.free_hours[4 * 24 + 22]);
  EXPECT_EQ(plan.factor, 1.04);
}

TEST(Budget, WhatIsWrongIsOneLineWithItsPlace) {
  const auto error = [](const std::string& yaml) {
    const auto budgets = ParseBudgets(yaml, "f");
    EXPECT_FALSE(budgets.ok()) << yaml;
    EXPECT_EQ(budgets.status().message().find('\n'), std::string::npos);
    return std::string(budgets.status().message());
  };
  EXPECT_EQ(error(""), "f: expected one document with the key budgets");
  EXPECT_EQ(error("a: 1\n---\nb: 2"),
            "f: expected one document with the key budgets");
  EXPECT_EQ(error("[]"), "f:1: expected the key budgets");
  EXPECT_EQ(error("[a]: 1"), "f:1: expected key: value lines");
  EXPECT_EQ(error("budgets:\n  - {[a]: 1}"), "f:2: expected key: value lines");
  EXPECT_EQ(error("budgets:\n\t- {name: a}"),
            "f:2: a tab indents this line: YAML takes blanks only");
  EXPECT_EQ(error("budgets: []"), "f:1: budgets: the list is empty");
  EXPECT_EQ(error("budgets: 5"), "f:1: budgets: expected a list of budgets");
  EXPECT_EQ(error("budgets:\n  - {name: a, limit: 5 gb}"),
            "f:2: limit: expected a size, as 100 GB, not '5 gb'");
  // The bug: this was 10 bytes, and 23,377,502,640 % used.
  EXPECT_EQ(error("budgets:\n  - {name: a, limit: 10}"),
            "f:2: limit: '10' has no unit: expected a size, as 10 GB, 10 GiB "
            "or 10 B");
  EXPECT_EQ(error("budgets:\n  - {name: a, limt: 5}"),
            "f:2: unknown key 'limt' (did you mean limit?)");
  EXPECT_EQ(error("budgets:\n  - {name: a}"), "f:2: a needs a limit");
  EXPECT_EQ(error("budgets:\n  - {limit: 5 B}"), "f:2: a budget needs a name");
  EXPECT_EQ(
      error("budgets:\n  - {name: a, limit: 5 B}\n  - {name: a, limit: 5 B}"),
      "f:3: name: 'a' is there twice");
  EXPECT_EQ(error("budgets:\n  - {name: a, limit: 5 B, warn: [0]}"),
            "f:2: warn: expected a number from 1 to 1000, not '0'");
  EXPECT_EQ(error("reset_day: 32\nbudgets: [{name: a, limit: 5 B}]"),
            "f:1: reset_day: expected a number from 1 to 31, not '32'");
  EXPECT_THAT(error("budgets: [{name: a, limit: 5 B, path: up}]"),
              HasSubstr("path: expected direct or proxy, not 'up'"));
  EXPECT_THAT(error("budgets: [{name: a, limit: 5 B, uplinks: x}]"),
              HasSubstr("unknown key 'uplinks' (did you mean uplink?)"));
  const auto key = [&error](const std::string& text) {
    return error("budgets: [{name: a, limit: 5 B, " + text + "}]");
  };
  EXPECT_EQ(key("days: 28, reset_day: 3"),
            "f:1: a budget has either days or reset_day");
  EXPECT_EQ(key("start: 2026-11-03"),
            "f:1: start: needs days, the length of a period");
  EXPECT_EQ(key("days: 7, start: monday"),
            "f:1: start: expected a day as 2026-11-22, not 'monday'");
  EXPECT_EQ(key("factor: 0"),
            "f:1: factor: expected a number from 0.01 to 100, not '0'");
  EXPECT_EQ(key("free: sat"),
            "f:1: free: expected a list, as [sat-sun, \"mon-fri 0-6\"]");
  for (const char* const free :
       {"6", "0-25", "sat-mon-tue", "weekend", "-", "0-", "6-6"}) {
    EXPECT_THAT(key(std::string("free: [\"") + free + "\"]"),
                HasSubstr("f:1: free: expected "))
        << free;
  }
  EXPECT_EQ(key("free: [\"22-6\"]"),
            "f:1: free: expected the earlier one first, not '22-6'");
  EXPECT_THAT(error("budgets: ["), HasSubstr("f:"));
  EXPECT_THAT(error("budgets: [{[a]: b}]"), HasSubstr("f:"));
}

class BudgetStateTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
    path_ = testing::TempDir() + "/budget-" + std::to_string(getpid());
    auto history = OpenHistory(path_, Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
    now_ = StartOf(20261115);
    budget_.name = "satellite";
    budget_.limit = 100000000;
    budget_.reset_day = 15;
  }
  void TearDown() override {
    history_.reset();
    for (const char* end : {"", "-wal", "-shm"}) unlink((path_ + end).c_str());
  }
  void Count(uint64_t tx, uint64_t rx) {
    Reading reading;
    reading.now = now_;
    reading.boottime = now_;
    reading.boot_id = "boot";
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = "mme";
    sample.tx_bytes = tx;
    sample.rx_bytes = rx;
    reading.samples = {sample};
    ASSERT_TRUE(Record(history_.get(), RecordOptions(),
                       [&]() -> absl::StatusOr<Reading> { return reading; })
                    .ok());
  }
  BudgetState State() {
    const auto state = ReadBudgetState(history_.get(), budget_, now_);
    EXPECT_TRUE(state.ok()) << state.status();
    return *state;
  }

  std::string path_;
  std::unique_ptr<Database> history_;
  Budget budget_;
  int64_t now_ = 0;
};

TEST_F(BudgetStateTest, IsOfThePeriodAndForecastsItsEnd) {
  now_ += 3600;
  Count(10000000, 20000000);
  EXPECT_EQ(State().used, 30000000);
  EXPECT_EQ(State().forecast, -1);  // too early
  EXPECT_EQ(State().forecast_unknown,
            "too little of this period is recorded (it comes at "
            "2026-11-16 00:00)");
  EXPECT_THAT(State().crossed, ElementsAre());
  now_ = StartOf(20261115) + 3 * 86400;
  EXPECT_EQ(State().forecast, 300000000);  // 3 of 30 days
  budget_.direction = Budget::Direction::kSent;
  EXPECT_EQ(State().used, 10000000);
  budget_.service = "other";
  EXPECT_EQ(State().used, 0);
  budget_.service = "";
  now_ = StartOf(20261215);
  EXPECT_EQ(State().used, 0);
}

TEST_F(BudgetStateTest, PlansOfDaysFreeHoursAndFactorsAreTheProviders) {
  // 2026-11-15 is a Sunday. The reads are totals of the meter.
  now_ += 12 * 3600;
  Count(100, 1000);
  now_ = StartOf(20261116) + 5 * 3600;
  Count(300, 3000);
  now_ += 3600;
  Count(700, 3500);
  EXPECT_EQ(State().used, 4200);
  budget_.direction = Budget::Direction::kLarger;
  EXPECT_EQ(State().used, 3500);
  budget_.days = 1;
  EXPECT_EQ(State().used, 2500);
  // A quota of a day never had a forecast: it was to come after a day of its period.
  EXPECT_EQ(State().forecast, 10000);  // 6 of 24 hours
  now_ -= 3600;
  EXPECT_EQ(State().forecast_unknown,
            "too little of this period is recorded (it comes at 2026-11-16 "
            "06:00)");
  now_ += 3600;
  EXPECT_EQ(State().period.from, 20261116);
  budget_.factor = 1.5;
  EXPECT_EQ(State().used, 3750);
  budget_.days = 28;
  budget_.start = 20261116;
  EXPECT_EQ(State().period.to, 20261213);
  budget_.start = 20261117;
  EXPECT_EQ(State().period.from, 20261020);
  budget_.factor = 1;
  for (size_t hour = 0; hour < 6; ++hour) budget_.free_hours.set(hour);
  EXPECT_EQ(State().used, 1000);
}

// The bug: in the month of an installation the forecast was a fraction of the real usage.
TEST_F(BudgetStateTest,
       AHistoryThatIsYoungerThanThePeriodForecastsByItsOwnTime) {
  now_ += 20 * 86400;
  Count(10000000, 0);
  EXPECT_EQ(State().forecast, -1);  // known for less than a day
  now_ += 2 * 86400;
  EXPECT_EQ(State().forecast, 50000000);  // 5 MB a day, for 8 days more
}

TEST_F(BudgetStateTest, ABudgetOfWhatIsForwardedHasItAlone) {
  Reading reading;
  reading.now = reading.boottime = now_ += 60;
  reading.boot_id = "boot";
  Sample sample;
  sample.kind = Kind::kBinary;
  sample.name = "curl";
  sample.rx_bytes = 1000;
  reading.samples = {sample};
  reading.has_forwarded = true;
  reading.forwarded[{"lan", "forwarded", ""}].value = {100, 200, 1, 2};
  ASSERT_TRUE(
      Record(history_.get(), RecordOptions(), [&]() -> absl::StatusOr<Reading> {
        return reading;
      }).ok());
  const auto budgets = ParseBudgets(
      "budgets: [{name: f, limit: 5 B, kind: forwarded},"
      "{name: d, limit: 5 B, destination: forwarded},"
      "{name: -, limit: 5 B, destination: '-'}]",
      "test");
  ASSERT_TRUE(budgets.ok()) << budgets.status();
  std::vector<int64_t> used;
  for (Budget budget : budgets->budgets) {
    budget.reset_day = budget_.reset_day;
    budget_ = budget;
    used.push_back(State().used);
  }
  // The bug: forwarded traffic was part of the row without a destination, and had no row
  // of its own.
  EXPECT_THAT(used, ElementsAre(300, 300, 1000));
}

TEST_F(BudgetStateTest, ALevelIsCrossedWhenItIsReachedAndWarnsOnceAPeriod) {
  now_ += 60;
  Count(79999999, 0);
  EXPECT_EQ(State().percent, 79);
  now_ += 60;
  Count(80000000, 0);
  EXPECT_THAT(State().crossed, ElementsAre(80));
  const auto was_warned = [this](int percent) {
    return *WasWarned(history_.get(), budget_, State(), percent);
  };
  EXPECT_FALSE(was_warned(80));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(NoteWarning(history_.get(), budget_, State(), 80).ok());
    EXPECT_TRUE(was_warned(80));
  }
  now_ += 60;
  Count(100000000, 0);
  EXPECT_THAT(State().crossed, ElementsAre(80, 100));
  EXPECT_FALSE(was_warned(100));
  now_ += 30 * 86400;
  EXPECT_FALSE(was_warned(80));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
