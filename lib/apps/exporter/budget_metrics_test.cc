// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/budget_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/exporter/exporter_flags.h"
#include "lib/apps/history/record.h"
#include "lib/publish/exposition.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kSecond(1);

class BudgetMetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/budget-metrics-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    directory_ = name;
    sample_.kind = Kind::kService;
    sample_.name = "mme";
    sample_.uplink = "satellite";
    sample_.transport = Transport::kTcp;
  }
  void TearDown() override {
    for (const std::string& file :
         {config(), database(), database() + "-wal", database() + "-shm"}) {
      unlink(file.c_str());
    }
    rmdir(directory_.c_str());
  }

  std::string config() const { return directory_ + "/budgets.yml"; }
  std::string database() const { return directory_ + "/history.db"; }
  void Write(const std::string& yaml) { std::ofstream(config()) << yaml; }

  // Does what `netmeter record` does, after this number of further bytes.
  void Record(uint64_t tx_bytes, uint64_t rx_bytes) {
    sample_.tx_bytes += tx_bytes;
    sample_.rx_bytes += rx_bytes;
    const auto history = OpenHistory(database(), Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    const auto recorded = internal::Record(history->get(), RecordOptions(),
                                           [this]() -> absl::StatusOr<Reading> {
                                             Reading reading;
                                             reading.now = time(nullptr);
                                             reading.boottime = 1000;
                                             reading.boot_id = "boot";
                                             reading.start_ns = 1;
                                             reading.samples = {sample_};
                                             return reading;
                                           });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
  }

  // No other process can read the history until the returned object ends.
  std::unique_ptr<Database> Hold() const {
    auto holder = OpenHistory(database(), Database::Mode::kCreate);
    EXPECT_TRUE(holder.ok()) << holder.status();
    if (!holder.ok()) return nullptr;
    EXPECT_TRUE((*holder)
                    ->Execute("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE;"
                              "UPDATE meter SET id = id; COMMIT")
                    .ok());
    return *std::move(holder);
  }

  // The page at this number of seconds after the first one.
  std::string Page(BudgetMetrics* metrics, int seconds = 0,
                   const char* list = "default") {
    std::vector<Family> families;
    metrics->AddTo(*FamilySet::Parse(list), begin_ + seconds * kSecond,
                   &families);
    return ToText(families, TextFormat::kPrometheus);
  }

  // Waits until the page contains the text: on a busy machine a reading takes longer than
  // a page.
  std::string PageWith(const std::string& text, BudgetMetrics* metrics,
                       int seconds = 0) {
    std::string page = Page(metrics, seconds);
    for (int i = 0; i < 200 && !absl::StrContains(page, text); ++i) {
      usleep(100000);
      page = Page(metrics, seconds);
    }
    return page;
  }

  std::string directory_;
  Sample sample_;
  const BudgetMetrics::Clock::time_point begin_ = BudgetMetrics::Clock::now();
};

TEST_F(BudgetMetricsTest, EachBudgetHasItsLimitAndWhatItSelects) {
  Write(
      "budgets:\n"
      "  - {name: satellite, limit: 100 MB, uplink: satellite}\n"
      "  - {name: all, limit: 1 kB}\n"
      "  - {name: \"up\\\"s\", limit: 7 B, service: mme, kind: service,\n"
      "     destination: store, direction: tx, path: proxy}\n");
  Record(1000, 500);
  BudgetMetrics metrics(config(), database());
  const std::string page = PageWith("netmeter_budget_limit_bytes", &metrics);
  EXPECT_TRUE(metrics.status().ok()) << metrics.status();
  const std::string all =
      "{budget=\"all\",uplink=\"\",kind=\"\",name=\"\",destination=\"\","
      "path=\"direct\",direction=\"both\"} ";
  const std::string satellite =
      "{budget=\"satellite\",uplink=\"satellite\",kind=\"\",name=\"\","
      "destination=\"\",path=\"direct\",direction=\"both\"} ";
  const std::string ups =
      "{budget=\"up\\\"s\",uplink=\"\",kind=\"service\",name=\"mme\","
      "destination=\"store\",path=\"proxy\",direction=\"tx\"} ";
  const std::string limit = "\nnetmeter_budget_limit_bytes";
  const std::string used = "\nnetmeter_budget_used_bytes";
  EXPECT_THAT(
      page, HasSubstr(absl::StrCat(" gauge", limit, all, "1000", limit,
                                   satellite, "100000000", limit, ups, "7\n")));
  EXPECT_THAT(
      page, HasSubstr(absl::StrCat(" gauge", used, all, "1500", used, satellite,
                                   "1500", used, ups, "0\n")));
}

TEST_F(BudgetMetricsTest, EachPlanHasItsCost) {
  Write(
      "plans:\n"
      "  - {name: sat, uplink: satellite, currency: USD, fee: 2.50, price: "
      "1/kB}\n");
  Record(1000, 500);
  BudgetMetrics metrics(config(), database());
  const std::string page = PageWith("netmeter_budget_error 0", &metrics);
  EXPECT_TRUE(metrics.status().ok()) << metrics.status();
  EXPECT_THAT(page, HasSubstr(" gauge\nnetmeter_cost_micros{plan=\"sat\","
                              "uplink=\"satellite\",currency=\"USD\"} "
                              "4000000\n"));
}

// A scrape each second must not read the database each second.
TEST_F(BudgetMetricsTest, IsReadOnceAMinute) {
  Write("budgets: [{name: all, limit: 1 GB}]");
  Record(1000, 0);
  BudgetMetrics metrics(config(), database());
  EXPECT_THAT(PageWith("\"} 1000\n", &metrics), HasSubstr("\"} 1000\n"));
  Record(5000, 0);
  Write("budgets: [{name: all, limit: 2 GB}]");
  const std::string old = Page(&metrics, 59);
  EXPECT_THAT(old, HasSubstr("\"} 1000\n"));
  EXPECT_THAT(old, HasSubstr("\"} 1000000000\n"));
  const std::string now = PageWith("\"} 6000\n", &metrics, 3600);
  EXPECT_THAT(now, HasSubstr("\"} 6000\n"));
  EXPECT_THAT(now, HasSubstr("\"} 2000000000\n"));
}

// The exporter read the history in its event loop: with a slow disk, or while another
// process held the history, all peers waited. Here a process holds it.
TEST_F(BudgetMetricsTest, ASlowReadKeepsNobodyWaiting) {
  Write("budgets: [{name: all, limit: 1 GB}]");
  Record(1000, 0);
  BudgetMetrics metrics(config(), database());
  const std::string first = PageWith("\"} 1000\n", &metrics);
  EXPECT_THAT(first, HasSubstr("\"} 1000\n"));
  {
    const auto holder = Hold();
    const auto begin = BudgetMetrics::Clock::now();
    EXPECT_EQ(Page(&metrics, 3600), first);
    EXPECT_EQ(Page(&metrics, 3601), first);
    EXPECT_LT(BudgetMetrics::Clock::now() - begin, 5 * kSecond);
  }
  // Now it can be read, and is on a later page.
  for (int i = 0; i < 200 && Page(&metrics, 3602 + i) == first; ++i) {
    usleep(50000);
    if (i == 0) Record(5000, 0);
  }
  EXPECT_TRUE(metrics.status().ok()) << metrics.status();
  EXPECT_THAT(PageWith("\"} 6000\n", &metrics, 1 << 20),
              HasSubstr("\"} 6000\n"));
}

// The exporter ended ten seconds after SIGTERM if another process held the history.
TEST_F(BudgetMetricsTest, EndsWhileTheHistoryIsLocked) {
  Write("budgets: [{name: all, limit: 1 GB}]");
  Record(1000, 0);
  const auto holder = Hold();
  const auto begin = BudgetMetrics::Clock::now();
  {
    BudgetMetrics metrics(config(), database());
    EXPECT_THAT(Page(&metrics), Not(HasSubstr("netmeter_budget_used_bytes")));
  }
  EXPECT_LT(BudgetMetrics::Clock::now() - begin, 5 * kSecond);
}

TEST_F(BudgetMetricsTest, WithoutAHistoryThereAreLimitsOnly) {
  Write("budgets: [{name: all, limit: 1 GB}]");
  BudgetMetrics metrics(config(), database());
  const std::string page = PageWith("netmeter_budget_limit_bytes", &metrics);
  EXPECT_THAT(page, HasSubstr("netmeter_budget_limit_bytes"));
  EXPECT_THAT(page, Not(HasSubstr("netmeter_budget_used_bytes")));
  EXPECT_EQ(metrics.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(metrics.status().message()),
              HasSubstr("no history at "));
  Record(1000, 0);
  EXPECT_THAT(PageWith("netmeter_budget_used_bytes", &metrics, 3600),
              HasSubstr("netmeter_budget_used_bytes"));
  EXPECT_TRUE(metrics.status().ok());
}

TEST_F(BudgetMetricsTest, WhatIsWrongInTheFileIsAnError) {
  Write("budgets: [{name: all, limit: 5 gb}]");
  BudgetMetrics metrics(config(), database());
  EXPECT_THAT(Page(&metrics), EndsWith("\nnetmeter_budget_error 1\n"));
  EXPECT_THAT(std::string(metrics.status().message()),
              HasSubstr("budgets.yml:1: limit: expected a size"));
}

// An alarm that can never fire is worse than none: it had 0 used bytes.
TEST_F(BudgetMetricsTest, ABudgetOfAnUnknownUplinkIsAnErrorAndTheOthersGoOn) {
  Record(1000, 0);
  Write(
      "budgets: [{name: typo, limit: 1 GB, uplink: satelite}, {name: all, "
      "limit: 1 GB}]");
  BudgetMetrics metrics(config(), database());
  const std::string page = PageWith("netmeter_budget_used_bytes", &metrics);
  EXPECT_THAT(page, HasSubstr("\nnetmeter_budget_error 1\n"));
  EXPECT_THAT(page, HasSubstr("limit_bytes{budget=\"typo\""));
  EXPECT_THAT(page, HasSubstr("used_bytes{budget=\"all\""));
  EXPECT_THAT(page, Not(HasSubstr("used_bytes{budget=\"typo\"")));
  EXPECT_THAT(
      std::string(metrics.status().message()),
      HasSubstr("budget typo: no uplink 'satelite' (did you mean satellite?); "
                "there are: other, satellite"));
  Write("budgets: [{name: all, limit: 1 GB}]");
  EXPECT_THAT(PageWith("netmeter_budget_error 0", &metrics, 3600),
              HasSubstr("\nnetmeter_budget_error 0\n"));
}

TEST_F(BudgetMetricsTest, AFileThatIsNotThereIsAnErrorIfItWasAskedFor) {
  BudgetMetrics metrics(config(), database());
  EXPECT_THAT(Page(&metrics), EndsWith("\nnetmeter_budget_error 1\n"));
  EXPECT_EQ(metrics.status().code(), absl::StatusCode::kNotFound);
  BudgetMetrics off(kOff, database());
  EXPECT_EQ(Page(&off), "");
  EXPECT_TRUE(off.status().ok());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
