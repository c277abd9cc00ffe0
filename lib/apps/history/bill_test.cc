// SPDX-License-Identifier: BSD-3-Clause
// A gateway with two paid uplinks, a LAN, and a container behind a bridge. Each byte that
// passes it is counted as it comes in and as it leaves, and is on one bill.
#include "lib/apps/history/bill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

class BillTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
    path_ = absl::StrCat(testing::TempDir(), "/bill-", getpid());
    auto history = OpenHistory(path_, Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
    reading_.now = StartOf(20261101);
    reading_.boottime = 1000;
    reading_.boot_id = "boot";
    reading_.has_forwarded = true;
  }
  void TearDown() override {
    history_.reset();
    for (const char* end : {"", "-wal", "-shm"}) unlink((path_ + end).c_str());
  }

  // The configuration: satellite and lte are paid, lan is the side of the clients.
  void Configure(std::set<std::string> clients) {
    reading_.sides.names = {"satellite", "lte", "lan"};
    reading_.sides.clients = std::move(clients);
    reading_.sides.any_is_paid = true;
  }
  void Count(const std::string& name, const std::string& uplink,
             uint64_t bytes) {
    for (Sample& sample : reading_.samples) {
      if (sample.name != name || sample.uplink != uplink) continue;
      sample.rx_bytes += bytes;
      return;
    }
    Sample sample;
    sample.kind = Kind::kBinary;
    sample.name = name;
    sample.uplink = uplink;
    sample.rx_bytes = bytes;
    reading_.samples.push_back(sample);
  }
  void Forward(const std::string& uplink, const std::string& interface,
               int64_t bytes) {
    reading_.forwarded[{uplink, interface, ""}].value[0] += bytes;
  }
  // What a minute's traffic of the gateway counts.
  void Pass() {
    Count("curl", "satellite", 1000);
    Count("curl", "lte", 100);
    Count("smbd", "lan", 10000);
    Forward("satellite", "lan0", 20000);
    Forward("lan", "sat0", 20000);
    Forward("satellite", "docker0", 3000);
    Forward("other", "sat0", 3000);
    Count("web", "", 3000);
  }
  static constexpr int64_t kSatellite = 24000;
  static constexpr int64_t kLte = 100;

  void RecordNow(int64_t after = 3600) {
    reading_.now += after;
    reading_.boottime += after;
    const auto recorded =
        Record(history_.get(), RecordOptions(),
               [this]() -> absl::StatusOr<Reading> { return reading_; });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
  }

  Usage Read(UsageQuery query = UsageQuery()) {
    query.period = {20261101, 20261130};
    const auto usage = ReadUsage(history_.get(), query);
    EXPECT_TRUE(usage.ok()) << usage.status();
    return usage.ok() ? *usage : Usage();
  }
  int64_t Sum(const UsageQuery& query = UsageQuery()) {
    return Read(query).sum.bytes();
  }
  int64_t SumOf(const std::string& uplink) {
    UsageQuery query;
    query.uplink = uplink;
    return Sum(query);
  }
  static std::string Text(const std::vector<UsageRow>& rows) {
    std::string text;
    for (const UsageRow& row : rows) {
      absl::StrAppend(&text, row.name, "=", row.counters.bytes(), " ");
    }
    return text;
  }
  int64_t Used(const std::string& keys) {
    const auto budgets = ParseBudgets(
        absl::StrCat("budgets: [{name: b, limit: 1 GB", keys, "}]"), "test");
    EXPECT_TRUE(budgets.ok()) << budgets.status();
    const auto state =
        ReadBudgetState(history_.get(), budgets->budgets.at(0), reading_.now);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? state->used : -1;
  }

  std::string path_;
  std::unique_ptr<Database> history_;
  Reading reading_;
};

// The bug: the first line of `usage` had 253.8 MB, where the bills were 122.9 and 48.2.
TEST_F(BillTest, TheSumIsThatOfThePaidUplinks) {
  Configure({"lan"});
  for (int i = 1; i <= 3; ++i) {
    Pass();
    RecordNow();
    UsageQuery query;
    for (const UsageBy by :
         {UsageBy::kService, UsageBy::kDestination, UsageBy::kUplink,
          UsageBy::kHour, UsageBy::kDay, UsageBy::kWeek, UsageBy::kMonth,
          UsageBy::kYear, UsageBy::kNothing}) {
      query.by = by;
      const Usage usage = Read(query);
      int64_t rows = 0;
      for (const UsageRow& row : usage.rows) rows += row.counters.bytes();
      EXPECT_EQ(rows, i * (kSatellite + kLte));
      EXPECT_EQ(usage.sum.bytes(), rows);
      EXPECT_EQ(Text(usage.uplinks), absl::StrCat("satellite=", i * kSatellite,
                                                  " lte=", i * kLte, " "));
    }
  }
  EXPECT_EQ(Text(Read().not_billed), "lan=90000 =9000 other=9000 ");
  EXPECT_EQ(SumOf("satellite"), 3 * kSatellite);
  EXPECT_EQ(Used(""), 3 * (kSatellite + kLte));
  // By its name a client side is there.
  EXPECT_EQ(SumOf("lan"), 90000);
  EXPECT_EQ(SumOf("-"), 9000);
  EXPECT_EQ(Used(", uplink: lan"), 90000);
  UsageQuery forwarded;
  forwarded.kind = kForwardedKind;
  EXPECT_EQ(Sum(forwarded), 3 * 23000);
}

// What a container used is billed as forwarded by docker0. A budget of its own name must
// not be one that never warns.
TEST_F(BillTest, AContainerIsMeasuredByItsName) {
  Configure({"lan"});
  Pass();
  RecordNow();
  EXPECT_EQ(Used(", service: web"), 3000);
  EXPECT_EQ(Used(", kind: binary"), 4100);
  EXPECT_EQ(Used(", service: curl"), 1100);
  EXPECT_EQ(Used(", service: smbd"), 0);  // for clients
  EXPECT_EQ(Used(", service: smbd, uplink: lan"), 10000);
  UsageQuery part;
  part.service = "web";
  part.only_billed = true;
  EXPECT_EQ(Sum(part), 0);
}

// `other` may be the side of the clients: forwarded_clients: [other].
TEST_F(BillTest, WithoutAPaidUplinkTheRestIsTheBill) {
  Pass();
  RecordNow();
  EXPECT_EQ(Sum(), 60100);  // no uplink is known to be a side of clients
  reading_.sides.names = {"lan"};
  reading_.sides.clients = {"lan"};
  Pass();
  RecordNow();
  EXPECT_EQ(Sum(), 2 * (kSatellite + kLte + 6000));
}

TEST_F(BillTest, OldMonthsStayRightWhenTheConfigurationChanges) {
  Configure({"lan"});
  Pass();
  RecordNow();
  // lan becomes paid.
  Configure({});
  Count("smbd", "lan", 7);
  RecordNow();
  EXPECT_EQ(Sum(), kSatellite + kLte + 7);
  // There are no uplinks any more.
  reading_.sides = UplinkSides();
  Count("curl", "", 5);
  RecordNow();
  EXPECT_EQ(Sum(), kSatellite + kLte + 12);
}

TEST_F(BillTest, WhatWasRecordedBeforeThereWereUplinksIsOnTheBill) {
  Count("curl", "", 50);
  RecordNow();
  Configure({"lan"});
  Pass();
  RecordNow();
  EXPECT_EQ(Sum(), kSatellite + kLte + 50);
  UsageQuery by_uplink;
  by_uplink.by = UsageBy::kUplink;
  EXPECT_EQ(Text(Read(by_uplink).rows), "satellite=24000 lte=100 =50 ");
}

// The bug: what `lan` had counted until a load that did not know it was on the bill.
TEST_F(BillTest, ANewMeterDoesNotForgetASide) {
  Configure({"lan"});
  Pass();
  RecordNow();
  reading_.sides.names = {"satellite", "lte"};
  reading_.sides.clients.clear();
  Count("smbd", "lan", 10000);
  RecordNow();
  EXPECT_EQ(Sum(), kSatellite + kLte);
  // A meter that knows it says its side.
  Configure({});
  Count("smbd", "lan", 7);
  RecordNow();
  EXPECT_EQ(Sum(), kSatellite + kLte + 7);
}

// The bug: the first paid uplink took `other` off the bill of earlier months.
TEST_F(BillTest, APaidUplinkLeavesEarlierTrafficWithoutOneOnTheBill) {
  Configure({"lan"});
  reading_.sides.any_is_paid = false;
  Count("curl", "other", 20);
  RecordNow();
  EXPECT_EQ(Sum(), 20);
  Configure({"lan"});
  Count("curl", "other", 20);
  RecordNow();
  EXPECT_EQ(Sum(), 20);
}

// In all three tables. What had no uplink stays.
TEST_F(BillTest, WhatWasRecordedBeforeItsSideWasKnownBecomesRight) {
  Count("curl", "", 50);
  RecordNow();
  for (int day = 0; day < 3; ++day) {
    Pass();
    RecordNow(86400);
  }
  RecordOptions options;
  options.keep_hours_days = 2;
  ASSERT_TRUE(
      Record(history_.get(), options, [this]() -> absl::StatusOr<Reading> {
        return reading_;
      }).ok());
  for (const char* table : {"hour_traffic", "day_sum", "day_traffic"}) {
    Statement any = history_->Prepare(absl::StrCat("SELECT 1 FROM ", table));
    EXPECT_TRUE(any.Step()) << table;
  }
  EXPECT_EQ(Sum(), 50 + 3 * 60100);
  Configure({"lan"});
  RecordNow();
  EXPECT_EQ(Sum(), 50 + 3 * (kSatellite + kLte + 6000));
  EXPECT_EQ(SumOf("lan"), 90000);
  Pass();
  RecordNow();
  RecordNow();
  EXPECT_EQ(Sum(), 50 + 4 * (kSatellite + kLte) + 3 * 6000);
  EXPECT_EQ(SumOf("lan"), 120000);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
