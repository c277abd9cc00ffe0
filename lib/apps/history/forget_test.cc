// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/forget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

constexpr char kClient[] = "192.168.155.77";

class ForgetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/forget-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    path_ = name + "/history.db";
    auto history = OpenHistory(path_, Database::Mode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    history_ = *std::move(history);
    ASSERT_TRUE(history_->Execute("PRAGMA synchronous=OFF").ok());
    reading_.now = StartOf(20261101) + 12 * 3600;
    reading_.boottime = 1000;
    reading_.boot_id = "boot";
    reading_.has_forwarded = true;
    options_.keep_hours_days = 3;
    Load();
  }

  // A meter that counts from zero.
  void Load() {
    reading_.start_ns = reading_.boottime * 1000000000 + 5;
    reading_.samples.clear();
    reading_.forwarded.clear();
    for (const char* service : {"mme", "alice"}) {
      Sample sample;
      sample.kind = Kind::kUser;
      sample.name = service;
      sample.destination = "cloud";
      reading_.samples.push_back(sample);
    }
  }
  void CountAndRecord() {
    for (Sample& sample : reading_.samples) sample.tx_bytes += 10;
    reading_.forwarded[{"", "lan0", kClient}].value[0] += 100;
    reading_.forwarded[{"", "lan0", "192.168.155.8"}].value[1] += 1000;
    RecordAfter(3600);
  }
  void RecordAfter(int64_t seconds) {
    reading_.now += seconds;
    reading_.boottime += seconds;
    const auto recorded =
        Record(history_.get(), options_,
               [this]() -> absl::StatusOr<Reading> { return reading_; });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
  }
  Usage Read(UsageBy by) {
    UsageQuery query;
    query.period = {20260101, 20991231};
    query.by = by;
    const auto usage = ReadUsage(history_.get(), query);
    EXPECT_TRUE(usage.ok()) << usage.status();
    return *usage;
  }
  int64_t BytesOf(UsageBy by, const std::string& name) {
    int64_t bytes = 0;
    for (const UsageRow& row : Read(by).rows) {
      if (row.name == name) bytes += row.counters.bytes();
    }
    return bytes;
  }
  bool IsInFile(const std::string& name) const {
    for (const char* end : {"", "-wal"}) {
      std::ifstream file(path_ + end);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (text.find(name) != text.npos) return true;
    }
    return false;
  }
  Forgotten ForgetClient(int64_t sent = kAllIsSent) {
    const auto forgotten =
        Forget(history_.get(), ForgetWhat::kDestination, kClient, sent);
    EXPECT_TRUE(forgotten.ok()) << forgotten.status();
    return *forgotten;
  }

  std::string path_;
  std::unique_ptr<Database> history_;
  Reading reading_;
  RecordOptions options_;
};

TEST_F(ForgetTest, TheBytesStayAndTheNameGoes) {
  for (int hour = 0; hour < 6 * 24; ++hour) CountAndRecord();
  for (const UsageBy by : {UsageBy::kDay, UsageBy::kHour, UsageBy::kService}) {
    const Usage before = Read(by);
    ForgetClient();
    const Usage after = Read(by);
    EXPECT_EQ(before.sum.value, after.sum.value);
    ASSERT_EQ(before.rows.size(), after.rows.size());
    for (size_t i = 0; i < before.rows.size(); ++i) {
      EXPECT_EQ(before.rows[i].name, after.rows[i].name);
      EXPECT_EQ(before.rows[i].counters.value, after.rows[i].counters.value);
    }
    CountAndRecord();
    CountAndRecord();
  }
  EXPECT_EQ(BytesOf(UsageBy::kDestination, "192.168.155.8"), 150 * 1000);
  EXPECT_EQ(BytesOf(UsageBy::kDestination, kForgotten), 148 * 100);
  // What it counted since.
  EXPECT_EQ(BytesOf(UsageBy::kDestination, kClient), 200);
  // The meter counts under the name, and would be recorded anew without it.
  EXPECT_TRUE(ForgetClient().in_meter);
  EXPECT_TRUE(IsInFile(kClient));
  EXPECT_EQ(BytesOf(UsageBy::kDestination, kForgotten), 150 * 100);
  const Reading former = reading_;
  Load();
  RecordAfter(60);
  EXPECT_FALSE(ForgetClient().in_meter);
  EXPECT_FALSE(IsInFile(kClient));
  EXPECT_TRUE(IsInFile("192.168.155.8"));
  EXPECT_EQ(BytesOf(UsageBy::kDestination, kForgotten), 150 * 100);
  // `record --clients mac` leaves a client's address without rows.
  ASSERT_TRUE(
      history_
          ->Execute("INSERT INTO series(kind, name, destination, "
                    "transport, path, uplink) VALUES('forwarded', 'lan0', "
                    "'192.168.155.9', '', 'direct', '')")
          .ok());
  EXPECT_EQ(
      absl::StatusCode::kNotFound,
      Forget(history_.get(), ForgetWhat::kDestination, kClient, kAllIsSent)
          .status()
          .code());
  EXPECT_FALSE(IsInFile("192.168.155.9"));
  // Should the former meter be read again, its name comes back, and no byte twice.
  reading_ = former;
  CountAndRecord();
  EXPECT_EQ(Read(UsageBy::kService).sum.bytes(), 151 * (100 + 1000 + 2 * 10));
}

TEST_F(ForgetTest, AReaderKeepsTheNameInTheFileUntilItEnds) {
  CountAndRecord();
  Load();
  RecordAfter(60);
  auto writer =
      OpenHistory(path_, Database::Mode::kWrite, std::chrono::milliseconds(50));
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(history_->Execute("BEGIN; SELECT * FROM series").ok());
  const auto forget = [&writer] {
    return Forget(writer->get(), ForgetWhat::kDestination, kClient, kAllIsSent)
        .status();
  };
  EXPECT_EQ(forget().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsInFile(kClient));
  ASSERT_TRUE(history_->Execute("COMMIT").ok());
  EXPECT_EQ(forget().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsInFile(kClient));
}

TEST_F(ForgetTest, AServiceIsForgottenAndAnInterfaceStays) {
  for (int hour = 0; hour < 3; ++hour) CountAndRecord();
  const auto forgotten =
      Forget(history_.get(), ForgetWhat::kService, "alice", kAllIsSent);
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  EXPECT_EQ(forgotten->rows, 3);
  EXPECT_EQ(forgotten->bytes, 30);
  EXPECT_EQ(BytesOf(UsageBy::kService, "alice"), 0);
  EXPECT_EQ(BytesOf(UsageBy::kService, kForgotten), 30);
  EXPECT_EQ(BytesOf(UsageBy::kDestination, "cloud"), 60);
  const auto interface =
      Forget(history_.get(), ForgetWhat::kService, "lan0", kAllIsSent);
  EXPECT_THAT(interface.status().ToString(),
              HasSubstr("history.db has no service 'lan0'"));
  EXPECT_EQ(BytesOf(UsageBy::kService, "lan0"), 3300);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
