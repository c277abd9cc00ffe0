// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/interfaces.h"

#include <gtest/gtest.h>

namespace netmeter {
namespace internal {
namespace {

TEST(Interfaces, AreThoseOfThisNamespace) {
  const auto all = ListInterfaces();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_FALSE(all->empty());
  EXPECT_EQ((*all)[0].index, kLoopbackIndex);
  EXPECT_EQ((*all)[0].name, "lo");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
