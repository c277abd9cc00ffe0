// SPDX-License-Identifier: BSD-3-Clause
// Tests a struct of a later version, because no struct of the C API has grown yet.
#include "lib/base/sized.h"

#include <gtest/gtest.h>
#include <stdint.h>
#include <string.h>

namespace netmeter {
namespace internal {
namespace {

struct Grown {
  size_t size;
  uint64_t first;   // version 1.0 ends here
  uint64_t second;  // version 1.1 ends here
  uint64_t third;
};
constexpr size_t kFirstSize = offsetof(Grown, second);

// The caller's struct, and the memory behind it.
struct Callers {
  Grown known;
  uint64_t more;
};

Callers CallersOf(size_t size) {
  Callers callers;
  memset(&callers, 0xff, sizeof(callers));
  callers.known.size = size;
  return callers;
}

constexpr uint64_t kUntouched = UINT64_MAX;

TEST(SizedTest, AProgramOfAnyVersionGetsWhatItHas) {
  const size_t between = offsetof(Grown, third);
  for (const size_t size : {kFirstSize, between, sizeof(Callers)}) {
    Callers callers = CallersOf(size);
    ASSERT_TRUE(
        FillSized(Grown{sizeof(Grown), 1, 2, 3}, kFirstSize, &callers.known));
    EXPECT_EQ(callers.known.size, size);
    EXPECT_EQ(callers.known.first, 1u);
    EXPECT_EQ(callers.known.second, size >= between ? 2u : kUntouched);
    EXPECT_EQ(callers.known.third, size > between ? 3u : kUntouched);
    // What a newer program knows more is zero.
    EXPECT_EQ(callers.more, size > between ? 0u : kUntouched);
  }
}

TEST(SizedTest, OptionsOfAnySizeAreTakenAsFarAsTheyGo) {
  const Grown defaults = {sizeof(Grown), 7, 8, 9};
  Callers callers = CallersOf(offsetof(Grown, third));
  callers.known.first = 1;
  callers.known.second = 2;
  Grown taken = defaults;
  ASSERT_TRUE(TakeSized(&callers.known, kFirstSize, &taken));
  EXPECT_EQ(taken.first, 1u);
  EXPECT_EQ(taken.second, 2u);
  EXPECT_EQ(taken.third, 9u);
  callers.known.size = sizeof(callers);
  callers.known.third = 3;
  taken = defaults;
  ASSERT_TRUE(TakeSized(&callers.known, kFirstSize, &taken));
  EXPECT_EQ(taken.third, 3u);
}

TEST(SizedTest, WhatIsShorterThanVersionOneIsRefused) {
  Callers callers = CallersOf(kFirstSize - 1);
  EXPECT_FALSE(
      FillSized(Grown{sizeof(Grown), 1, 2, 3}, kFirstSize, &callers.known));
  EXPECT_EQ(callers.known.first, kUntouched);
  Grown taken = {sizeof(Grown), 7, 8, 9};
  EXPECT_FALSE(TakeSized(&callers.known, kFirstSize, &taken));
  EXPECT_EQ(taken.first, 7u);
  // The bug: if the size was not set, zeros were written behind the struct.
  callers.known.size = SIZE_MAX;
  EXPECT_FALSE(
      FillSized(Grown{sizeof(Grown), 1, 2, 3}, kFirstSize, &callers.known));
  EXPECT_FALSE(TakeSized(&callers.known, kFirstSize, &taken));
  EXPECT_EQ(callers.known.first, kUntouched);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
