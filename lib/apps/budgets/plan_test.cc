// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/budgets/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "lib/apps/budgets/budget.h"
#include "lib/apps/history/record.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMB = 1000000;
constexpr int64_t kGB = 1000 * kMB;
constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kTiB = 1024 * 1024 * kMiB;

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
    path_ = testing::TempDir() + "/plan-" + std::to_string(getpid());
    auto history = OpenHistory(path_, Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
  }
  void TearDown() override {
    history_.reset();
    for (const char* end : {"", "-wal", "-shm"}) unlink((path_ + end).c_str());
  }

  // What a service sent and received by an uplink at noon of that day. Days in order.
  void Count(Day day, const std::string& uplink, int64_t tx, int64_t rx,
             const std::string& service = "mme") {
    now_ = std::max(now_ + 60, TimeOf(day, 12 * 60));
    Record();
    Sample& sample = samples_[{uplink, service}];
    sample.kind = Kind::kService;
    sample.name = service;
    sample.uplink = uplink;
    sample.tx_bytes += static_cast<uint64_t>(tx);
    sample.rx_bytes += static_cast<uint64_t>(rx);
    now_ += 60;
    Record();
  }
  void Record() {
    Reading reading;
    reading.now = reading.boottime = now_;
    reading.boot_id = "boot";
    for (const auto& sample : samples_) {
      reading.samples.push_back(sample.second);
    }
    ASSERT_TRUE(
        internal::Record(history_.get(), RecordOptions(),
                         [&]() -> absl::StatusOr<Reading> { return reading; })
            .ok());
  }

  static std::vector<Plan> Parse(const std::string& plans) {
    const auto file = ParseBudgets("plans:\n" + plans, "f");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->plans : std::vector<Plan>();
  }
  PlanCost CostOf(const Plan& plan, Day day) {
    const auto cost = ReadCost(history_.get(), plan, day);
    EXPECT_TRUE(cost.ok()) << cost.status();
    return cost.ok() ? *cost : PlanCost();
  }
  // The example's cost of November 2026.
  PlanCost Invoice(const std::string& name) {
    const auto file = ReadBudgetFile("examples/fleet/tariffs.yml");
    EXPECT_TRUE(file.ok()) << file.status();
    for (const Plan& plan : file->plans) {
      if (plan.name == name) return CostOf(plan, 20261105);
    }
    ADD_FAILURE() << name;
    return {};
  }
  // The costs of a query, after a check that the rows are the sum.
  UsageCosts CostsOf(const std::vector<Plan>& plans, const UsageQuery& query,
                     Usage* usage) {
    auto read = ReadUsage(history_.get(), query);
    EXPECT_TRUE(read.ok()) << read.status();
    *usage = *std::move(read);
    const auto costs = ReadUsageCosts(history_.get(), plans, query, usage);
    EXPECT_TRUE(costs.ok()) << costs.status();
    int64_t sum = 0;
    for (const UsageRow& row : usage->rows) sum += row.cost_micros;
    EXPECT_EQ(sum, costs->micros);
    return *costs;
  }

  std::string path_;
  std::unique_ptr<Database> history_;
  std::map<std::pair<std::string, std::string>, Sample> samples_;
  int64_t now_ = 0;
};

// Each day is rounded up to 10 KiB:
//   20 MiB + 1 byte    2049 blocks
//   10 MiB             1024 blocks
//   3000 bytes            1 block
//   together           3074 blocks =  30740 KiB
//   included, 25 MiB               -  25600 KiB
//   billed                             5140 KiB = 5.01953125 MiB
//   5.01953125 MiB x 18.78                  94.266796875
//   fee, the minimum charge                469.40
//   sum                                    563.666796875, half up 563.666797
TEST_F(PlanTest, SatelliteByTheMBWithAMinimumCharge) {
  Count(20261102, "inmarsat", 20 * kMiB, 1);
  Count(20261103, "inmarsat", 4 * kMiB, 6 * kMiB);
  Count(20261130, "inmarsat", 1000, 2000);
  const PlanCost cost = Invoice("fleetbroadband");
  EXPECT_EQ(cost.micros, 563666797);
  EXPECT_EQ(cost.used_bytes, 30 * kMiB + 3001);
  EXPECT_EQ(cost.billed_bytes, 5140 * kKiB);
  EXPECT_EQ(cost.period.from, 20261101);
  EXPECT_EQ(cost.period.to, 20261130);
}

// November 1 to 15, 15 of 30 days, the plan of 50 GB:
//   fee 65 x 15/30                                        32.50
//   included 50 GB x 15/30 = 25 GB; used 40 GB; 15 GB more
//   are 1 block of 50 GB, 50 x 0.50                       25.00
// November 16 to 30, 15 of 30 days, the plan of 500 GB:
//   fee 165 x 15/30                                       82.50
//   included 500 GB x 15/30 = 250 GB; used 751 GB; 501 GB
//   more are 2 blocks of 500 GB, 1000 x 0.25             250.00
// sum                                                    390.00
TEST_F(PlanTest, SatelliteWithIncludedVolumeThatChangesInTheMiddleOfAMonth) {
  Count(20261115, "starlink", 10 * kGB, 30 * kGB);
  Count(20261116, "starlink", 51 * kGB, 700 * kGB);
  const PlanCost cost = Invoice("starlink");
  EXPECT_EQ(cost.micros, 390000000);
  EXPECT_EQ(cost.used_bytes, 791 * kGB);
  EXPECT_EQ(cost.billed_bytes, 1050 * kGB);
  // The month before has the first plan alone: its fee. The month after has the second.
  const auto file = ReadBudgetFile("examples/fleet/tariffs.yml");
  ASSERT_TRUE(file.ok());
  const Plan& plan = file->plans[1];
  EXPECT_EQ(CostOf(plan, 20261031).micros, 65000000);
  EXPECT_EQ(CostOf(plan, 20261201).micros, 165000000);
}

// 1234.5 MB:
//   the first 100 MB    x 0.0780       7.80
//   the next 400 MB     x 0.0390      15.60
//   the other 734.5 MB  x 0.0195      14.32275
//   fee                                2.00
//   sum                               39.72275
TEST_F(PlanTest, CellularWithTiers) {
  Count(20261101, "lte", 1000 * kMB, 234500000);
  EXPECT_EQ(Invoice("telnyx").micros, 39722750);
}

// 12 TiB = 12288 GiB were sent, and 5 TiB received, which cost nothing:
//   the first 100 GiB       x 0          0.00
//   up to 10240 GiB, 10140  x 0.09     912.60
//   the other 2048 GiB      x 0.085    174.08
//   sum                               1086.68
TEST_F(PlanTest, CloudEgress) {
  Count(20261101, "cloud", 12 * kTiB, 5 * kTiB);
  const PlanCost cost = Invoice("aws");
  EXPECT_EQ(cost.micros, 1086680000);
  EXPECT_EQ(cost.used_bytes, 12 * kTiB);
  EXPECT_EQ(cost.billed_bytes, 12188 * 1024 * kMiB);
}

// 7.99 for 30 days from November 3, whatever is used. The budget is used up by 3 GB.
TEST_F(PlanTest, FlatFeeWithAFairUseCap) {
  Count(20261202, "prepaid", 1 * kGB, 2 * kGB);
  const PlanCost cost = Invoice("penny");
  EXPECT_EQ(cost.micros, 7990000);
  EXPECT_EQ(cost.billed_bytes, 0);
  EXPECT_EQ(cost.period.from, 20261103);
  EXPECT_EQ(cost.period.to, 20261202);
  const auto file = ReadBudgetFile("examples/fleet/tariffs.yml");
  ASSERT_TRUE(file.ok());
  const auto state =
      ReadBudgetState(history_.get(), file->budgets[0], StartOf(20261202));
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->percent, 300);
}

// 127 KiB are 2 blocks of 100 KiB, the example of Soracom's documentation:
//   200 KiB = 0.1953125 MiB x 0.50    0.09765625
//   30 days x 0.06                    1.80
//   sum                               1.89765625, half up 1.897656
TEST_F(PlanTest, AFeeByTheDayAndVolumeThatIsRoundedUp) {
  Count(20261101, "iot", 27 * kKiB, 50 * kKiB);
  Count(20261120, "iot", 50 * kKiB, 0);
  const PlanCost cost = Invoice("soracom");
  EXPECT_EQ(cost.micros, 1897656);
  EXPECT_EQ(cost.billed_bytes, 200 * kKiB);
}

// A plan that begins on the 21st of a month of 30 days: 10 days of the fee, and none of
// the bytes before. It ends when a plan of another name and period begins.
TEST_F(PlanTest, APlanThatBeginsOrEndsHasItsDays) {
  Count(20261120, "sat", 5 * kGB, 0);
  Count(20261121, "sat", 2 * kGB, 0);
  Count(20261215, "sat", 4 * kGB, 0);
  const auto plans = Parse(
      "  - {name: a, uplink: sat, currency: EUR, fee: 30, price: 1/GB,"
      " from: 2026-11-21}\n"
      "  - {name: b, uplink: sat, currency: EUR, fee: 31, price: 2/GB,"
      " from: 2026-12-15, reset_day: 15}\n");
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(CostOf(plans[0], 20261121).micros, 12000000);  // 30 x 10/30 + 2
  // 14 of 31 days of 30 are 13.548387096..., and nothing of the 4 GB.
  EXPECT_EQ(CostOf(plans[0], 20261201).micros, 13548387);
  EXPECT_EQ(CostOf(plans[0], 20261201).used_bytes, 0);
  EXPECT_EQ(CostOf(plans[1], 20261215).micros, 39000000);
}

TEST_F(PlanTest, TheSumOfTheRowsIsTheSum) {
  Count(20261101, "sat", 1, 1, "a");
  Count(20261105, "sat", 3 * kGB, 1 * kGB, "a");
  Count(20261105, "lte", 7, 0, "b");
  Count(20261106, "sat", 12345678, 1, "b");
  Count(20261130, "sat", 1, 7777777, "c");
  const auto plans = Parse(
      "  - {name: s, uplink: sat, currency: EUR, fee: 10, price: 0.37/GiB}\n"
      "  - {name: l, uplink: lte, currency: EUR, fee: 0.05/day, days: 1}\n");
  UsageQuery query;
  query.period = {20261101, 20261130};
  Usage usage;
  int64_t all = 0;
  for (const UsageBy by :
       {UsageBy::kService, UsageBy::kDestination, UsageBy::kUplink,
        UsageBy::kHour, UsageBy::kDay, UsageBy::kWeek, UsageBy::kMonth,
        UsageBy::kYear, UsageBy::kNothing}) {
    query.by = by;
    const UsageCosts costs = CostsOf(plans, query, &usage);
    EXPECT_EQ(costs.currency, "EUR");
    EXPECT_EQ(costs.plans.size(), 2u);
    if (all == 0) all = costs.micros;
    EXPECT_EQ(costs.micros, all);
  }
  // 30 days of 0.05; on 29 of them nothing passed, and these have a row of their own.
  query.by = UsageBy::kUplink;
  query.uplink = "lte";
  CostsOf(plans, query, &usage);
  ASSERT_EQ(usage.rows.size(), 2u);
  EXPECT_EQ(usage.rows[0].cost_micros, 50000);
  EXPECT_EQ(usage.rows[1].kind, "fee");
  EXPECT_EQ(usage.rows[1].name, "l");
  EXPECT_EQ(usage.rows[1].cost_micros, 1450000);
}

// A cost is of whole billing periods and of whole uplinks.
TEST_F(PlanTest, SaysWhyThereIsNoCost) {
  Count(20261105, "sat", 3 * kGB, 0);
  const auto plans = Parse(
      "  - {name: s, uplink: sat, currency: EUR, fee: 10, reset_day: 15}\n");
  UsageQuery query;
  query.period = {20261101, 20261130};
  Usage usage;
  UsageCosts costs = CostsOf(plans, query, &usage);
  EXPECT_EQ(costs.currency, "");
  EXPECT_EQ(costs.unknown,
            "plan s has the billing period 2026-10-15 to 2026-11-14 "
            "(--reset-day 15)");
  query.period = {20261015, 20261214};
  costs = CostsOf(plans, query, &usage);
  EXPECT_EQ(costs.unknown, "");
  EXPECT_EQ(costs.micros, 20000000);
  query.service = "mme";
  EXPECT_TRUE(CostsOf(plans, query, &usage).plans.empty());
  query.service = "";
  query.uplink = "other";
  EXPECT_TRUE(CostsOf(plans, query, &usage).plans.empty());
}

TEST_F(PlanTest, SeveralCurrenciesHaveNoSum) {
  Count(20261105, "sat", kGB, 0);
  Count(20261105, "lte", kGB, 0);
  const auto plans = Parse(
      "  - {name: s, uplink: sat, currency: EUR, fee: 10}\n"
      "  - {name: l, uplink: lte, currency: USD, fee: 20}\n");
  UsageQuery query;
  query.period = {20261101, 20261130};
  Usage usage;
  const UsageCosts costs = CostsOf(plans, query, &usage);
  EXPECT_EQ(costs.currency, "");
  EXPECT_EQ(costs.plans.size(), 2u);
  query.uplink = "lte";
  EXPECT_EQ(CostsOf(plans, query, &usage).currency, "USD");
}

TEST_F(PlanTest, APlanWithoutUplinkIsOfTheSum) {
  Count(20261105, "sat", kGB, 0);
  Count(20261105, "lte", kGB, 0);
  const auto plans = Parse("  - {name: all, currency: EUR, price: 1/GB}\n");
  EXPECT_EQ(CostOf(plans[0], 20261105).micros, 2000000);
}

TEST_F(PlanTest, ACostThatIsTooLargeIsRefused) {
  Count(20261105, "sat", kTiB, 0);
  const auto plans =
      Parse("  - {name: s, uplink: sat, currency: EUR, price: 1000000000/B}\n");
  const auto cost = ReadCost(history_.get(), plans[0], 20261105);
  EXPECT_EQ(cost.status().message(),
            "plan s: the cost is too large to compute");
  const auto unknown = Parse("  - {name: t, uplink: x, currency: EUR, fee: 1}");
  EXPECT_THAT(
      std::string(
          ReadCost(history_.get(), unknown[0], 20261105).status().message()),
      HasSubstr("plan t: no uplink 'x'"));
}

TEST(Plan, PartsAreTheWhole) {
  EXPECT_THAT(Divide(100, {1, 1, 1}), ElementsAre(33, 33, 34));
  EXPECT_THAT(Divide(2, {0, 5, 0, 5}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Divide(7, {0, 0}), ElementsAre(0, 0));
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Divide(most, {most, most}),
              ElementsAre(most / 2, most - most / 2));
}

TEST(Plan, MoneyIsInCentsUnlessItIsExact) {
  EXPECT_EQ(MoneyText(0, false), "0.00");
  EXPECT_EQ(MoneyText(563666797, false), "563.67");
  EXPECT_EQ(MoneyText(563666797, true), "563.666797");
  EXPECT_EQ(MoneyText(469400000, true), "469.40");
  EXPECT_EQ(MoneyText(1995000, false), "2.00");
  EXPECT_EQ(MoneyText(300, false), "0.0003");
}

TEST(Plan, WhatIsWrongIsOneLineWithItsPlace) {
  const auto error = [](const std::string& yaml) {
    const auto file = ParseBudgets(yaml, "f");
    EXPECT_FALSE(file.ok()) << yaml;
    return std::string(file.status().message());
  };
  const auto plan = [&](const std::string& keys) {
    return error("plans: [{name: a, currency: EUR, " + keys + "}]");
  };
  EXPECT_EQ(error("reset_day: 5"), "f:1: expected the key budgets or plans");
  EXPECT_EQ(error("plans: 5"), "f:1: plans: expected a list of plans");
  EXPECT_EQ(error("plans: []"), "f:1: plans: the list is empty");
  EXPECT_EQ(error("plans: [{currency: EUR, fee: 1}]"),
            "f:1: a plan needs a name");
  EXPECT_EQ(error("plans: [{name: a, fee: 1}]"),
            "f:1: a needs a currency, as EUR");
  EXPECT_EQ(error("plans: [{name: a, currency: euro, fee: 1}]"),
            "f:1: currency: expected three letters of ISO 4217, as EUR, not "
            "'euro'");
  EXPECT_EQ(plan("uplink: x"), "f:1: a needs a fee or a price");
  EXPECT_EQ(plan("fee: 1, included: 1 GB"),
            "f:1: a needs a price, because it has the key included");
  EXPECT_EQ(plan("fee: 1, limit: 1 GB"), "f:1: unknown key 'limit'");
  for (const char* const fee : {"-1", "1.2.3", "1,50", "1/month", "1/", "1e3",
                                ".", "1000000001", "99999999999999999999"}) {
    EXPECT_THAT(plan(std::string("fee: '") + fee + "'"),
                HasSubstr("f:1: fee: expected an amount, as 65 or 0.06/day"))
        << fee;
  }
  EXPECT_EQ(plan("fee: 0.0000001"),
            "f:1: fee: expected 6 decimals at most (name the price of more "
            "bytes), not '0.0000001'");
  for (const char* const price : {"1", "1/gb", "1/GB/day", "x/GB", "/GB"}) {
    EXPECT_THAT(plan(std::string("price: ") + price),
                HasSubstr("f:1: price: expected a price, as 0.09/GB"))
        << price;
  }
  for (const char* const tiers :
       {"[{price: 1/GB}, {price: 2/GB}]", "[{to: 1 GB, price: 1/GB}]", "[1/GB]",
        "[{to: 1 GB, cost: 1/GB}, {price: 1/GB}]"}) {
    EXPECT_THAT(plan(std::string("price: ") + tiers),
                HasSubstr("f:1: price: expected tiers, as [{to: "))
        << tiers;
  }
  EXPECT_EQ(plan("price: [{to: 1 GB, price: 1/GB}, {price: 1/GiB}]"),
            "f:1: price: expected one unit in all tiers, not '1/GiB'");
  EXPECT_EQ(plan("price: [{to: 2 GB, price: 1/GB}, {to: 2 GB, price: 2/GB}, "
                 "{price: 1/GB}]"),
            "f:1: to: expected the smaller tier first");
  EXPECT_EQ(plan("included: 1 GB, price: [{to: 2 GB, price: 1/GB}, {price: "
                 "2/GB}]"),
            "f:1: included: with tiers it is one, {to: 1 GB, price: 0/GB}");
  for (const char* const round : {"1", "1 MB/month", "1 MB/", "day"}) {
    EXPECT_THAT(plan(std::string("price: 1/GB, round: ") + round),
                HasSubstr("f:1: round: expected a size, as 1 MB or 1 MB/day"))
        << round;
  }
  EXPECT_EQ(plan("fee: 1, direction: larger"),
            "f:1: direction: expected both or tx or rx, not 'larger'");
  EXPECT_EQ(plan("fee: 1, days: 30, reset_day: 3"),
            "f:1: a plan has either days or reset_day");
  const auto two = [&](const std::string& first, const std::string& second) {
    return error("plans:\n  - {currency: EUR, fee: 1, " + first +
                 "}\n  - {currency: EUR, fee: 1, " + second + "}");
  };
  EXPECT_EQ(two("name: a, uplink: x", "name: b, uplink: x"),
            "f:3: from: uplink x has a plan that begins at this time: say from "
            "which day this one is valid");
  EXPECT_EQ(two("name: a", "name: b, uplink: x"),
            "f:3: uplink: a plan without one is for all uplinks, so either all "
            "plans have one or none has");
  EXPECT_EQ(two("name: a", "name: a, from: 2026-11-15, reset_day: 3"),
            "f:3: name: 'a' has another uplink, currency, direction or period "
            "above: give this plan another name");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
