// SPDX-License-Identifier: BSD-3-Clause
// Tests an export against a store that keeps the newest row of each key, as a centre
// does.
#include "lib/apps/export/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "lib/apps/export/cursor.h"
#include "lib/apps/history/bill.h"
#include "lib/apps/history/forget.h"
#include "lib/apps/history/identity.h"
#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

using Rows = std::map<std::string, nlohmann::json>;

class RowsTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    std::string name = testing::TempDir() + "/export-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    auto history = OpenHistory(name + "/history.db", Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
    ASSERT_TRUE(history_->Execute("PRAGMA synchronous=OFF").ok());
    reading_.now = StartOf(20261101) + 12 * 3600 + 1800;
    reading_.boottime = 1000;
    reading_.boot_id = "boot-1";
    reading_.start_ns = 1000;
    options_.piece_rows = 10;
    record_options_.keep_hours_days = 4;
  }

  void Wait(int64_t seconds) {
    reading_.now += seconds;
    reading_.boottime += seconds;
  }
  void Count(const std::string& name, uint64_t bytes,
             const std::string& uplink = "") {
    for (Sample& sample : reading_.samples) {
      if (sample.name == name && sample.uplink == uplink) {
        sample.tx_bytes += bytes;
        return;
      }
    }
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = name;
    sample.uplink = uplink;
    sample.transport = Transport::kTcp;
    sample.tx_bytes = bytes;
    reading_.samples.push_back(sample);
  }
  void RecordNow() {
    const auto recorded =
        Record(history_.get(), record_options_,
               [this]() -> absl::StatusOr<Reading> { return reading_; });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
  }

  // Sends what the centre does not have, and returns the number of rows of each piece.
  std::vector<size_t> Send() {
    options_.now = reading_.now;
    std::vector<size_t> sizes;
    ExportPiece piece;
    while (!piece.is_last) {
      const auto read = ReadPiece(history_.get(), options_, cursor_);
      EXPECT_TRUE(read.ok()) << read.status();
      if (!read.ok()) return sizes;
      piece = *read;
      EXPECT_GE(piece.version, cursor_);
      cursor_ = piece.version;
      Receive(piece.text);
      sizes.push_back(piece.rows);
    }
    return sizes;
  }
  void Receive(const std::string& text) {
    for (const absl::string_view line :
         absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const auto row = nlohmann::json::parse(line);
      auto key = row;
      for (const char* value :
           {"version", "tx_bytes", "rx_bytes", "tx_packets", "rx_packets",
            "tx_payload_bytes", "rx_payload_bytes", "tx_retransmit_bytes",
            "recorded"}) {
        key.erase(value);
      }
      auto& newest = centre_[key.dump()];
      if (newest.is_null() || newest["version"] <= row["version"]) newest = row;
    }
  }

  // What the centre has of a service on the bill, by the rule of docs/fleet-bill.md for
  // days that it has by the hour and as a whole.
  int64_t Centre(const std::string& service) const {
    std::map<std::string, std::map<std::string, int64_t>> versions;
    for (const auto& [key, row] : centre_) {
      if (!row.contains("service")) continue;
      int64_t& newest = versions[row["day"]][row["row"]];
      newest = std::max(newest, row["version"].get<int64_t>());
    }
    int64_t bytes = 0;
    for (const auto& [key, row] : centre_) {
      if (!row.contains("service") || row["service"] != service ||
          row["path"] != "direct") {
        continue;
      }
      auto& of_day = versions[row["day"]];
      if (row["row"] == (of_day["day"] >= of_day["hour"] ? "day" : "hour")) {
        bytes += row["tx_bytes"].get<int64_t>();
      }
    }
    return bytes;
  }
  int64_t History(const std::string& service) {
    UsageQuery query;
    query.period = {20000101, 20991231};
    query.service = service;
    query.only_billed = true;
    const auto usage = ReadUsage(history_.get(), query);
    return usage.ok() ? usage->sum.tx_bytes() : -1;
  }
  size_t RowsOfKind(const std::string& kind) const {
    size_t count = 0;
    for (const auto& row : centre_) count += row.second["row"] == kind;
    return count;
  }

  std::unique_ptr<Database> history_;
  RecordOptions record_options_;
  Reading reading_;
  ExportOptions options_;
  int64_t cursor_ = kFromTheBeginning;
  Rows centre_;
};

TEST_F(RowsTest, AnHourIsSentWhenItIsOver) {
  Count("mme", 10);
  RecordNow();
  Send();
  EXPECT_EQ(Centre("mme"), 0);
  EXPECT_EQ(RowsOfKind("host"), 1u);
  Wait(3600);
  Count("mme", 5);
  RecordNow();
  Send();
  EXPECT_EQ(Centre("mme"), 10);
  Wait(3600);
  Send();
  EXPECT_EQ(Centre("mme"), 15);
  // Nothing changed: only the host's row goes.
  EXPECT_THAT(Send(), ElementsAre(1u));
}

// The host goes down within an hour: what it recorded last is sent when the hour is over.
// A cursor that had passed the running hour's version would leave it out.
TEST_F(RowsTest, AHourThatEndsWithoutARecordIsSent) {
  Count("mme", 10);
  RecordNow();
  Wait(600);
  reading_.boot_id =
      "boot-2";  // with a gap, whose version is newer than the hour's
  RecordNow();
  Send();
  EXPECT_EQ(Centre("mme"), 0);
  Wait(86400);
  Send();
  EXPECT_EQ(Centre("mme"), History("mme"));
  EXPECT_EQ(RowsOfKind("gap"), 1u);
}

TEST_F(RowsTest, ARunningHourIsReplacedByItsWhole) {
  options_.running = true;
  for (int i = 0; i < 10; ++i) {
    Count("mme", 10);
    RecordNow();
    Send();
    EXPECT_EQ(Centre("mme"), History("mme"));
    Wait(60);
  }
  EXPECT_EQ(RowsOfKind("hour"), 1u);
}

TEST_F(RowsTest, ABacklogComesInPiecesOfWholeVersions) {
  for (int hour = 0; hour < 100; ++hour) {
    for (int i = 0; i < 4; ++i) Count("service-" + std::to_string(i), 7);
    RecordNow();
    Wait(3600);
  }
  const std::vector<size_t> sizes = Send();
  EXPECT_GE(sizes.size(), 30u);
  // 10 rows, the rest of the last hour, and the host's row.
  EXPECT_THAT(sizes, testing::Each(Le(15u)));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Centre("service-" + std::to_string(i)), 700);
  }
}

// Hours are folded into their day after four days. Those of the first day were sent.
TEST_F(RowsTest, DaysThatWereFoldedBeforeTheyWereSentComeAsDays) {
  for (int hour = 0; hour < 8 * 24; ++hour) {
    Count("mme", 10);
    RecordNow();
    Wait(3600);
    if (hour == 24 + 5) Send();
  }
  EXPECT_GT(RowsOfKind("hour"), 0u);
  EXPECT_EQ(RowsOfKind("day"), 0u);
  const Rows before = centre_;
  Send();
  EXPECT_EQ(Centre("mme"), History("mme"));
  // Five days are folded. The first one had been sent by the hour.
  EXPECT_EQ(RowsOfKind("day"), 4u);
  // Another centre, which has nothing, and this one, which has it all.
  const Rows after = centre_;
  for (const auto& centre : {Rows(), after}) {
    centre_ = centre;
    cursor_ = kFromTheBeginning;
    Send();
    EXPECT_EQ(Centre("mme"), History("mme"));
  }
  EXPECT_EQ(RowsOfKind("day"), 5u);
  // In another order, and everything twice.
  cursor_ = kFromTheBeginning;
  for (const auto& row : before) Receive(row.second.dump());
  EXPECT_EQ(Centre("mme"), History("mme"));
}

// The clock went back by six days: a day that had only its sum has an hour again.
TEST_F(RowsTest, AFoldedDayThatGrowsIsSentAsAWhole) {
  for (int hour = 0; hour < 7 * 24; ++hour) {
    Count("mme", 10);
    RecordNow();
    Wait(3600);
  }
  Send();
  reading_.now -= 6 * 86400 + 43200;
  Count("mme", 3);
  RecordNow();
  reading_.now += 6 * 86400 + 43200;
  Wait(60);
  RecordNow();
  Wait(3600);
  Send();
  EXPECT_EQ(Centre("mme"), History("mme"));
}

TEST_F(RowsTest, ByDayEachDayIsSentOnceItIsOver) {
  options_.by = ExportBy::kDay;
  for (int hour = 0; hour < 10 * 24; ++hour) {
    Count("mme", 10);
    RecordNow();
    Wait(3600);
    Send();
  }
  EXPECT_EQ(RowsOfKind("day"), 10u);
  EXPECT_EQ(RowsOfKind("hour"), 0u);
  Wait(86400);
  Send();
  EXPECT_EQ(Centre("mme"), History("mme"));
}

// An uplink that joins forwarded_clients leaves the bill, also in the past. The centre's
// rows of path `direct` become 0.
TEST_F(RowsTest, AMoveOffTheBillEmptiesTheFormerRows) {
  reading_.sides.names = {"lan", "satellite"};
  reading_.sides.any_is_paid = true;
  for (int hour = 0; hour < 7 * 24; ++hour) {
    Count("mme", 10, "lan");
    Count("mme", 1, "satellite");
    RecordNow();
    Wait(3600);
  }
  Wait(3600);
  Send();
  EXPECT_EQ(Centre("mme"), 7 * 24 * 11);
  reading_.sides.clients = {"lan"};
  RecordNow();
  Wait(3600);
  const std::vector<size_t> sizes = Send();
  EXPECT_THAT(sizes, testing::Each(Le(20u)));
  EXPECT_EQ(Centre("mme"), 7 * 24);
  EXPECT_EQ(Centre("mme"), History("mme"));
}

TEST_F(RowsTest, AForgottenNameIsEmptyAtTheCentreBeforeItGoes) {
  for (int hour = 0; hour < 7 * 24; ++hour) {
    Count("alice", 10);
    Count("mme", 1);
    RecordNow();
    Wait(3600);
  }
  Send();
  const auto forget = [this] {
    const auto forgotten =
        Forget(history_.get(), ForgetWhat::kService, "alice", cursor_);
    EXPECT_TRUE(forgotten.ok()) << forgotten.status();
    return forgotten->unsent;
  };
  EXPECT_GT(forget(), 0);
  EXPECT_GT(forget(), 0);
  Wait(86400);
  EXPECT_THAT(Send(), testing::Each(Le(20u)));
  EXPECT_EQ(Centre("alice"), 0);
  EXPECT_EQ(Centre("forgotten"), 7 * 24 * 10);
  EXPECT_EQ(Centre("mme"), 7 * 24);
  EXPECT_EQ(forget(), 0);
  // Nothing is sent again.
  EXPECT_THAT(Send(), ElementsAre(1u));
}

// The bug: versions ran ahead of the clock, and so no period was sent.
TEST_F(RowsTest, BudgetsBeginWithTheFirstDayThatChanged) {
  const auto first = [this] {
    options_.now = reading_.now;
    const auto change = FirstChange(history_.get(), options_, cursor_);
    EXPECT_TRUE(change.ok()) << change.status();
    return change.ok() ? *change : -1;
  };
  EXPECT_EQ(first(), reading_.now);
  Count("mme", 1);
  RecordNow();
  EXPECT_EQ(first(), StartOf(20261101));
  Wait(86400);
  Send();
  EXPECT_EQ(first(), reading_.now);
  reading_.now += 366 * 86400;
  RecordNow();
  reading_.now -= 366 * 86400;
  Send();
  Count("mme", 1);
  RecordNow();
  EXPECT_EQ(first(), StartOf(20261102));
  Wait(86400);
  EXPECT_EQ(first(), StartOf(20261102));
}

TEST_F(RowsTest, SamplesAndBudgets) {
  options_.samples = true;
  for (int i = 0; i < 24; ++i) {
    Count("mme", 100);
    RecordNow();
    Wait(300);
  }
  Wait(3600);
  Send();
  EXPECT_GE(RowsOfKind("sample"), 20u);
  int64_t bytes = 0;
  for (const auto& row : centre_) {
    if (row.second["row"] == "sample") {
      bytes += row.second["tx_bytes"].get<int64_t>();
    }
  }
  EXPECT_EQ(bytes, 2400);
  Budget budget;
  budget.name = "daily";
  budget.limit = 1000;
  budget.days = 1;
  Wait(86400);
  options_.now = reading_.now;
  ExportPiece piece;
  ASSERT_TRUE(AddBudget(history_.get(), options_, budget, 0, &piece).ok());
  EXPECT_EQ(piece.rows, 2u);
  EXPECT_THAT(piece.text,
              HasSubstr("\"limit_bytes\":1000,\"used_bytes\":2400,\"percent\":"
                        "240,\"from\":\"2026-11-01\",\"to\":\"2026-11-01\"}"));
  // A fee of 0.50 a day, and 10 millionths a byte.
  Plan plan;
  plan.name = "daily";
  plan.currency = "EUR";
  plan.days = 1;
  plan.terms.resize(1);
  plan.terms[0].fee_micros = 500000;
  plan.terms[0].tiers.resize(1);
  plan.terms[0].tiers[0].micros = 10;
  ExportPiece costs;
  ASSERT_TRUE(AddCost(history_.get(), options_, plan, 0, &costs).ok());
  EXPECT_EQ(costs.rows, 2u);
  EXPECT_THAT(costs.text, HasSubstr("\"cost_micros\":500000,"));
  EXPECT_THAT(costs.text, HasSubstr("\"cost_micros\":524000,\"billed_bytes\":"
                                    "2400,\"used_bytes\":2400,\"from\":"
                                    "\"2026-11-01\""));
  plan.terms[0].from = HourOf(reading_.now).day;
  ExportPiece later;
  ASSERT_TRUE(AddCost(history_.get(), options_, plan, 0, &later).ok());
  EXPECT_EQ(later.rows, 1u);
}

TEST_F(RowsTest, TextHasTheOriginAndCsvAllColumns) {
  Count("a,\"b", 10);
  RecordNow();
  Wait(7200);
  options_.now = reading_.now;
  options_.origin = R"(,"host":"gw-7","labels":{"site":"ulm"})";
  const auto json = ReadPiece(history_.get(), options_, kFromTheBeginning);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(json->text, HasSubstr(R"("service":"a,\"b","destination":"",)"));
  EXPECT_THAT(json->text,
              HasSubstr(R"("host":"gw-7","labels":{"site":"ulm"}})"));
  options_.csv = true;
  const auto csv = ReadPiece(history_.get(), options_, kFromTheBeginning);
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_THAT(csv->text, HasSubstr(R"(,gw-7,"{""site"":""ulm""}",)"));
  EXPECT_THAT(csv->text, HasSubstr(R"(,"a,""b",,tcp,)"));
}

TEST(CursorTest, IsReadAsItWasWritten) {
  const std::string file = testing::TempDir() + "/cursor";
  EXPECT_TRUE(absl::IsNotFound(ReadCursor(file).status()));
  ASSERT_TRUE(WriteCursor(file, {"id", "https://centre", "day", 17}).ok());
  const auto cursor = ReadCursor(file);
  ASSERT_TRUE(cursor.ok()) << cursor.status();
  EXPECT_EQ(cursor->host_id, "id");
  EXPECT_EQ(cursor->receiver, "https://centre");
  EXPECT_EQ(cursor->by, "day");
  EXPECT_EQ(cursor->version, 17);
  auto other = NewFile::Create(file);
  ASSERT_TRUE(other.ok());
  for (const char* text : {"", "{}", "[1]", "{\"version\":\"a\"}"}) {
    auto broken = NewFile::Create(file);
    ASSERT_TRUE(broken->Write(text).ok() && broken->Commit().ok());
    EXPECT_THAT(ReadCursor(file).status().message(),
                HasSubstr("is no cursor of netmeter export"));
  }
  unlink(file.c_str());
  // An iterator over the stream of a directory threw.
  EXPECT_FALSE(ReadCursor(testing::TempDir()).ok());
}

TEST(CursorTest, AReceiverHasNoSecret) {
  EXPECT_EQ(ReceiverName("rows.ndjson"), "");
  EXPECT_EQ(ReceiverName("https://centre:8443/?password=x#y"),
            ReceiverName("https://centre:8443/?password=x"));
  EXPECT_THAT(ReceiverName("https://centre/in?user=a@b"),
              testing::MatchesRegex("https://centre/in[?][0-9a-f]{8}"));
  // Another table has nothing yet.
  EXPECT_NE(ReceiverName("https://centre/?query=INSERT+INTO+trial"),
            ReceiverName("https://centre/?query=INSERT+INTO+rows"));
  EXPECT_EQ(ReceiverName("http://centre"), "http://centre");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
