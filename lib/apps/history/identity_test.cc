// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lib/apps/history/history.h"
#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

class IdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/identity-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    path_ = name + "/history.db";
    history_ = Open(path_, Database::Mode::kCreate);
  }

  static std::unique_ptr<Database> Open(const std::string& path,
                                        Database::Mode mode) {
    auto history = OpenHistory(path, mode);
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : nullptr;
  }

  void RecordBytes(uint64_t bytes) {
    const auto recorded =
        Record(history_.get(), {}, [bytes]() -> absl::StatusOr<Reading> {
          Reading reading;
          reading.now = 1764000000;
          reading.boottime = 1000;
          reading.boot_id = "boot";
          reading.samples.resize(1);
          reading.samples[0].name = "mme";
          reading.samples[0].tx_bytes = bytes;
          return reading;
        });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
  }
  std::string Keep(const std::string& machine, bool adopt = false) {
    const auto aside = KeepToMachine(history_.get(), machine, adopt);
    EXPECT_TRUE(aside.ok()) << aside.status();
    return aside.ok() ? *aside : "failed";
  }
  static std::string Id(Database* history) {
    const auto id = ReadHostId(history);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : "";
  }
  static int64_t Bytes(Database* history) {
    UsageQuery query;
    query.period = {20000101, 20991231};
    const auto usage = ReadUsage(history, query);
    EXPECT_TRUE(usage.ok()) << usage.status();
    return usage.ok() ? usage->sum.bytes() : -1;
  }

  std::string path_;
  std::unique_ptr<Database> history_;
};

TEST_F(IdentityTest, AHistoryKeepsItsIdOnItsMachine) {
  const std::string id = Id(history_.get());
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(Keep("box-1"), "");
  RecordBytes(10);
  EXPECT_EQ(Keep("box-1"), "");
  EXPECT_EQ(Keep(""), "");  // a machine without a number
  history_ = Open(path_, Database::Mode::kCreate);
  EXPECT_EQ(Id(history_.get()), id);
  EXPECT_EQ(Bytes(history_.get()), 10);
}

TEST_F(IdentityTest, ACloneBeginsAHistoryOfItsOwn) {
  EXPECT_EQ(Keep("box-1"), "");
  RecordBytes(10);
  const std::string id = Id(history_.get());
  const std::string aside = Keep("box-2");
  EXPECT_EQ(aside, path_ + "." + id.substr(0, 8));
  EXPECT_NE(Id(history_.get()), id);
  EXPECT_EQ(Bytes(history_.get()), 0);
  EXPECT_EQ(Keep("box-2"), "");
  RecordBytes(3);
  EXPECT_EQ(Bytes(history_.get()), 3);
  // What the former machine had is still there.
  const auto former = Open(aside, Database::Mode::kRead);
  EXPECT_EQ(Id(former.get()), id);
  EXPECT_EQ(Bytes(former.get()), 10);
}

// The bug: the second one overwrote the copy with the emptied history.
TEST_F(IdentityTest, TwoRecordsAtOnceMakeOneCopy) {
  EXPECT_EQ(Keep("box-1"), "");
  RecordBytes(10);
  std::vector<std::thread> records;
  std::atomic<int> copies = 0;
  std::string name;
  for (int i = 0; i < 8; ++i) {
    records.emplace_back([&] {
      const auto history = Open(path_, Database::Mode::kCreate);
      const auto aside = KeepToMachine(history.get(), "box-2", false);
      ASSERT_TRUE(aside.ok()) << aside.status();
      if (aside->empty()) return;
      ++copies;
      name = *aside;
    });
  }
  for (std::thread& record : records) record.join();
  EXPECT_EQ(copies, 1);
  const auto former = Open(name, Database::Mode::kRead);
  EXPECT_EQ(Bytes(former.get()), 10);
}

// As docs/history.md says, under "Another machine".
TEST_F(IdentityTest, AFilePutAsideBecomesTheHistoryAgain) {
  EXPECT_EQ(Keep("box-1"), "");
  RecordBytes(10);
  const std::string aside = Keep("box-2");
  history_.reset();
  unlink((path_ + "-wal").c_str());
  unlink((path_ + "-shm").c_str());
  ASSERT_EQ(rename(aside.c_str(), path_.c_str()), 0);
  history_ = Open(path_, Database::Mode::kCreate);
  EXPECT_EQ(Keep("box-2", /*adopt=*/true), "");
  RecordBytes(13);
  EXPECT_EQ(Bytes(history_.get()), 13);
  // The bug: a reader of this file kept records waiting.
  const auto reader = Open(path_, Database::Mode::kRead);
  ASSERT_TRUE(reader->Execute("BEGIN; SELECT * FROM series").ok());
  RecordBytes(14);
}

TEST_F(IdentityTest, AnAdoptedHistoryGoesOn) {
  EXPECT_EQ(Keep("box-1"), "");
  RecordBytes(10);
  const std::string id = Id(history_.get());
  EXPECT_EQ(Keep("box-2", /*adopt=*/true), "");
  EXPECT_EQ(Keep("box-2"), "");
  EXPECT_EQ(Id(history_.get()), id);
  EXPECT_EQ(Bytes(history_.get()), 10);
}

TEST_F(IdentityTest, VersionsGrowWhateverTheClockDoes) {
  auto first = NextVersion(history_.get(), 1764000000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, 1764000000);
  EXPECT_EQ(*NextVersion(history_.get(), 1764000000), 1764000001);
  EXPECT_EQ(*NextVersion(history_.get(), 5), 1764000002);
  EXPECT_EQ(*NextVersion(history_.get(), 1764000100), 1764000100);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
