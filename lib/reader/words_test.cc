// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace netmeter {
namespace internal {
namespace {

constexpr int kMoreThanThereAre = 64;

// Every kind with a word is in the list, and every entry of the list has its own word.
TEST(WordsTest, TheListsAreComplete) {
  std::set<std::string> kinds, transports;
  for (int i = -1; i < kMoreThanThereAre; ++i) {
    kinds.insert(KindName(static_cast<Kind>(i)));
    transports.insert(TransportName(static_cast<Transport>(i)));
  }
  std::set<std::string> listed_kinds = {"unknown"};
  for (const std::string& kind : KindNames()) {
    EXPECT_TRUE(listed_kinds.insert(kind).second) << kind;
  }
  EXPECT_EQ(listed_kinds, kinds);
  std::set<std::string> listed_transports = {"unknown"};
  for (const Transport transport : kAllTransports) {
    EXPECT_TRUE(listed_transports.insert(TransportName(transport)).second);
  }
  EXPECT_EQ(listed_transports, transports);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
