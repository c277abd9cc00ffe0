// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

SeriesName Name(const std::string& kind, const std::string& name,
                const std::string& destination = "") {
  return {kind, name, destination, "tcp", "direct", ""};
}

Counters Bytes(int64_t tx) {
  Counters counters;
  counters.value[0] = tx;
  counters.value[2] = tx / 10;
  return counters;
}

Counters Sum(const Totals& totals) {
  Counters sum;
  for (const auto& series : totals) sum += series.second;
  return sum;
}

TEST(Difference, IsWhatEachSeriesHasGrownBy) {
  const Totals before = {{Name("service", "a"), Bytes(100)},
                         {Name("service", "b"), Bytes(7)}};
  const Totals now = {{Name("service", "a"), Bytes(150)},
                      {Name("service", "b"), Bytes(7)},
                      {Name("binary", "curl"), Bytes(10)}};
  const Totals expected = {{Name("service", "a"), Bytes(50)},
                           {Name("binary", "curl"), Bytes(10)}};
  EXPECT_EQ(Difference(before, now), expected);
}

// Pending bytes were recorded before, and now belong to the destination.
TEST(Difference, OfPendingIsBelowZeroWhenItsConnectionIsNamed) {
  const Totals before = {{Name("pending", "a"), Bytes(100)}};
  const Totals now = {{Name("service", "a", "cloud"), Bytes(130)}};
  const Totals expected = {{Name("pending", "a"), Bytes(-100)},
                           {Name("service", "a", "cloud"), Bytes(130)}};
  EXPECT_EQ(Difference(before, now), expected);
}

TEST(Difference, OfASeriesThatWasEvictedIsNotCountedTwice) {
  const Totals before = {{Name("service", "a"), Bytes(100)},
                         {Name("evicted", "service"), Bytes(1000)}};
  const Totals now = {{Name("evicted", "service"), Bytes(1100)}};
  EXPECT_EQ(Difference(before, now), Totals());
}

TEST(Difference, OfASeriesThatCameBackIsWhatItHasSince) {
  const Totals before = {{Name("service", "a"), Bytes(100)}};
  // The series counted 20 more, was evicted, and then counted 30.
  const Totals now = {{Name("service", "a"), Bytes(30)},
                      {Name("evicted", "service"), Bytes(120)}};
  const Totals expected = {{Name("service", "a"), Bytes(30)},
                           {Name("evicted", "service"), Bytes(20)}};
  EXPECT_EQ(Difference(before, now), expected);
}

TEST(Difference, OfASeriesThatWasRenamedMovesToItsNewName) {
  const Totals before = {{Name("service", "a", "cloud.example.com"), Bytes(50)},
                         {Name("evicted", "service"), Bytes(20)}};
  const Totals now = {{Name("service", "a", "cloud"), Bytes(60)},
                      {Name("evicted", "service"), Bytes(30)}};
  const Totals expected = {
      {Name("service", "a", "cloud.example.com"), Bytes(-50)},
      {Name("service", "a", "cloud"), Bytes(60)},
      {Name("evicted", "service"), Bytes(10)}};
  EXPECT_EQ(Difference(before, now), expected);
}

// One load did both. The bug: it did not report an eviction.
TEST(Difference, OfARenameAndAnEvictionTellsThemApart) {
  const Totals before = {{Name("service", "a", "cloud.example.com"), Bytes(50)},
                         {Name("service", "b"), Bytes(70)},
                         {Name("evicted", "service"), Bytes(20)}};
  const Totals now = {{Name("service", "a", "cloud"), Bytes(60)},
                      {Name("evicted", "service"), Bytes(90)}};
  EXPECT_EQ(EvictedBetween(before, now),
            std::set<SeriesName>{Name("service", "b")});
  const Totals expected = {
      {Name("service", "a", "cloud.example.com"), Bytes(-50)},
      {Name("service", "a", "cloud"), Bytes(60)}};
  EXPECT_EQ(Difference(before, now), expected);
}

// Any change may happen between two reads of a meter with few series: the differences
// always add up to the meter's total.
TEST(Difference, AddsUpToTheTotalWhateverHappens) {
  std::mt19937 random(15);
  const auto below = [&random](uint32_t end) { return random() % end; };
  for (int run = 0; run < 200; ++run) {
    Totals meter, last;
    Counters recorded;
    for (int step = 0; step < 60; ++step) {
      const std::string name(1, static_cast<char>('a' + below(5)));
      const SeriesName service = Name("service", name, below(2) ? "x" : "y");
      const SeriesName pending = Name("pending", name);
      switch (below(5)) {
        case 0:
        case 1:
          meter[service] += Bytes(below(1000));
          break;
        case 2:
          meter[pending] += Bytes(below(1000));
          break;
        case 3:  // named
          meter[service] += meter[pending];
          meter.erase(pending);
          break;
        case 4:
          meter[Name("evicted", "service")] += meter[service];
          meter.erase(service);
          break;
      }
      if (below(3) != 0) continue;
      recorded += Sum(Difference(last, meter));
      last = meter;
      ASSERT_EQ(recorded.value, Sum(meter).value) << run << " " << step;
    }
  }
}

TEST(Difference, TotalsSumWhatHasTheSameTextAndLeaveOutNothingness) {
  Sample sample;
  sample.kind = Kind::kService;
  sample.name = "\xff";
  sample.tx_bytes = 5;
  Sample escaped = sample;
  escaped.name = "\\xff";
  Sample nothing = sample;
  nothing.name = "idle";
  nothing.tx_bytes = 0;
  const Totals totals = TotalsOf({sample, escaped, nothing});
  ASSERT_EQ(totals.size(), 1u);
  EXPECT_EQ(totals.begin()->first.name, "\\xff");
  EXPECT_EQ(totals.begin()->second.tx_bytes(), 10);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
