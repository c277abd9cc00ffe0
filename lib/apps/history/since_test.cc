// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/since.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "lib/apps/history/calendar.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

TEST(Since, IsAMomentOrATimeBefore) {
  setenv("TZ", "Europe/Berlin", 1);
  tzset();
  const int64_t now = StartOf(20261122) + 14 * 3600 + 59;
  EXPECT_EQ(*ParseSince("2026-11-22", now), StartOf(20261122));
  EXPECT_EQ(*ParseSince("2026-11-21 13:05", now),
            StartOf(20261121) + 13 * 3600 + 300);
  EXPECT_EQ(*ParseSince("9:30", now), StartOf(20261122) + 9 * 3600 + 1800);
  EXPECT_EQ(*ParseSince("90m", now), now - 5400);
  EXPECT_EQ(*ParseSince("3d", now), now - 3 * 86400);
  for (const char* text :
       {"", "soon", "2h ago", "25:00", "9:5", "-2h", "h", "2026-11-22 ",
        "2026-11-22 1:00 x", "99999999999999999999d", "15:00", "2026-11-23"}) {
    EXPECT_FALSE(ParseSince(text, now).ok()) << text;
  }
}

// Clocks went from 2:00 to 3:00, or back. The bug: 13:00 was taken as thirteen hours
// after midnight, which is then 14:00 or 12:00.
TEST(Since, IsWhatClocksShowAlsoWhereTheyAreChanged) {
  setenv("TZ", "Europe/Berlin", 1);
  tzset();
  for (const Day day : {20260329, 20261025}) {
    const int64_t evening = StartOf(AddDays(day, 1)) - 3600;
    for (const std::string& text :
         {std::string("13:00"), FormatDay(day) + " 13:00"}) {
      const auto since = ParseSince(text, evening);
      ASSERT_TRUE(since.ok()) << since.status();
      EXPECT_EQ(FormatTime(*since), FormatDay(day) + " 13:00");
    }
  }
}

TEST(Since, AddsTheHistoryAndWhatIsNotRecordedYet) {
  setenv("TZ", "UTC", 1);
  tzset();
  const std::string path =
      testing::TempDir() + "/since-" + std::to_string(getpid());
  auto history = OpenHistory(path, Database::Mode::kCreate);
  ASSERT_TRUE(history.ok()) << history.status();
  Reading reading;
  reading.boot_id = "boot";
  reading.samples.resize(2);
  reading.samples[0].kind = Kind::kService;
  reading.samples[0].name = "mme";
  reading.samples[0].path = Path::kProxy;
  reading.samples[1].kind = Kind::kPending;
  reading.samples[1].name = "mme";
  reading.samples[1].transport = Transport::kTcp;
  reading.now = StartOf(20261122) + 1800;
  RecordOptions options;
  options.keep_hours_days = 2;
  const auto record = [&] {
    ASSERT_TRUE(
        Record(history->get(), options, [&]() -> absl::StatusOr<Reading> {
          return reading;
        }).ok());
  };
  for (int hour = 0; hour < 4 * 24; ++hour) {
    record();
    reading.now += 3600;
    reading.boottime += 3600;
    reading.samples[0].tx_bytes += 10;
    reading.samples[1].rx_bytes = hour % 2 == 0 ? 7 : 0;
  }
  // Not recorded: the last 10, and a decrease of 7 in pending traffic.
  const auto sum = [&](int64_t since) {
    const auto read =
        ReadSince(history->get(), since,
                  [&]() -> absl::StatusOr<Reading> { return reading; });
    EXPECT_TRUE(read.ok()) << read.status();
    std::string text = FormatTime(read->begin);
    for (const Sample& sample : read->samples) {
      EXPECT_EQ(sample.name, "mme");
      EXPECT_EQ(sample.path,
                sample.kind == Kind::kService ? Path::kProxy : Path::kDirect);
      text += std::string(" ") + KindName(sample.kind) + " " +
              std::to_string(static_cast<int64_t>(sample.tx_bytes)) + " " +
              std::to_string(static_cast<int64_t>(sample.rx_bytes));
    }
    return text;
  };
  EXPECT_EQ(sum(reading.now - 3600), "2026-11-25 23:00 service 20 0");
  EXPECT_EQ(sum(StartOf(20261125)),
            "2026-11-25 00:00 pending 0 -7 service 250 0");
  // For a day whose hours are gone, the whole day is read.
  EXPECT_EQ(sum(StartOf(20261123) + 43200),
            "2026-11-23 00:00 pending 0 -7 service 730 0");
  // Another meter, which was never recorded. The bug: its traffic since its load was
  // reported as traffic since that day.
  reading.start_ns =
      (reading.boottime - (reading.now - StartOf(20261124) - 60)) * 1000000000;
  EXPECT_EQ(sum(StartOf(20261125)), "2026-11-24 00:01 service 1200 0");
  for (const char* end : {"", "-wal", "-shm"}) unlink((path + end).c_str());
}

// The bug: the meter was read before the file. A record made in between was newer than
// the read, so the series looked evicted, and its whole total was counted.
TEST(Since, ARecordThatComesMeanwhileChangesNothing) {
  setenv("TZ", "UTC", 1);
  tzset();
  const std::string path =
      testing::TempDir() + "/since-meanwhile-" + std::to_string(getpid());
  auto history = OpenHistory(path, Database::Mode::kCreate);
  auto other = OpenHistory(path, Database::Mode::kCreate);
  ASSERT_TRUE(history.ok() && other.ok());
  Reading reading;
  reading.boot_id = "boot";
  reading.samples.resize(1);
  reading.samples[0].kind = Kind::kService;
  reading.samples[0].name = "mme";
  reading.samples[0].tx_bytes = 1000000;
  reading.now = StartOf(20261122) + 1800;
  const auto record = [&] {
    ASSERT_TRUE(
        Record(other->get(), RecordOptions(), [&]() -> absl::StatusOr<Reading> {
          return reading;
        }).ok());
  };
  record();
  reading.now += 3 * 3600 + 1000;
  reading.boottime += 3 * 3600 + 1000;
  const auto read =
      ReadSince(history->get(), reading.now, [&]() -> absl::StatusOr<Reading> {
        reading.samples[0].tx_bytes += 5;
        const Reading seen = reading;
        reading.samples[0].tx_bytes += 5;
        record();
        return seen;
      });
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->samples.size(), 1u);
  EXPECT_EQ(read->samples[0].tx_bytes, 5u);
  // The beginning is known only from the last record.
  EXPECT_EQ(FormatTime(read->begin), "2026-11-22 00:30");
  for (const char* end : {"", "-wal", "-shm"}) unlink((path + end).c_str());
}

// The bug: a host that only forwards had "nothing counted yet".
TEST(Since, HasForwardedTrafficAlsoForReadersThatMayNotReadItsMap) {
  const std::string path =
      testing::TempDir() + "/since-forwarded-" + std::to_string(getpid());
  auto history = OpenHistory(path, Database::Mode::kCreate);
  ASSERT_TRUE(history.ok()) << history.status();
  Reading reading;
  reading.boot_id = "boot";
  reading.now = StartOf(20261122) + 1800;
  reading.has_forwarded = true;
  reading.forwarded[{"wan", "br0", "10.0.0.2"}].value = {1000, 70, 1, 1};
  const auto read = [&]() -> absl::StatusOr<Reading> { return reading; };
  ASSERT_TRUE(Record(history->get(), RecordOptions(), read).ok());
  reading.forwarded[{"wan", "br0", "10.0.0.2"}].value = {1500, 70, 2, 1};
  for (const uint64_t bytes : {1500u, 1000u}) {
    const auto since = ReadSince(history->get(), reading.now, read);
    ASSERT_TRUE(since.ok()) << since.status();
    ASSERT_EQ(since->samples.size(), 1u);
    const Sample& sample = since->samples[0];
    EXPECT_EQ(sample.kind, kForwardedRow);
    EXPECT_EQ(sample.name, "br0");
    EXPECT_EQ(sample.destination, "10.0.0.2");
    EXPECT_EQ(sample.uplink, "wan");
    EXPECT_EQ(sample.tx_bytes, bytes);
    reading.has_forwarded = false;  // not root
  }
  for (const char* end : {"", "-wal", "-shm"}) unlink((path + end).c_str());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
