// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/history/usage_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/flags.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

UsageRow Row(const std::string& kind, const std::string& name, int64_t tx,
             int64_t rx) {
  UsageRow row;
  row.kind = kind;
  row.name = name;
  row.counters.value[0] = tx;
  row.counters.value[1] = rx;
  return row;
}

class UsageTextTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
    query_.period = {20261115, 20261214};
    usage_.rows = {Row("service", "mme", 1536, 1024),
                   Row("binary", "=cmd|'!A1,\"x\"", 500, 12)};
    for (const UsageRow& row : usage_.rows) usage_.sum += row.counters;
    usage_.shortfalls = {{"satellite", 4096, 12}};
    usage_.gaps = {{1795000000, 1795000060, "lost"},
                   {1795000000, 1795000060, "unnamed"},
                   {1795000100, 1795010060, "delayed"},
                   {1795000100, 1794000060, "clock"}};
  }

  UsageQuery query_;
  Usage usage_;
};

TEST_F(UsageTextTest, TableHasPeriodSharesSumShortfallsAndGaps) {
  EXPECT_EQ(
      FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0),
      "2026-11-15 to 2026-12-14, path direct\n"
      "SERVICE        KIND        SENT  RECEIVED    TOTAL   SHARE  RETRANSMIT\n"
      "mme            service  1.5 KiB   1.0 KiB  2.5 KiB   83.3%         0 B\n"
      "=cmd|'!A1,\"x\"  binary     500 B      12 B    512 B   16.7%         0 "
      "B\n"
      "sum                     2.0 KiB   1.0 KiB  3.0 KiB  100.0%         0 B\n"
      "satellite: its interfaces counted 4.0 KiB sent and 12 B received less "
      "than its rows, so its total is that of the rows (they count a GSO "
      "packet as one, a queue dropped packets, or a record read in between)\n"
      "lost: 2026-11-18 11:06 to 11:07, a reboot or an unload; its bytes are "
      "in no sum\n"
      "unnamed: 2026-11-18 11:06 to 11:07, an unload and a load; the bytes of "
      "uplinks are in the row tunnels and kernel, others in no sum\n"
      "delayed: 2026-11-18 11:08 to 13:54, no record; its bytes are in the "
      "hour of its end\n"
      "clock: it was set from 2026-11-18 11:08 to 2026-11-06 21:21\n");
}

TEST_F(UsageTextTest, RowsOfTimeHaveAverageRatesAndThePeriodAnEstimate) {
  query_.by = UsageBy::kDay;
  usage_.rows = {Row("", "2026-11-15", 400000000, 32000000),
                 Row("rest", "(3 more)", 1, 0)};
  usage_.rows[0].seconds = 86400;
  usage_.sum = usage_.rows[0].counters;
  usage_.estimated = usage_.sum;
  usage_.estimated->value[0] = 800000000;
  usage_.shortfalls.clear();
  usage_.gaps.clear();
  EXPECT_EQ(FormatUsageTable(usage_, query_, SizeUnits::kDecimal, 0),
            "2026-11-15 to 2026-12-14, path direct\n"
            "DAY             SENT  RECEIVED     TOTAL   SHARE       AVERAGE  "
            "RETRANSMIT\n"
            "2026-11-15  400.0 MB   32.0 MB  432.0 MB  100.0%  0.040 Mbit/s  "
            "       0 B\n"
            "(3 more)         1 B       0 B       1 B    0.0%                "
            "       0 B\n"
            "sum         400.0 MB   32.0 MB  432.0 MB  100.0%                "
            "       0 B\n"
            "estimated   800.0 MB   32.0 MB  832.0 MB                        "
            "       0 B\n");
  const auto json = nlohmann::json::parse(FormatUsageJson(usage_, query_));
  EXPECT_EQ(json["rows"][0]["average_bits_per_second"], 40000);
  EXPECT_FALSE(json["rows"][1].contains("average_bits_per_second"));
  EXPECT_EQ(json["estimated"]["tx_bytes"], 800000000);
  usage_.estimated.reset();
  EXPECT_EQ(nlohmann::json::parse(FormatUsageJson(usage_, query_))["estimated"],
            nullptr);
}

// docs/history.md has this table.
TEST_F(UsageTextTest, RowsHaveTheirCostIfAPlanApplies) {
  query_.period = {20261001, 20261031};
  query_.uplink = "satellite";
  usage_ = Usage();
  usage_.rows = {Row("service", "nghttpx", 12000000000, 30000000000),
                 Row("service", "magmad", 2000000000, 6000000000)};
  for (const UsageRow& row : usage_.rows) usage_.sum += row.counters;
  usage_.rows[0].cost_micros = 54600000;
  usage_.rows[1].cost_micros = 10400001;
  UsageCosts costs;
  costs.currency = "USD";
  costs.micros = 65000001;
  costs.plans.resize(1);
  costs.plans[0].plan.name = "sat50";
  costs.plans[0].plan.uplink = "satellite";
  costs.plans[0].plan.currency = "USD";
  costs.plans[0].cost = {query_.period, 65000001, 50000000000, 0};
  EXPECT_EQ(FormatUsageTable(usage_, query_, SizeUnits::kDecimal, 0, costs),
            "2026-10-01 to 2026-10-31, uplink satellite, path direct\n"
            "SERVICE  KIND        SENT  RECEIVED    TOTAL   SHARE  RETRANSMIT  "
            "COST USD\n"
            "nghttpx  service  12.0 GB   30.0 GB  42.0 GB   84.0%         0 B  "
            "   54.60\n"
            "magmad   service   2.0 GB    6.0 GB   8.0 GB   16.0%         0 B  "
            "   10.40\n"
            "sum               14.0 GB   36.0 GB  50.0 GB  100.0%         0 B  "
            "   65.00\n"
            "plan sat50: 65.00 USD (50.0 GB used, 0 B billed)\n");
  EXPECT_THAT(FormatUsageTable(usage_, query_, SizeUnits::kExact, 0, costs),
              HasSubstr(" 10.400001\n"));
  const std::string csv = FormatUsageCsv(usage_, query_, costs);
  EXPECT_THAT(csv, HasSubstr(",cost_micros,currency\n"));
  EXPECT_THAT(csv, HasSubstr(",10400001,USD\n"));
  const auto json =
      nlohmann::json::parse(FormatUsageJson(usage_, query_, costs));
  EXPECT_EQ(json["rows"][1]["cost_micros"], 10400001);
  EXPECT_EQ(json["cost_micros"], 65000001);
  EXPECT_EQ(json["costs"][0]["used_bytes"], 50000000000);
  EXPECT_FALSE(json.contains("cost_unknown"));
  costs = {};
  costs.unknown = "plan sat has the billing period 2026-11-01 to 2026-11-30";
  EXPECT_THAT(FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0, costs),
              AllOf(HasSubstr("\nno cost: plan sat has the billing period "),
                    Not(HasSubstr("COST"))));
}

TEST_F(UsageTextTest, FitsATerminalOf80Columns) {
  usage_.rows[0].name = std::string(64, 'm');
  const std::string text =
      FormatUsageTable(usage_, query_, SizeUnits::kBinary, 80);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    EXPECT_LE(end - begin, 80u) << text;
  }
}

// README.md's first lines have it.
TEST_F(UsageTextTest, TheFirstLineNamesTheUplink) {
  query_.uplink = "satellite";
  EXPECT_THAT(
      FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0),
      StartsWith("2026-11-15 to 2026-12-14, uplink satellite, path direct\n"));
}

TEST_F(UsageTextTest, AUserHasItsName) {
  usage_.rows = {Row("user", "0", 1, 1), Row("binary", "0", 1, 1)};
  const std::string text =
      FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0);
  EXPECT_THAT(text, HasSubstr("\n0 (root)  user "));
  EXPECT_THAT(text, HasSubstr("\n0         binary "));
}

// The two hours of a night in which clocks are set back had one name.
TEST_F(UsageTextTest, ForProgramsATimeHasItsBeginAndEndInUtc) {
  setenv("TZ", "Europe/Berlin", 1);
  tzset();
  query_.by = UsageBy::kHour;
  usage_.rows = {Row("", "2026-10-25 02:00", 1, 0),
                 Row("", "2026-10-25 02:00 (2nd)", 2, 0),
                 Row("", "2026-10-24", 3, 0), Row("rest", "(3 more)", 4, 0)};
  const int64_t midnight = StartOf(20261025);
  for (const size_t i : {0, 1}) {
    UsageRow& row = usage_.rows[i];
    row.hour = row.begin = midnight + static_cast<int64_t>(2 + i) * 3600;
    row.end = row.begin + 3600;
  }
  usage_.rows[2].begin = midnight - 24 * 3600;
  usage_.rows[2].end = midnight;
  EXPECT_THAT(
      FormatUsageCsv(usage_, query_),
      StartsWith(
          "hour,start,end,tx_bytes,rx_bytes,tx_packets,rx_packets,"
          "tx_payload_bytes,rx_payload_bytes,tx_retransmit_bytes\n"
          "2026-10-25T02:00:00+02:00,2026-10-25T00:00:00Z,"
          "2026-10-25T01:00:00Z,1,0,0,0,0,0,0\n"
          "2026-10-25T02:00:00+01:00,2026-10-25T01:00:00Z,"
          "2026-10-25T02:00:00Z,2,0,0,0,0,0,0\n"
          "2026-10-24,2026-10-23T22:00:00Z,2026-10-24T22:00:00Z,3,0,0,0,0,0,0\n"
          "(3 more),,,4,"));
  const auto rows =
      nlohmann::json::parse(FormatUsageJson(usage_, query_))["rows"];
  EXPECT_EQ(rows[1]["hour"], "2026-10-25T02:00:00+01:00");
  EXPECT_EQ(rows[1]["start"], "2026-10-25T01:00:00Z");
  EXPECT_EQ(rows[1]["end"], "2026-10-25T02:00:00Z");
  EXPECT_EQ(rows[3]["start"], nullptr);
  EXPECT_THAT(FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0),
              HasSubstr("\n2026-10-25 02:00 (2nd) "));
}

TEST_F(UsageTextTest, EmptyIsSaid) {
  EXPECT_THAT(FormatUsageTable(Usage(), query_, SizeUnits::kBinary, 80),
              HasSubstr("(nothing was recorded in this period)"));
}

TEST_F(UsageTextTest, JsonHasExactNumbersShortfallsAndGaps) {
  const auto json = nlohmann::json::parse(FormatUsageJson(usage_, query_));
  EXPECT_EQ(json["from"], "2026-11-15");
  EXPECT_EQ(json["to"], "2026-12-14");
  EXPECT_EQ(json["rows"][0]["service"], "mme");
  EXPECT_EQ(json["rows"][0]["tx_bytes"], 1536);
  EXPECT_EQ(json["sum"]["rx_bytes"], 1036);
  EXPECT_EQ(json["shortfalls"][0]["uplink"], "satellite");
  EXPECT_EQ(json["shortfalls"][0]["tx_bytes"], 4096);
  EXPECT_EQ(json["gaps"][3]["what"], "clock");
  query_.by = UsageBy::kDay;
  EXPECT_THAT(FormatUsageJson(usage_, query_), HasSubstr("\"day\": \"mme\""));
}

TEST_F(UsageTextTest, RatesAreThoseOfTheLargerDirection) {
  const std::vector<UplinkRate> rates = {{"fibre", 12345678, 999000, 8640}};
  EXPECT_EQ(FormatRatesTable(rates, query_.period, 95, 0),
            "2026-11-15 to 2026-12-14, percentile 95 of five-minute samples\n"
            "UPLINK           SENT      RECEIVED         LARGER  SAMPLES\n"
            "fibre   12.346 Mbit/s  0.999 Mbit/s  12.346 Mbit/s     8640\n");
  const auto json =
      nlohmann::json::parse(FormatRatesJson(rates, query_.period, 95));
  EXPECT_EQ(json["rows"][0]["tx_bits_per_second"], 12345678);
  EXPECT_EQ(json["percentile"], 95);
  EXPECT_EQ(FormatRatesCsv(rates),
            "uplink,tx_bits_per_second,rx_bits_per_second,samples\n"
            "fibre,12345678,999000,8640\n");
}

// Anybody may choose a name, also one that a spreadsheet executes.
TEST_F(UsageTextTest, CsvQuotesAndIsNoFormula) {
  EXPECT_EQ(FormatUsageCsv(usage_, query_),
            "kind,service,tx_bytes,rx_bytes,tx_packets,rx_packets,"
            "tx_payload_bytes,rx_payload_bytes,tx_retransmit_bytes\n"
            "service,mme,1536,1024,0,0,0,0,0\n"
            "binary,\"'=cmd|'!A1,\"\"x\"\"\",500,12,0,0,0,0,0\n");
  query_.by = UsageBy::kDestination;
  EXPECT_THAT(FormatUsageCsv(usage_, query_),
              StartsWith("kind,destination,tx_"));
}

TEST(PeriodOptionsTest, WordsAreDaysAndMonthsBeforeToday) {
  const auto get = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "usage");
    Flags flags("", "usage");
    PeriodOptions options;
    options.Declare(&flags);
    std::string help;
    EXPECT_TRUE(
        flags.Parse(static_cast<int>(arguments.size()), arguments.data(), &help)
            .ok());
    const auto period = options.Get(20261102);
    return period.ok() ? absl::StrCat(period->from, " ", period->to)
                       : std::string(period.status().message());
  };
  EXPECT_EQ(get({"--from", "today"}), "20261102 20261102");
  EXPECT_EQ(get({"--from", "7d", "--to", "yesterday"}), "20261026 20261101");
  EXPECT_EQ(get({"--month", "last"}), "20261001 20261031");
  EXPECT_EQ(get({"--month", "last", "--reset-day", "15"}), "20260915 20261014");
  EXPECT_EQ(get({"--from", "d"}),
            "--from: " + std::string(ParseDay("d").status().message()));
}

TEST_F(UsageTextTest, TheSumIsGivenByUplinkAndSaysWhatIsNotInIt) {
  usage_.uplinks = {Row("", "satellite", 2000, 100)};
  EXPECT_THAT(FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0),
              Not(HasSubstr("together")));
  usage_.uplinks.push_back(Row("", "lte", 900, 72));
  usage_.not_billed = {Row("", "lan", 1000, 2000), Row("", "", 3, 0)};
  EXPECT_THAT(
      FormatUsageTable(usage_, query_, SizeUnits::kDecimal, 0),
      AllOf(HasSubstr("path direct\nsatellite 2.1 kB, lte 972 B; "
                      "together 3.1 kB\nSERVICE"),
            HasSubstr("\nnot in the sum: lan 3.0 kB, no uplink 3 B\n")));
  const auto json = nlohmann::json::parse(FormatUsageJson(usage_, query_));
  EXPECT_EQ(json["uplinks"][1]["uplink"], "lte");
  EXPECT_EQ(json["uplinks"][1]["tx_bytes"], 900);
  EXPECT_EQ(json["not_in_sum"][1]["uplink"], "");
  EXPECT_EQ(json["not_in_sum"][0]["rx_bytes"], 2000);
}

TEST_F(UsageTextTest, ATableHasTheLastGapsOnly) {
  usage_.gaps.assign(1334, usage_.gaps.at(0));
  const std::string text =
      FormatUsageTable(usage_, query_, SizeUnits::kBinary, 0);
  EXPECT_THAT(text, HasSubstr("\nand 1330 earlier such lines: --json\n"));
  EXPECT_LT(text.size(), 3000u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
