// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/consistent_read.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "lib/testing/fake_meter.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

class ConsistentReadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/netmeter-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    pin_dir_ = name;
    ASSERT_EQ(MountBpffs(pin_dir_), "");
    kernel_ = std::make_unique<FakeMeter>(FakeMeter::Options());
    ASSERT_EQ(kernel_->error(), "");
    ASSERT_EQ(kernel_->Pin(pin_dir_), "");
    MeterOptions options;
    options.pin_dir = pin_dir_;
    auto meter = Meter::Open(options);
    ASSERT_TRUE(meter.ok()) << meter.status();
    meter_ = *std::move(meter);
  }
  void TearDown() override {
    EXPECT_EQ(umount2(pin_dir_.c_str(), MNT_DETACH), 0);
    EXPECT_EQ(rmdir(pin_dir_.c_str()), 0);
  }

  std::string pin_dir_;
  std::unique_ptr<FakeMeter> kernel_;
  std::unique_ptr<Meter> meter_;
};

// The bug: `netmeter record` read the meter's identity, and then its totals. After an
// unload and a load in between, it booked the totals of the new meter under the old one.
TEST_F(ConsistentReadTest, IsMadeAgainWhereTheMeterWasReplaced) {
  int reads = 0;
  Health health;
  const absl::Status read = ReadConsistently(
      *meter_,
      [&] {
        if (++reads == 1) kernel_->info()->created_ns = 77;
        return absl::OkStatus();
      },
      &health);
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(health.start_time_ns, 77u);
}

TEST_F(ConsistentReadTest, EndsWhereTheMeterIsReplacedAllTheTime) {
  Health health;
  const absl::Status read = ReadConsistently(
      *meter_,
      [&] {
        ++kernel_->info()->loaded_ns;
        return absl::OkStatus();
      },
      &health);
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
