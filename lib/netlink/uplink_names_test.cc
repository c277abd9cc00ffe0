// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/uplink_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const Uplinks& uplinks) {
  return std::string(CheckUplinks(uplinks).message());
}

TEST(UplinkNames, TheNameItselfGoesBeforeTheLongestPattern) {
  const Uplinks uplinks = {{"satellite", {"sat0", "wwan*"}},
                           {"backup", {"wwan1", "ww*"}},
                           {"rest", {"*"}}};
  ASSERT_TRUE(CheckUplinks(uplinks).ok());
  EXPECT_EQ(FindUplink(uplinks, "sat0"), "satellite");
  EXPECT_EQ(FindUplink(uplinks, "sat01"), "rest");
  EXPECT_EQ(FindUplink(uplinks, "wwan"), "satellite");
  EXPECT_EQ(FindUplink(uplinks, "wwan0"), "satellite");
  EXPECT_EQ(FindUplink(uplinks, "wwan1"), "backup");
  EXPECT_EQ(FindUplink(uplinks, "wwp3s0"), "backup");
  EXPECT_EQ(FindUplink({{"lan", {"eth1"}}}, "eth10"), "other");
}

// The bug: the alternative name of an interface, which may be longer than 15 bytes,
// matched no uplink.
TEST(UplinkNames, AnAlternativeNameIsAsGoodAsTheNameItself) {
  const std::string dish = "the-satellite-dish-on-the-roof";
  const Uplinks uplinks = {
      {"satellite", {dish}}, {"lte", {"modem*"}}, {"rest", {"e*"}}};
  ASSERT_TRUE(CheckUplinks(uplinks).ok());
  EXPECT_EQ(FindUplink(uplinks, "eth0", {"x", dish}), "satellite");
  EXPECT_EQ(FindUplink(uplinks, "eth0", {"modem-of-the-car"}), "lte");
  EXPECT_EQ(FindUplink(uplinks, "eth0", {"x"}), "rest");
  EXPECT_EQ(FindUplink({{"a", {"eth0"}}, {"b", {dish}}}, "eth0", {dish}), "a");
  EXPECT_FALSE(FitsInterfaceName(dish));
  EXPECT_TRUE(FitsInterfaceName("fifteen_bytes_x*"));
}

TEST(UplinkNames, AKeyHasTheNulOfANameAndNotThatOfAPattern) {
  const nm_uplink_key name = UplinkKey("sat0");
  EXPECT_EQ(name.bits, 8u * 5);
  EXPECT_STREQ(name.name, "sat0");
  const nm_uplink_key pattern = UplinkKey("sat0*");
  EXPECT_EQ(pattern.bits, 8u * 4);
  EXPECT_EQ(UplinkKey("*").bits, 0u);
  EXPECT_EQ(UplinkKey("fifteen_bytes_x").bits, 8u * 16);
}

TEST(UplinkNames, WhatNoInterfaceIsCalledIsRefused) {
  EXPECT_THAT(ErrorOf({{"lan", {}}}),
              HasSubstr("lan: expected a list, such as [sat0]"));
  EXPECT_THAT(ErrorOf({{"other", {"eth0"}}}), HasSubstr("choose another"));
  for (const std::string& pattern :
       std::vector<std::string>{"", "a b", "a/b", "w*n0", "**", ".", "..",
                                std::string(128, 'x'), "eth?"}) {
    EXPECT_THAT(ErrorOf({{"lan", {pattern}}}), HasSubstr("expected the name"))
        << pattern;
  }
  EXPECT_THAT(ErrorOf({{"a", {"eth0"}}, {"b", {"eth0"}}}),
              HasSubstr("eth0 appears twice"));
  Uplinks many;
  for (int i = 0; i <= NM_MAX_UPLINKS; ++i) {
    many[std::to_string(i)] = {"eth" + std::to_string(i)};
  }
  EXPECT_THAT(ErrorOf(many), HasSubstr("at most 14"));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
