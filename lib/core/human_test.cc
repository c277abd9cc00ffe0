// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/human.h"

#include <gtest/gtest.h>

#include <limits>

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

TEST(HumanBytes, UsesPowersOf1024) {
  EXPECT_EQ(HumanBytes(0, SizeUnits::kBinary), "0 B");
  EXPECT_EQ(HumanBytes(1023, SizeUnits::kBinary), "1023 B");
  EXPECT_EQ(HumanBytes(1024, SizeUnits::kBinary), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1536, SizeUnits::kBinary), "1.5 KiB");
  EXPECT_EQ(HumanBytes(5 << 20, SizeUnits::kBinary), "5.0 MiB");
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kBinary), "16.0 EiB");
}

TEST(HumanBytes, UsesPowersOf1000) {
  EXPECT_EQ(HumanBytes(0, SizeUnits::kDecimal), "0 B");
  EXPECT_EQ(HumanBytes(999, SizeUnits::kDecimal), "999 B");
  EXPECT_EQ(HumanBytes(1000, SizeUnits::kDecimal), "1.0 kB");
  EXPECT_EQ(HumanBytes(100000000000, SizeUnits::kDecimal), "100.0 GB");
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kDecimal), "18.4 EB");
}

TEST(HumanBytes, NeverSaysAWholeUnitOfTheOneBelow) {
  EXPECT_EQ(HumanBytes((1 << 20) - 1, SizeUnits::kBinary), "1.0 MiB");
  EXPECT_EQ(HumanBytes((uint64_t{1} << 40) - 1, SizeUnits::kBinary), "1.0 TiB");
  EXPECT_EQ(HumanBytes(999999, SizeUnits::kDecimal), "1.0 MB");
}

TEST(HumanBytes, KeepsEveryDigit) {
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kExact), "18446744073709551615");
}

TEST(HumanSignedBytes, HasASign) {
  EXPECT_EQ(HumanSignedBytes(1536, SizeUnits::kBinary), "1.5 KiB");
  EXPECT_EQ(HumanSignedBytes(-1536, SizeUnits::kBinary), "-1.5 KiB");
  EXPECT_EQ(HumanSignedBytes(-1536, SizeUnits::kExact), "-1536");
  EXPECT_EQ(HumanSignedBytes(std::numeric_limits<int64_t>::min(),
                             SizeUnits::kDecimal),
            "-9.2 EB");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
