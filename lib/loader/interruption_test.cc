// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/interruption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;

// The calls of a command that names so many processes, with two calls for each.
std::vector<std::string> Calls(size_t processes) {
  std::vector<std::string> calls = {"flock", "openat", "write", "rename"};
  calls.insert(calls.end(), 2 * processes, "bpf(2)");
  for (const char* call : {"chown", "chmod", "chown", "rename"}) {
    calls.push_back(call);
  }
  return calls;
}

TEST(InterruptionTest, ASampleIsSpreadEvenlyOverCallsOfDifferentNames) {
  std::vector<int> interrupted;
  EXPECT_TRUE(InterruptSample(
      3, [] { return Calls(5); },
      [&](int call) {
        interrupted.push_back(call);
        return true;
      }));
  EXPECT_THAT(interrupted, ElementsAre(1, 4, 16));
}

// The bug: where processes had ended since the sample was taken, the numbers behind
// their calls were of no call. The test of the loader's calls left these out, and failed
// where they were half of the sample, as they were in one run of CI.
TEST(InterruptionTest, ASampleIsTakenAnewWhereProcessesHaveEnded) {
  const size_t all = Calls(0).size();
  size_t processes = 200;
  std::set<std::string> names;
  size_t interruptions = 0;
  EXPECT_TRUE(InterruptSample(
      all + 1, [&] { return Calls(processes); },
      [&](int call) {
        // They end once the first half was interrupted.
        if (interruptions == all / 2) processes = 10;
        const std::vector<std::string> calls = Calls(processes);
        if (static_cast<size_t>(call) >= calls.size()) return false;
        names.insert(calls[static_cast<size_t>(call)]);
        interruptions++;
        return true;
      }));
  EXPECT_EQ(interruptions, all + 1);
  EXPECT_THAT(names, ElementsAre("bpf(2)", "chmod", "chown", "flock", "openat",
                                 "rename", "write"));
}

TEST(InterruptionTest, ASampleWhoseCallsAreNeverThereEnds) {
  EXPECT_FALSE(InterruptSample(
      8, [] { return Calls(10); }, [](int) { return false; }));
  EXPECT_FALSE(InterruptSample(
      8, [] { return std::vector<std::string>(); }, [](int) { return true; }));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
