// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/history/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/apps/history/record.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
    path_ = testing::TempDir() + "/report-" + std::to_string(getpid());
    auto history = OpenHistory(path_, Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    report_.period = period_;
    report_.path = "direct";
    history_ = *std::move(history);
    Reading reading;
    reading.now = StartOf(20261101) + 3600;
    for (int day = 0; day < 3; ++day) {
      for (int i = 0; i < 8; ++i) {
        Sample sample;
        sample.kind = Kind::kService;
        sample.name = i == 7 ? "<script>alert('x')</script>"
                             : "service-" + std::to_string(i);
        sample.destination = "cloud";
        sample.tx_bytes = static_cast<uint64_t>((8 - i) * 1000 * (day + 1));
        reading.samples.push_back(sample);
      }
      ASSERT_TRUE(Records(reading));
      reading.samples.clear();
      reading.now += 86400;
      reading.boottime += 86400;
    }
  }
  void TearDown() override {
    history_.reset();
    for (const char* end : {"", "-wal", "-shm"}) unlink((path_ + end).c_str());
  }

  bool Records(const Reading& reading) {
    return Record(history_.get(), RecordOptions(),
                  [&]() -> absl::StatusOr<Reading> { return reading; })
        .ok();
  }

  std::string path_;
  std::unique_ptr<Database> history_;
  const Period period_ = {20261101, 20261104};
  Report report_;
};

TEST_F(ReportTest, DaysOfTheFirstRowsAndOfAllOthersAreTheSum) {
  const auto part = ReadReportPart(history_.get(), &report_, UsageBy::kService);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->days.size(), 6u);
  EXPECT_THAT(part->days[0], ElementsAre(8000, 8000, 8000, 0));
  EXPECT_THAT(part->days[5], ElementsAre(6000, 6000, 6000, 0));
  int64_t sum = 0;
  for (const auto& days : part->days) {
    for (const int64_t bytes : days) sum += bytes;
  }
  EXPECT_EQ(sum, part->usage.sum.bytes());
}

TEST_F(ReportTest, ThePageOfABillingPeriodHasItsCosts) {
  const auto file = ParseBudgets(
      "plans: [{name: sat, currency: EUR, fee: 36, days: 4, start: "
      "2026-11-01}]",
      "f");
  ASSERT_TRUE(file.ok()) << file.status();
  report_.plans = file->plans;
  auto part = ReadReportPart(history_.get(), &report_, UsageBy::kService);
  ASSERT_TRUE(part.ok()) << part.status();
  report_.parts = {*part};
  const std::string page = FormatReport(report_);
  EXPECT_THAT(page, HasSubstr("<p>plan sat: 36.00 EUR ("));
  EXPECT_THAT(page, HasSubstr("<th>EUR</th>"));
  // 8 of 36 kB a day.
  EXPECT_THAT(page, HasSubstr("</td><td>8.00</td></tr>"));
  EXPECT_THAT(page, HasSubstr("</td><td>36.00</td></tr>"));
  report_.plans[0].days = 5;
  part = ReadReportPart(history_.get(), &report_, UsageBy::kService);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_THAT(FormatReport(report_),
              HasSubstr("No cost: plan sat has the billing period "));
}

// Most of a host's bytes may have no destination.
TEST_F(ReportTest, WhatHasNoDestinationHasDaysToo) {
  Reading reading;
  reading.now = StartOf(20261104);
  reading.start_ns = 7;
  Sample sample;
  sample.kind = Kind::kBinary;
  sample.name = "curl";
  sample.rx_bytes = 1000000;
  reading.samples = {sample};
  ASSERT_TRUE(Records(reading));
  const auto part =
      ReadReportPart(history_.get(), &report_, UsageBy::kDestination);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->days.size(), 3u);
  EXPECT_EQ(part->usage.rows[0].name, "");
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 1000000));
  EXPECT_THAT(part->days[2], ElementsAre(0, 0, 0, 0));
}

// The bug: any user may tag a socket "-". That row also had the bytes without a
// destination, and the other way round.
TEST_F(ReportTest, ADestinationCalledDashIsNotNone) {
  Reading reading;
  reading.now = StartOf(20261104);
  reading.start_ns = 7;
  for (const char* const destination : {"-", ""}) {
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = "service-0";
    sample.destination = destination;
    sample.tx_bytes = *destination == '-' ? 1000000 : 1000;
    reading.samples.push_back(sample);
  }
  ASSERT_TRUE(Records(reading));
  const auto part =
      ReadReportPart(history_.get(), &report_, UsageBy::kDestination);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->usage.rows.size(), 3u);
  EXPECT_EQ(part->usage.rows[0].name, "-");
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 1000000));
  EXPECT_EQ(part->usage.rows[2].name, "");
  EXPECT_THAT(part->days[2], ElementsAre(0, 0, 0, 1000));
}

// Its bar was called "no name known".
TEST_F(ReportTest, WhatIsForwardedHasDaysAmongDestinations) {
  Reading reading;
  reading.now = StartOf(20261104);
  reading.start_ns = 7;
  Sample sample;
  sample.kind = Kind::kBinary;
  sample.name = "curl";
  sample.rx_bytes = 1000000;
  reading.samples = {sample};
  // The days of both were added, for each.
  sample.destination = "forwarded";
  sample.rx_bytes = 500000;
  reading.samples.push_back(sample);
  reading.has_forwarded = true;
  reading.forwarded[{"lan", "forwarded", ""}].value = {1000000, 2000000, 1, 2};
  ASSERT_TRUE(Records(reading));
  const auto part =
      ReadReportPart(history_.get(), &report_, UsageBy::kDestination);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_GE(part->days.size(), 3u);
  EXPECT_EQ(part->usage.rows[0].name, "forwarded");
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 3000000));
  EXPECT_EQ(part->usage.rows[1].name, "");
  EXPECT_THAT(part->days[1], ElementsAre(0, 0, 0, 1000000));
  EXPECT_EQ(part->usage.rows[2].name, "forwarded");
  EXPECT_EQ(part->usage.rows[2].kind, "");
  EXPECT_THAT(part->days[2], ElementsAre(0, 0, 0, 500000));
  EXPECT_THAT(part->days.back(), ElementsAre(0, 0, 0, 0));
}

// A page showed everything but what an operator pays for: each uplink.
TEST_F(ReportTest, UplinksHaveDaysAndWhatHasNoneIsCalledSo) {
  Reading reading;
  reading.now = StartOf(20261104);
  reading.start_ns = 7;
  for (const auto& uplink :
       {std::make_pair("satellite", 2000000), std::make_pair("lte", 1000000)}) {
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = "mme";
    sample.uplink = uplink.first;
    sample.rx_bytes = static_cast<uint64_t>(uplink.second);
    reading.samples.push_back(sample);
  }
  ASSERT_TRUE(Records(reading));
  Report report;
  report.period = period_;
  report.path = "direct";
  auto part = ReadReportPart(history_.get(), &report_, UsageBy::kUplink);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->days.size(), 4u);
  EXPECT_EQ(part->usage.rows[0].name, "satellite");
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 2000000));
  EXPECT_THAT(part->days[1], ElementsAre(0, 0, 0, 1000000));
  EXPECT_THAT(part->days[2], ElementsAre(36000, 36000, 36000, 0));
  EXPECT_THAT(part->days[3], ElementsAre(0, 0, 0, 0));
  report.parts = {*part};
  const std::string page = FormatReport(report);
  EXPECT_THAT(page, HasSubstr("<h2>By uplink</h2>"));
  EXPECT_THAT(page, HasSubstr("</span>satellite</td>"));
  EXPECT_THAT(page, HasSubstr("</span>no uplink</td>"));

  // The bill of one of them.
  report.uplink = "satellite";
  part = ReadReportPart(history_.get(), &report, UsageBy::kService);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->usage.rows.size(), 1u);
  EXPECT_EQ(part->usage.sum.bytes(), 2000000);
  ASSERT_EQ(part->days.size(), 2u);
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 2000000));
  EXPECT_THAT(part->days[1], ElementsAre(0, 0, 0, 0));
  report.parts = {*part};
  EXPECT_THAT(FormatReport(report), HasSubstr("received, uplink satellite."));
}

// What is left was nowhere on the page, and the colour alone told the state.
TEST_F(ReportTest, ABudgetHasWhatIsLeftAndItsState) {
  Budget budget;
  budget.name = "satellite";
  budget.limit = 4096;
  budget.units = SizeUnits::kBinary;
  report_.budgets = {budget};
  BudgetState state;
  state.period = period_;
  state.used = 5120;
  state.percent = 125;
  report_.states = {state};
  EXPECT_THAT(FormatReport(report_),
              HasSubstr("<td>4.0 KiB</td><td>-1.0 KiB</td><td>-</td>"
                        "<td>used up</td>"));
}

// A page of October had the budgets of November, and a page of the calendar month those
// that begin on the 15th.
TEST_F(ReportTest, ABudgetOfAnotherPeriodIsNotBesideTheUsage) {
  Budget budget;
  budget.limit = 4096;
  BudgetState state;
  state.used = 1024;
  for (const char* name : {"this-month", "from-the-15th"}) {
    budget.name = name;
    report_.budgets.push_back(budget);
  }
  report_.states = {state, state};
  report_.states[0].period = period_;
  report_.states[1].period = {20261015, 20261114};
  const std::string page = FormatReport(report_);
  EXPECT_THAT(page, HasSubstr("<tr><td>this-month</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<tr><td>from-the-15th</td>")));
  EXPECT_THAT(
      page,
      HasSubstr("Budgets of other periods: from-the-15th (<time>2026-10-15"
                "</time> to <time>2026-11-14</time>)."));
}

// A customer's page spoke of "--uplink NAME", "path direct" and "an unload".
TEST_F(ReportTest, ThePageHasNoWordsOfTheCommandLine) {
  Budget budget;
  budget.name = "all";
  budget.limit = 4096;
  report_.budgets = {budget};
  report_.states.resize(1);
  report_.states[0].period = period_;
  report_.states[0].forecast_unknown = "too little is recorded";
  for (const UsageBy by :
       {UsageBy::kUplink, UsageBy::kService, UsageBy::kDestination}) {
    auto part = ReadReportPart(history_.get(), &report_, by);
    ASSERT_TRUE(part.ok()) << part.status();
    part->usage.uplinks = part->usage.not_billed = part->usage.rows;
    part->usage.shortfalls = {{"satellite", 1000, 1000}};
    part->usage.gaps = {{0, 60, "lost"}};
    report_.parts.push_back(*std::move(part));
  }
  const std::string page = FormatReport(report_);
  const std::string body = page.substr(page.find("</head>"));
  for (const char* words : {" --", "path", "direct", "unload"}) {
    EXPECT_EQ(body.find(words), std::string::npos) << words;
  }
}

// Ticks were the largest day and half of it: 9.3 GiB and 4.7 GiB.
TEST_F(ReportTest, TicksAreRoundInTheUnitShown) {
  ReportPart part;
  part.days = {{0, 0, 0, 0}};
  report_.parts = {part};
  const auto ticks = [this](int64_t most, SizeUnits units) {
    report_.parts[0].days[0][1] = most;
    report_.units = units;
    const std::string page = FormatReport(report_);
    const std::string before = "text-anchor=\"end\">";
    std::vector<std::string> found;
    for (size_t at = 0; (at = page.find(before, at)) != std::string::npos;) {
      at += before.size();
      found.push_back(page.substr(at, page.find('<', at) - at));
    }
    return found;
  };
  EXPECT_THAT(ticks(9985798963, SizeUnits::kBinary),
              ElementsAre("0 GiB", "5 GiB", "10 GiB"));
  EXPECT_THAT(ticks(1395864371, SizeUnits::kBinary),
              ElementsAre("0 GiB", "0.5 GiB", "1 GiB", "1.5 GiB"));
  EXPECT_THAT(ticks(740000000000, SizeUnits::kDecimal),
              ElementsAre("0 GB", "200 GB", "400 GB", "600 GB", "800 GB"));
  EXPECT_THAT(ticks(0, SizeUnits::kBinary), ElementsAre("0 B", "1 B"));
}

// A stranger's program may be called as a service is. They were one row, and would be
// one bar twice where days are asked for by name alone.
TEST_F(ReportTest, AServiceAndAProgramOfOneNameHaveDaysOfTheirOwn) {
  Reading reading;
  reading.now = StartOf(20261104);
  reading.start_ns = 7;
  const auto add = [&reading](Kind kind, const char* name, uint64_t bytes) {
    reading.samples.emplace_back();
    reading.samples.back().kind = kind;
    reading.samples.back().name = name;
    reading.samples.back().rx_bytes = bytes;
  };
  add(Kind::kService, "sessiond", 2000000);
  add(Kind::kBinary, "sessiond", 1000000);
  add(Kind::kService, "mme", 400000);
  add(Kind::kPending, "mme", 50000);
  ASSERT_TRUE(Records(reading));
  Report report = report_;
  const auto part = ReadReportPart(history_.get(), &report, UsageBy::kService);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->days.size(), 6u);
  EXPECT_THAT(part->days[0], ElementsAre(0, 0, 0, 2000000));
  EXPECT_THAT(part->days[1], ElementsAre(0, 0, 0, 1000000));
  EXPECT_THAT(part->days[2], ElementsAre(0, 0, 0, 450000));
  report.parts = {*part};
  const std::string page = FormatReport(report);
  EXPECT_THAT(page, HasSubstr("</span>sessiond (service)</td>"));
  EXPECT_THAT(page, HasSubstr("</span>sessiond (binary)</td>"));
  EXPECT_THAT(page, HasSubstr("</span>mme</td>"));
}

// Whoever may name a process may not run anything in the reader's browser.
TEST_F(ReportTest, NoNameIsMarkupAndNothingIsLoaded) {
  Report report;
  report.host = "gate\"way";
  report.period = period_;
  report.path = "direct";
  for (const UsageBy by : {UsageBy::kService, UsageBy::kDestination}) {
    auto part = ReadReportPart(history_.get(), &report_, by);
    ASSERT_TRUE(part.ok());
    report.parts.push_back(*part);
  }
  Budget budget;
  budget.name = "<b>";
  budget.limit = 100;
  report.budgets = {budget};
  BudgetState state;
  state.period = period_;
  state.used = 250;
  state.percent = 250;
  report.states = {state};
  const std::string page = FormatReport(report);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
  EXPECT_THAT(page, HasSubstr("<title>gate&quot;way, 2026-11-01"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("width:100%\"></div>"));
  for (const char* text :
       {"http://", "https://", "url(", "src=\"", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(text)));
  }
}

TEST_F(ReportTest, AnEmptyPeriodIsAPage) {
  Report report;
  report.period = {20200101, 20200131};
  report.path = "direct";
  auto part = ReadReportPart(history_.get(), &report, UsageBy::kService);
  ASSERT_TRUE(part.ok());
  report.parts = {*part};
  EXPECT_THAT(FormatReport(report), HasSubstr("<p class=\"big\">0 B</p>"));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
