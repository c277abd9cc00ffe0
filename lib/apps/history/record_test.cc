// SPDX-License-Identifier: BSD-3-Clause
// Tests the history over years, with a meter and a clock of the test's own.
#include "lib/apps/history/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/samples.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RecordTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    std::string name = testing::TempDir() + "/history-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    directory_ = name;
    Open();
    reading_.now = StartOf(20261101) + 12 * 3600;
    reading_.boottime = 1000;
    reading_.boot_id = "boot-1";
    Load();
  }
  void TearDown() override {
    history_.reset();
    for (const char* end : {"", "-wal", "-shm"}) {
      unlink((path() + end).c_str());
    }
    rmdir(directory_.c_str());
  }

  std::string path() const { return directory_ + "/history.db"; }
  void Open() {
    history_.reset();
    auto history = OpenHistory(path(), Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
    // No test here cuts the power, and this is ten times as fast.
    ASSERT_TRUE(history_->Execute("PRAGMA synchronous=OFF").ok());
  }
  void UndoVersion7() {
    for (const char* table : {"hour", "day", "gap", "five_minutes"}) {
      ASSERT_TRUE(history_
                      ->Execute(absl::StrCat("ALTER TABLE ", table,
                                             " DROP COLUMN version"))
                      .ok());
    }
    ASSERT_TRUE(history_
                    ->Execute("DELETE FROM setting WHERE name IN ('version', "
                              "'host_id')")
                    .ok());
  }

  // The simulated meter and clock.
  void Wait(int64_t seconds) {
    reading_.now += seconds;
    reading_.boottime += seconds;
  }
  void Load() {
    reading_.start_ns = reading_.boottime * 1000000000 + 5;
    reading_.samples.clear();
  }
  void Reboot() {
    reading_.boot_id += "+";
    reading_.boottime = 10;
    Load();
  }
  Sample* Series(Kind kind, const std::string& name,
                 const std::string& destination = "") {
    for (Sample& sample : reading_.samples) {
      if (sample.kind == kind && sample.name == name &&
          sample.destination == destination) {
        return &sample;
      }
    }
    Sample sample;
    sample.kind = kind;
    sample.name = name;
    sample.destination = destination;
    sample.transport = Transport::kTcp;
    reading_.samples.push_back(sample);
    return &reading_.samples.back();
  }
  void Count(const std::string& name, uint64_t bytes) {
    Series(Kind::kService, name)->tx_bytes += bytes;
  }

  absl::StatusOr<Recorded> TryRecord() {
    return Record(history_.get(), options_,
                  [this]() -> absl::StatusOr<Reading> { return reading_; });
  }
  int64_t RecordNow() {
    const auto recorded = TryRecord();
    EXPECT_TRUE(recorded.ok()) << recorded.status();
    return recorded.ok() ? recorded->bytes : -1;
  }

  Usage Read(Day from, Day to, UsageBy by = UsageBy::kService) {
    UsageQuery query;
    query.period = {from, to};
    query.by = by;
    const auto usage = ReadUsage(history_.get(), query);
    EXPECT_TRUE(usage.ok()) << usage.status();
    return usage.ok() ? *usage : Usage();
  }
  std::string Rows(Day from, Day to, UsageBy by = UsageBy::kService) {
    std::string text;
    for (const UsageRow& row : Read(from, to, by).rows) {
      text += row.name + "=" + std::to_string(row.counters.tx_bytes()) + " ";
    }
    return text;
  }
  std::string KindsAndRows(Day from, Day to) {
    std::string text;
    for (const UsageRow& row : Read(from, to).rows) {
      text += row.kind + " " + row.name + "=" +
              std::to_string(row.counters.tx_bytes()) + " ";
    }
    return text;
  }
  int64_t Total() { return Read(19700101, 21000101).sum.tx_bytes(); }
  std::string Gaps() {
    std::string text;
    for (const Gap& gap : Read(19700101, 21000101).gaps) {
      text += gap.what + " " + std::to_string(gap.end - gap.begin) + "; ";
    }
    return text;
  }
  int64_t Rows(const std::string& table) {
    Statement query = history_->Prepare("SELECT COUNT(*) FROM " + table);
    return query.Step() ? query.Integer(0) : -1;
  }

  std::string directory_;
  std::unique_ptr<Database> history_;
  RecordOptions options_;
  Reading reading_;
};

// A telephone leaves, and a tablet gets its address from DHCP.
TEST_F(RecordTest, AnAddressCountsForTheClientThatHasItNow) {
  reading_.has_forwarded = true;
  const auto count = [this](const std::string& address, int64_t bytes) {
    reading_.forwarded[{"satellite", "lan0", address}].value[0] += bytes;
  };
  std::map<std::string, std::string> macs = {{"10.0.0.2", "phone"},
                                             {"fd00::2", "phone"}};
  reading_.client_of = [&macs](const std::string& address,
                               const std::string& interface) {
    EXPECT_EQ(interface, "lan0");
    const auto found = macs.find(address);
    return found == macs.end() ? address : found->second;
  };
  const auto rows = [this] {
    std::map<std::string, int64_t> bytes;
    for (const UsageRow& row :
         Read(20261101, 20261101, UsageBy::kDestination).rows) {
      bytes[row.name] = row.counters.bytes();
    }
    return bytes;
  };
  using Rows = std::map<std::string, int64_t>;
  count("10.0.0.2", 100);
  count("fd00::2", 50);
  count("10.0.0.4", 7);
  count("", 1);
  Wait(60);
  EXPECT_EQ(RecordNow(), 158);
  const Rows first = {{"phone", 150}, {"10.0.0.4", 7}, {"forwarded", 1}};
  EXPECT_EQ(rows(), first);
  macs["10.0.0.2"] = "tablet";
  count("10.0.0.2", 20);
  count("fd00::2", 5);
  Wait(60);
  EXPECT_EQ(RecordNow(), 25);
  macs.clear();
  count("10.0.0.2", 3);
  Wait(60);
  EXPECT_EQ(RecordNow(), 3);
  const Rows last = {{"phone", 155},
                     {"tablet", 20},
                     {"10.0.0.2", 3},
                     {"10.0.0.4", 7},
                     {"forwarded", 1}};
  EXPECT_EQ(rows(), last);
}

TEST_F(RecordTest, EachByteIsRecordedOnceHoweverOften) {
  Count("mme", 100);
  EXPECT_EQ(RecordNow(), 100);
  EXPECT_EQ(RecordNow(), 0);
  Wait(60);
  Count("mme", 5);
  Count("dns", 7);
  Open();  // another process
  EXPECT_EQ(RecordNow(), 12);
  EXPECT_EQ(Rows(20261101, 20261101), "mme=105 dns=7 ");
  EXPECT_EQ(Rows(20261102, 20261130), "");
  EXPECT_EQ(Gaps(), "");
}

// A host without a hardware clock loads in 1970. The first bug: the gap ended
// before it began. The second: it ended at the record, because the time of the load was
// not known by then.
TEST_F(RecordTest, AGapEndsAtALoadThatWasBeforeTheClockWasSet) {
  Count("mme", 100);
  RecordNow();
  Wait(30);
  const int64_t now = reading_.now;
  reading_.now = 10;
  Reboot();
  reading_.now = now + 60;
  reading_.boottime += 60;
  Count("mme", 50);
  EXPECT_EQ(RecordNow(), 50);
  EXPECT_EQ(Gaps(), "lost 30; ");
  EXPECT_TRUE(Read(20260101, 20260131).gaps.empty());
}

// SQLite does not store ":memory:", and would make files beside a device.
TEST_F(RecordTest, AHistoryIsAFile) {
  EXPECT_EQ(
      OpenHistory("/dev/null", Database::Mode::kCreate).status().message(),
      "/dev/null is no file");
  char here[4096];
  ASSERT_NE(getcwd(here, sizeof(here)), nullptr);
  ASSERT_EQ(chdir(directory_.c_str()), 0);
  EXPECT_TRUE(OpenHistory(":memory:", Database::Mode::kCreate).ok());
  EXPECT_EQ(unlink(":memory:"), 0);
  unlink(":memory:-wal");
  unlink(":memory:-shm");
  EXPECT_EQ(chdir(here), 0);
}

TEST_F(RecordTest, ARebootAndAnUnloadLoseTheLastIntervalAndNoMore) {
  Count("mme", 100);
  RecordNow();
  Wait(30);
  Count("mme", 1);  // lost
  Reboot();
  Wait(30);
  Count("mme", 50);
  EXPECT_EQ(RecordNow(), 50);
  Wait(30);
  Load();  // unload, load
  Count("mme", 200);
  EXPECT_EQ(RecordNow(), 200);
  EXPECT_EQ(Total(), 350);
  EXPECT_EQ(Gaps(), "lost 30; lost 30; ");
}

// The bug: it was lost, although the interface had counted on. 100 packets of a service
// are recorded, and further 100 are not; then 30 pass without a meter, and 7 with a new
// one.
TEST_F(RecordTest, AnUnloadAndALoadLoseOnlyNames) {
  const auto pass = [this](uint64_t packets, const char* service) {
    nm_interface_counts& counts = reading_.links->interfaces[0].counts;
    counts.tx_bytes += packets * 114;
    counts.tx_packets += packets;
    if (service == nullptr) return;
    Count(service, packets * 100);
    Series(Kind::kService, service)->tx_packets += packets;
    Series(Kind::kService, service)->uplink = "satellite";
  };
  const auto load = [this] {  // the loader writes what the interface has
    Load();
    InterfaceEntry entry = {};
    entry.first = {2, 1, 0};
    entry.second.begin = reading_.links->interfaces[0].counts;
    reading_.links->entries = {entry};
  };
  Interface card;
  card.index = 2;
  card.name = "sat0";
  card.header = {14, 14};
  reading_.links.emplace();
  reading_.links->network = 4026531840;
  reading_.links->names = {{1, "satellite"}};
  reading_.links->patterns = {{"satellite", {"sat0"}}};
  reading_.links->interfaces = {card};
  pass(1000, nullptr);  // before the first load
  load();
  pass(100, "mme");
  EXPECT_EQ(RecordNow(), 10000);
  Wait(60);
  pass(100, "mme");
  Wait(1200);
  pass(30, nullptr);
  load();
  Wait(30);
  pass(7, "mme");
  EXPECT_EQ(RecordNow(), 13700);
  EXPECT_EQ(KindsAndRows(20261101, 20261101),
            "unnamed tunnels and kernel=13000 service mme=10700 ");
  EXPECT_EQ(Gaps(), "unnamed 1260; ");
  // The bytes are spread over the whole interval, not over the time since the load.
  Statement samples =
      history_->Prepare("SELECT MAX(tx_bytes) FROM five_minutes");
  ASSERT_TRUE(samples.Step());
  EXPECT_LT(samples.Integer(0), 10000 + 13700 / 4);
  ASSERT_FALSE(samples.Step());
  Wait(60);
  pass(3, "mme");
  EXPECT_EQ(RecordNow(), 300);
  // The bug: an upgrade of version 6 forgot what the last record had seen, so that all
  // since the load was counted again.
  UndoVersion7();
  ASSERT_TRUE(history_->Execute("PRAGMA user_version=6").ok());
  Open();
  // Also if the clock goes back, no version is below one that was sent.
  Statement newest = history_->Prepare("SELECT MAX(version) FROM five_minutes");
  ASSERT_TRUE(newest.Step());
  EXPECT_GE(*ReadVersion(history_.get()), newest.Integer(0));
  ASSERT_FALSE(newest.Step());
  Wait(60);
  pass(2, "mme");
  EXPECT_EQ(RecordNow(), 200);
  // Another namespace, and another boot, have other interfaces.
  Wait(60);
  reading_.links->network = 4026532000;
  load();
  pass(1, "mme");
  EXPECT_EQ(RecordNow(), 100);
  Wait(60);
  pass(5, "mme");
  Reboot();
  reading_.links->interfaces[0].counts = {};
  load();
  pass(2, "mme");
  EXPECT_EQ(RecordNow(), 200);
  EXPECT_EQ(Gaps(), "unnamed 1260; lost 60; lost 60; ");
}

// A board without a hardware clock may begin each boot at the same nanosecond.
TEST_F(RecordTest, TwoBootsThatBeginAtOneTimeAreTwo) {
  const int64_t now = reading_.now;
  Count("mme", 100);
  RecordNow();
  reading_.now = now;
  Reboot();
  Count("mme", 100);
  EXPECT_EQ(RecordNow(), 100);
  EXPECT_EQ(Total(), 200);
}

// Two meters take turns, for example if one is loaded for a test: neither is taken for
// new.
TEST_F(RecordTest, AMeterThatIsReadAgainGoesOnWhereItWas) {
  Count("mme", 100);
  RecordNow();
  const Reading first = reading_;
  Wait(60);
  Load();
  Count("mme", 10);
  RecordNow();
  reading_ = first;
  Wait(120);
  Count("mme", 1);
  EXPECT_EQ(RecordNow(), 1);
  EXPECT_EQ(Total(), 111);
}

TEST_F(RecordTest, WhatWasCountedBeforeMidnightBelongsToThatDay) {
  reading_.now = StartOf(20261102) - 60;
  RecordNow();
  Wait(60);
  Count("mme", 5);
  RecordNow();
  Wait(60);
  Count("mme", 7);
  RecordNow();
  EXPECT_EQ(Rows(20261101, 20261103, UsageBy::kDay),
            "2026-11-01=5 2026-11-02=7 ");
  EXPECT_EQ(Gaps(), "");
}

TEST_F(RecordTest, RowsAreHoursDaysMonthsOrYears) {
  options_.keep_hours_days = 2;
  for (const Day day : {20251231, 20261030, 20261101, 20261102}) {
    reading_.now = StartOf(day) + 12 * 3600;
    Count("mme", 1);
    RecordNow();
    Wait(7200);
    Count("mme", 10);
    RecordNow();
  }
  EXPECT_EQ(Rows(20260101, 20261130, UsageBy::kHour),
            "2026-10-30=11 2026-11-01 12:00=1 2026-11-01 14:00=10 "
            "2026-11-02 12:00=1 2026-11-02 14:00=10 ");
  EXPECT_EQ(Rows(20250101, 20261130, UsageBy::kMonth),
            "2025-12=11 2026-10=11 2026-11=22 ");
  EXPECT_EQ(Rows(20250101, 20261130, UsageBy::kYear), "2025=11 2026=33 ");
}

// Twenty samples: one of 3 MB, one of 600 kB, three without traffic.
TEST_F(RecordTest, ThePercentileLeavesOutTheHighestSamples) {
  RecordNow();
  const int64_t begin = reading_.now;
  const auto percentile = [&](int percent) {
    std::string text;
    const auto rates = ReadPercentiles(history_.get(), {20261101, 20261101},
                                       percent, begin + 20 * 300);
    if (!rates.ok()) return std::string(rates.status().message());
    for (const UplinkRate& rate : *rates) {
      text += rate.uplink + " " + std::to_string(rate.sent) + " of " +
              std::to_string(rate.samples) + " ";
    }
    return text;
  };
  EXPECT_THAT(percentile(95), HasSubstr("has no five-minute samples yet"));
  for (int sample = 0; sample < 20; ++sample) {
    const uint64_t bytes = sample == 7    ? 3000000
                           : sample == 9  ? 600000
                           : sample >= 17 ? 0
                                          : 30000;
    // Each minute, as the timer does.
    for (int minute = 0; minute < 5; ++minute) {
      Wait(60);
      Count("mme", bytes / 5);
      RecordNow();
    }
  }
  EXPECT_EQ(percentile(100), " 80000 of 20 ");
  EXPECT_EQ(percentile(95), " 16000 of 20 ");
  EXPECT_EQ(percentile(90), " 800 of 20 ");
  EXPECT_EQ(percentile(15), " 0 of 20 ");
  // An interval of several samples is spread over them, and no byte is lost.
  reading_.now = StartOf(20261102) + 43200;
  RecordNow();
  Wait(1500);
  Count("mme", 1503);
  RecordNow();
  Statement rows = history_->Prepare(
      "SELECT COUNT(*), SUM(tx_bytes), MAX(tx_bytes) FROM five_minutes "
      "WHERE start >= " +
      std::to_string(StartOf(20261102)));
  ASSERT_TRUE(rows.Step());
  EXPECT_EQ(rows.Integer(0), 5);
  EXPECT_EQ(rows.Integer(1), 1503);
  EXPECT_EQ(rows.Integer(2), 301);
}

TEST_F(RecordTest, ALongPauseIsAGapAndItsBytesStandAtItsEnd) {
  RecordNow();
  Wait(3 * 86400);
  Count("mme", 5);
  RecordNow();
  EXPECT_EQ(Rows(20261101, 20261130, UsageBy::kDay), "2026-11-04=5 ");
  EXPECT_EQ(Gaps(), "delayed 259200; ");
}

// The clock decides about the day, never about the bytes.
TEST_F(RecordTest, AClockThatIsSetBackADayOrForwardAMonthIsAGapAndNothingElse) {
  RecordNow();
  for (const int64_t step : {-86400, 30 * 86400, -29 * 86400}) {
    Wait(60);
    Count("mme", 10);
    RecordNow();
    reading_.now += step;
    Wait(60);
    Count("mme", 1);
    RecordNow();
  }
  EXPECT_EQ(Total(), 33);
  EXPECT_EQ(Gaps(), "clock -86400; clock 2592000; clock -2505600; ");
  EXPECT_EQ(Rows(20261031, 20261231, UsageBy::kDay),
            "2026-10-31=11 2026-11-01=11 2026-11-30=11 ");
}

TEST_F(RecordTest, WithoutAClockNothingIsRecordedAndNothingLost) {
  RecordNow();
  Wait(60);
  Count("mme", 10);
  const int64_t now = reading_.now;
  reading_.now = 60;
  const auto refused = TryRecord();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(refused.status().message(),
              HasSubstr("the clock says 1970-01-01 01:01: set it first"));
  reading_.now = now;
  EXPECT_EQ(RecordNow(), 10);
}

// The bug: in a first draft a jump of ten years made everything old.
TEST_F(RecordTest, AClockTenYearsAheadDeletesNothing) {
  options_.keep_hours_days = 3;
  options_.keep_days = 3;
  Count("mme", 100);
  RecordNow();
  reading_.now += int64_t{10} * 365 * 86400;
  for (int i = 0; i < 3; ++i) {
    Wait(60);
    Count("mme", 1);
    RecordNow();
  }
  EXPECT_EQ(Rows(20261101, 20261101), "mme=100 ");
}

TEST_F(RecordTest, HoursBecomeDaysAndTheOldestDaysGo) {
  options_.keep_hours_days = 3;
  options_.keep_days = 4;
  reading_.now = StartOf(20261028) + 1800;  // after the night of 25 hours
  reading_.boottime = 1;
  Load();
  for (int hour = 0; hour < 10 * 24; ++hour) {
    Count("mme", 1);
    RecordNow();
    Wait(3600);
  }
  // Days 28 to 6; hours of 4, 5, 6; days 31 to 3.
  EXPECT_EQ(Rows("hour_traffic"), 3 * 24);
  EXPECT_EQ(Rows("day_traffic"), 4);
  EXPECT_EQ(Rows(20261001, 20261130, UsageBy::kDay),
            "2026-10-31=24 2026-11-01=24 2026-11-02=24 2026-11-03=24 "
            "2026-11-04=24 2026-11-05=24 2026-11-06=24 ");
  EXPECT_EQ(Gaps(), "");
  // After the clock goes back, traffic is added to a day that was already folded.
  reading_.now = StartOf(20261102) + 7200;
  Count("mme", 5);
  RecordNow();
  EXPECT_EQ(Rows(20261102, 20261102), "mme=29 ");
  EXPECT_EQ(Rows("hour_traffic"), 3 * 24);
}

// `usage` of a month read 2.9 million rows for 4,096 series, so a day that has ended has
// a sum. Traffic that is added later must be in the sum exactly once.
TEST_F(RecordTest, ADayThatHasEndedHasASumWithAllThatComesLater) {
  const auto of_sums = [this] {
    Statement query = history_->Prepare(
        "SELECT COALESCE(SUM(tx_bytes), 0), COUNT(*) FROM day_sum WHERE day = "
        "20261101");
    return query.Step() ? std::to_string(query.Integer(0)) + " in " +
                              std::to_string(query.Integer(1))
                        : query.status().ToString();
  };
  const auto of_hours = [this] {
    Statement query = history_->Prepare(
        "SELECT SUM(tx_bytes) FROM traffic WHERE day = 20261101");
    return query.Step() ? query.Integer(0) : -1;
  };
  reading_.now = StartOf(20261102) - 95;
  Count("mme", 100);
  RecordNow();
  EXPECT_EQ(of_sums(), "0 in 0");
  Wait(60);
  Count("mme", 10);
  RecordNow();
  Wait(60);  // most of it was before midnight
  Count("mme", 1);
  RecordNow();
  EXPECT_EQ(of_sums(), "0 in 0");
  Wait(60);
  Count("mme", 7);
  RecordNow();
  EXPECT_EQ(of_sums(), "111 in 1");
  reading_.now -= 3600;  // a clock that is set back
  Wait(60);
  Count("mme", 1000);
  Count("dns", 10000);
  RecordNow();
  EXPECT_EQ(of_sums(), "11111 in 2");
  EXPECT_EQ(of_hours(), 11111);
  EXPECT_EQ(Rows(20261101, 20261101), "dns=10000 mme=1111 ");
  EXPECT_EQ(Rows(20261101, 20261102, UsageBy::kDay),
            "2026-11-01=11111 2026-11-02=7 ");
  options_.keep_hours_days = 1;
  reading_.now += 2 * 86400;
  Wait(60);
  RecordNow();
  EXPECT_EQ(of_sums(), "0 in 0");
  EXPECT_EQ(Rows("summed_day"), 0);
  EXPECT_EQ(Rows(20261101, 20261101), "dns=10000 mme=1111 ");
}

// In another time zone the present hour may belong to a day that already has a sum. The
// bug: its earlier traffic was in both.
TEST_F(RecordTest, AnotherTimeZoneCountsNothingTwice) {
  Count("mme", 1);
  RecordNow();
  reading_.boottime += StartOf(20261102) + 60 - reading_.now;
  reading_.now = StartOf(20261102) + 60;
  Count("mme", 10);
  RecordNow();
  Wait(60);
  Count("mme", 100);
  RecordNow();
  EXPECT_EQ(Rows("summed_day"), 1);
  setenv("TZ", "America/New_York", 1);
  tzset();
  Wait(60);
  Count("mme", 1000);
  RecordNow();
  EXPECT_EQ(Total(), 1111);
  EXPECT_EQ(Rows(20261101, 20261102, UsageBy::kDay),
            "2026-11-01=1 2026-11-02=1110 ");
}

// Version 2 lacks a table that only records use. Version 1 lacks more.
TEST_F(RecordTest, AHistoryOfAnEarlierVersionGoesOnOrIsRefused) {
  Count("mme", 10);
  RecordNow();
  UndoVersion7();
  ASSERT_TRUE(history_
                  ->Execute("DROP TABLE interface; DROP TABLE five_minutes; "
                            "PRAGMA user_version=2")
                  .ok());
  EXPECT_TRUE(OpenHistory(path(), Database::Mode::kRead).ok());
  Open();
  Count("mme", 1);
  EXPECT_EQ(RecordNow(), 1);
  EXPECT_EQ(Total(), 11);
  UndoVersion7();
  ASSERT_TRUE(
      history_
          ->Execute("ALTER TABLE interface RENAME COLUMN network TO device; "
                    "UPDATE series SET kind = 'uncounted'; "
                    "PRAGMA user_version=4")
          .ok());
  Open();
  Statement kinds =
      history_->Prepare("SELECT DISTINCT kind FROM series ORDER BY kind");
  ASSERT_TRUE(kinds.Step());
  EXPECT_EQ(kinds.Text(0), "unnamed");
  EXPECT_FALSE(kinds.Step());
  ASSERT_TRUE(history_->Execute("UPDATE series SET kind = 'service'").ok());
  Count("mme", 1);
  EXPECT_EQ(RecordNow(), 1);
  ASSERT_TRUE(history_->Execute("PRAGMA user_version=1").ok());
  for (const auto mode : {Database::Mode::kRead, Database::Mode::kCreate}) {
    EXPECT_THAT(OpenHistory(path(), mode).status().message(),
                HasSubstr("is of an old version (mv "));
  }
}

TEST_F(RecordTest, NamesThatAreNowhereAnyMoreGoWithTheirLastDay) {
  options_.keep_hours_days = 1;
  options_.keep_days = 1;
  for (int day = 0; day < 40; ++day) {
    Reboot();
    Count("unit-" + std::to_string(day), 1);
    RecordNow();
    Wait(86400);
  }
  EXPECT_LT(Rows("series"), 20);
  EXPECT_LE(Rows("meter_total"), 1);
}

TEST_F(RecordTest, ANightOf25HoursIsOneDay) {
  reading_.now = StartOf(20261025);
  RecordNow();
  for (int hour = 0; hour < 49; ++hour) {
    Wait(3600);
    Count("mme", 1);
    RecordNow();
  }
  EXPECT_EQ(Rows(20261024, 20261028, UsageBy::kDay),
            "2026-10-25=25 2026-10-26=24 ");
}

// By service no row is negative, and a service has all that it counted: traffic that was
// pending yesterday has a destination today.
TEST_F(RecordTest, PendingCountsForItsServiceOnAllDays) {
  Series(Kind::kPending, "mme")->tx_bytes = 100;
  Series(Kind::kService, "mme", "cloud")->tx_bytes = 1;
  RecordNow();
  Wait(86400);
  Series(Kind::kPending, "mme")->tx_bytes = 0;
  Series(Kind::kService, "mme", "cloud")->tx_bytes = 131;
  RecordNow();
  EXPECT_EQ(Rows(20261101, 20261101), "mme=101 ");
  EXPECT_EQ(Rows(20261102, 20261102), "mme=30 ");
  EXPECT_EQ(Read(20261101, 20261102).rows[0].kind, "service");
  EXPECT_EQ(Rows(20261101, 20261102, UsageBy::kDestination), "cloud=131 ");
  EXPECT_EQ(Rows(20261102, 20261102, UsageBy::kDestination),
            "cloud=130 pending=-100 ");
}

// With register_by, another user's program with the name "sessiond" stays a binary. The
// bug: its bytes were in the row of the service, and a unit's bytes changed the kind of
// that row.
TEST_F(RecordTest, AServiceHasNoBytesOfAProgramThatIsCalledSo) {
  Count("sessiond", 50);
  Series(Kind::kBinary, "sessiond")->tx_bytes = 7000;
  Series(Kind::kUnit, "sessiond")->tx_bytes = 300;
  RecordNow();
  EXPECT_EQ(KindsAndRows(20261101, 20261101),
            "binary sessiond=7000 unit sessiond=300 service sessiond=50 ");
}

// If two have the name, the owner of pending traffic is unknown. If one has it, the
// traffic belongs to that one.
TEST_F(RecordTest, PendingOfANameThatTwoHaveIsARowOfItsOwn) {
  Series(Kind::kPending, "sessiond")->tx_bytes = 100;
  RecordNow();
  EXPECT_EQ(KindsAndRows(20261101, 20261101), "pending sessiond=100 ");
  Series(Kind::kBinary, "sessiond")->tx_bytes = 7000;
  RecordNow();
  EXPECT_EQ(KindsAndRows(20261101, 20261101), "binary sessiond=7100 ");
  Count("sessiond", 50);
  RecordNow();
  EXPECT_EQ(KindsAndRows(20261101, 20261101),
            "binary sessiond=7000 pending sessiond=100 service sessiond=50 ");
  EXPECT_EQ(Total(), 7150);
}

// A process may use the name of a reserved series.
TEST_F(RecordTest, WhatIsForwardedBelongsToItsUplinkAndToNoService) {
  Count("forwarded", 5);  // a service of this name
  reading_.samples[0].uplink = "satellite";
  reading_.has_forwarded = true;
  reading_.forwarded[{"satellite", "forwarded", ""}].value = {100, 200, 1, 2};
  reading_.forwarded[{"lan", "forwarded", ""}].value = {200, 100, 2, 1};
  EXPECT_EQ(RecordNow(), 605);
  Wait(60);
  reading_.forwarded[{"satellite", "forwarded", ""}].value = {130, 200, 2, 2};
  EXPECT_EQ(RecordNow(), 30);
  // A process that may not read it records none of it, and deletes nothing.
  Wait(60);
  reading_.has_forwarded = false;
  EXPECT_EQ(RecordNow(), 0);
  Wait(60);
  reading_.has_forwarded = true;
  EXPECT_EQ(RecordNow(), 0);
  UsageQuery query;
  query.period = {20261101, 20261130};
  query.by = UsageBy::kUplink;
  auto usage = ReadUsage(history_.get(), query);
  ASSERT_TRUE(usage.ok()) << usage.status();
  ASSERT_EQ(usage->rows.size(), 2u);
  EXPECT_EQ(usage->rows[0].name, "satellite");
  EXPECT_EQ(usage->rows[0].counters.tx_bytes(), 135);
  EXPECT_EQ(usage->rows[0].counters.rx_bytes(), 200);
  // The query of an uplink's budget.
  query.by = UsageBy::kNothing;
  query.uplink = "satellite";
  usage = ReadUsage(history_.get(), query);
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(usage->sum.bytes(), 335);
  query.by = UsageBy::kService;
  usage = ReadUsage(history_.get(), query);
  ASSERT_TRUE(usage.ok()) << usage.status();
  ASSERT_EQ(usage->rows.size(), 2u);
  EXPECT_EQ(usage->rows[0].kind, "forwarded");
  EXPECT_EQ(usage->rows[1].kind, "service");
  EXPECT_EQ(usage->rows[1].counters.bytes(), 5);
  // The bug: it was in the row of traffic that has not named its destination.
  query.by = UsageBy::kDestination;
  usage = ReadUsage(history_.get(), query);
  ASSERT_TRUE(usage.ok()) << usage.status();
  ASSERT_EQ(usage->rows.size(), 2u);
  EXPECT_EQ(usage->rows[0].name, "forwarded");
  EXPECT_EQ(usage->rows[0].counters.bytes(), 330);
  EXPECT_EQ(usage->rows[1].counters.bytes(), 5);
}

// vnStat's estimate and average rates.
TEST_F(RecordTest, ARunningPeriodHasAnEstimateAndItsRowsTheirTime) {
  reading_.now = StartOf(20261101) + 12 * 3600;
  Count("mme", 1000);
  RecordNow();
  Wait(2 * 86400);
  Count("mme", 5000);
  RecordNow();
  UsageQuery query;
  query.period = {20261101, 20261104};
  query.by = UsageBy::kDay;
  query.now = reading_.now;  // after 2.5 of 4 days
  auto usage = ReadUsage(history_.get(), query);
  ASSERT_TRUE(usage.ok()) << usage.status();
  ASSERT_TRUE(usage->estimated.has_value());
  EXPECT_EQ(usage->estimated->tx_bytes(), 9600);
  ASSERT_EQ(usage->rows.size(), 2u);
  EXPECT_EQ(usage->rows[0].seconds, 12 * 3600);  // since the first record
  EXPECT_EQ(usage->rows[1].seconds, 12 * 3600);  // until now
  query.by = UsageBy::kHour;
  EXPECT_EQ(ReadUsage(history_.get(), query)->rows[0].seconds, 3600);
  // The period begins within the month.
  query.by = UsageBy::kMonth;
  query.period.from = 20261102;
  EXPECT_EQ(ReadUsage(history_.get(), query)->rows[0].seconds, 36 * 3600);
  query.by = UsageBy::kYear;
  query.now = StartOf(20270303);
  usage = ReadUsage(history_.get(), query);
  EXPECT_EQ(usage->rows[0].seconds, 3 * 86400);
  EXPECT_FALSE(usage->estimated.has_value());  // it is over
  query.now = StartOf(20261101) + 13 * 3600;
  query.period.from = 20261101;
  EXPECT_FALSE(ReadUsage(history_.get(), query)->estimated.has_value());
}

// 100 packets of a service and 100 of a tunnel. The bug: the uplink had only the former.
TEST_F(RecordTest, AnUplinkHasWhatItsInterfacesCounted) {
  Count("mme", 100000);
  reading_.samples[0].tx_packets = 100;
  reading_.samples[0].uplink = "satellite";
  Interface card;
  card.index = 2;
  card.name = "sat0";
  card.header = {14, 14};
  card.counts = {210000 + 200 * 14, 0, 200, 0};
  reading_.links.emplace();
  reading_.links->patterns = {{"satellite", {"sat0"}}};
  reading_.links->interfaces = {card};
  EXPECT_EQ(RecordNow(), 210000);
  UsageQuery query;
  query.period = {20261101, 20261130};
  query.uplink = "satellite";
  const auto rows = [&] {
    std::string text;
    const auto usage = ReadUsage(history_.get(), query);
    EXPECT_TRUE(usage.ok()) << usage.status();
    for (const UsageRow& row : usage->rows) {
      text += row.kind + " " + row.name + "=" +
              std::to_string(row.counters.tx_bytes()) + " ";
    }
    for (const Shortfall& one : usage->shortfalls) {
      text += "less " + std::to_string(one.tx_bytes);
    }
    return text;
  };
  EXPECT_EQ(rows(), "unnamed tunnels and kernel=110000 service mme=100000 ");
  query.by = UsageBy::kDestination;
  EXPECT_EQ(rows(), "unnamed tunnels and kernel=110000  =100000 ");
  query.by = UsageBy::kDay;
  EXPECT_EQ(rows(), " 2026-11-01=210000 ");
  query.by = UsageBy::kService;
  // The next day, a process that may not read interfaces records, and then root.
  Wait(86400);
  Count("mme", 1000);
  reading_.links->interfaces[0].counts.tx_bytes += 500;
  const auto links = reading_.links;
  reading_.links.reset();
  EXPECT_EQ(RecordNow(), 1000);
  Wait(60);
  reading_.links = links;
  EXPECT_EQ(RecordNow(), -500);
  query.period = {20261102, 20261102};
  // The rows are known to be right, so the total is theirs. The bug: a row of -500.
  EXPECT_EQ(rows(), "service mme=1000 less 500");
  query.by = UsageBy::kHour;
  EXPECT_EQ(rows(), " 2026-11-02 12:00=1000 less 500");
  query.by = UsageBy::kUplink;
  EXPECT_EQ(rows(), " satellite=1000 less 500");
  query.period = {20261101, 20261102};
  EXPECT_EQ(rows(), " satellite=210500 ");
  query.path = "interface";
  EXPECT_EQ(rows(), " satellite=210500 ");
}

TEST_F(RecordTest, AServiceCalledOverflowIsNotTheOverflow) {
  Count("overflow", 5);
  Series(Kind::kOverflow, "overflow")->tx_bytes = 7;
  RecordNow();
  EXPECT_EQ(Rows(20261101, 20261101), "overflow=7 overflow=5 ");
}

TEST_F(RecordTest, AFailedReadAndAFullDiskLeaveTheHistoryAsItWas) {
  Count("mme", 100);
  RecordNow();
  Count("mme", 1);
  EXPECT_EQ(Record(history_.get(), options_,
                   []() -> absl::StatusOr<Reading> {
                     return absl::NotFoundError("no meter");
                   })
                .status()
                .message(),
            "no meter");
  // SQLITE_FULL, as on a full disk.
  Statement pages = history_->Prepare("PRAGMA page_count");
  ASSERT_TRUE(pages.Step());
  ASSERT_TRUE(
      history_
          ->Execute("PRAGMA max_page_count=" + std::to_string(pages.Integer(0)))
          .ok());
  ASSERT_FALSE(pages.Step());
  const Reading before = reading_;
  for (int i = 0; i < 3000; ++i) Count("name-" + std::to_string(i), 1);
  const auto full = TryRecord();
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
  EXPECT_THAT(full.status().message(), HasSubstr("disk is full"));
  EXPECT_EQ(Total(), 100);
  Open();
  EXPECT_EQ(RecordNow(), 3001);
}

// The bug: the log grew for ever, because each process appended to the log of the
// previous one.
TEST_F(RecordTest, TheLogIsEmptyBetweenRecords) {
  Count("mme", 1);
  RecordNow();
  history_.reset();
  struct stat log = {};
  ASSERT_EQ(stat((path() + "-wal").c_str(), &log), 0);
  EXPECT_EQ(log.st_size, 0);
  EXPECT_EQ(stat((path() + "-shm").c_str(), &log), 0);
}

TEST_F(RecordTest, AHistoryHasOneMeter) {
  options_.pin_dir = "/run/netmeter";
  RecordNow();
  options_.pin_dir = "/run/other";
  EXPECT_THAT(TryRecord().status().message(),
              HasSubstr("is the history of the meter at /run/netmeter: choose "
                        "another --database for /run/other"));
}

TEST_F(RecordTest, WhatIsNoHistoryIsRefusedAndNotTouched) {
  history_.reset();
  const std::string other = directory_ + "/other";
  std::ofstream(other) << "a diary, and long enough to be no empty file\n";
  for (const auto mode : {Database::Mode::kRead, Database::Mode::kCreate}) {
    const auto refused = OpenHistory(other, mode);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()))
        << refused.status();
  }
  unlink(other.c_str());
  EXPECT_THAT(OpenHistory(other, Database::Mode::kRead).status().message(),
              AllOf(HasSubstr("no history at "), HasSubstr("netmeter record")));
  {
    auto database = Database::Open(other, Database::Mode::kCreate);
    ASSERT_TRUE((*database)
                    ->Execute("CREATE TABLE diary(day); CREATE TABLE b(c)")
                    .ok());
  }
  EXPECT_THAT(OpenHistory(other, Database::Mode::kCreate).status().message(),
              HasSubstr("is not a history of netmeter's"));
  unlink(other.c_str());
  Open();
  ASSERT_TRUE(history_->Execute("PRAGMA user_version=8").ok());
  EXPECT_THAT(OpenHistory(path(), Database::Mode::kRead).status().message(),
              HasSubstr("is of a newer version"));
}

// The bug: a successful record was reported as failed if making room failed afterwards.
TEST_F(RecordTest, WhatWasRecordedIsNotSaidToHaveFailed) {
  options_.keep_hours_days = 1;
  Count("mme", 100);
  EXPECT_EQ(RecordNow(), 100);
  ASSERT_TRUE(history_
                  ->Execute("CREATE TRIGGER stop BEFORE DELETE ON hour_traffic "
                            "BEGIN SELECT RAISE(ABORT, 'no room'); END")
                  .ok());
  Wait(2 * 86400);
  Count("mme", 10);
  const auto recorded = TryRecord();
  ASSERT_FALSE(recorded.ok());
  EXPECT_THAT(std::string(recorded.status().message()),
              ::testing::StartsWith("recorded, but "));
  ASSERT_TRUE(history_->Execute("DROP TRIGGER stop").ok());
  EXPECT_EQ(RecordNow(), 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
