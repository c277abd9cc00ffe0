// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/reverse_names.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <future>

namespace netmeter {
namespace internal {
namespace {

ReverseNames::Address Ipv4(uint8_t last) {
  return {AF_INET, {192, 0, 2, last}};
}

TEST(ReverseNames, AsksOnceAndNeverBlocks) {
  std::promise<void> answers;
  std::shared_future<void> answer(answers.get_future());
  std::atomic<int> asked{0};
  ReverseNames names([&asked, answer](const ReverseNames::Address& address) {
    asked++;
    answer.wait();
    return address.second[3] == 7 ? "seven.example" : "";
  });
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(names.Find(Ipv4(7)), "");
    EXPECT_EQ(names.Find(Ipv4(8)), "");
  }
  names.Wait(std::chrono::milliseconds(1));
  EXPECT_EQ(names.Find(Ipv4(7)), "");
  answers.set_value();
  names.Wait(std::chrono::minutes(1));
  EXPECT_EQ(names.Find(Ipv4(7)), "seven.example");
  EXPECT_EQ(names.Find(Ipv4(8)), "");  // it has no name
  EXPECT_EQ(asked, 2);
}

TEST(ReverseNames, ItsEndWaitsForNoAnswer) {
  std::promise<void> answers;
  std::shared_future<void> answer(answers.get_future());
  {
    ReverseNames names([answer](const ReverseNames::Address&) {
      answer.wait();
      return "late.example";
    });
    EXPECT_EQ(names.Find(Ipv4(1)), "");
  }
  answers.set_value();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
