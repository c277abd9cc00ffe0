// SPDX-License-Identifier: BSD-3-Clause
// Reads that meet a move (nm_stats.moves), and are made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "lib/core/no_throw.h"
#include "lib/core/series_buffers.h"
#include "lib/core/series_reader.h"
#include "lib/testing/failing_new.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// The bug: what a first pass had written stayed, and a caller of the C API had names in
// memory that was gone.
TEST(SeriesReaderMoves, WithoutMemoryToLearnAnewTheSamplesAreEmpty) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 0);
  SeriesReader reader(buffers.view());
  std::vector<Sample> samples;
  reader.ReadAll(&samples);
  ASSERT_THAT(samples, SizeIs(1));
  for (const bool all : {true, false}) {
    buffers.stats().moves += 2;
    {
      FailNew fail(0);
      EXPECT_THROW(
          all ? reader.ReadAll(&samples) : reader.ReadService("mme", &samples),
          std::bad_alloc);
    }
    EXPECT_THAT(samples, IsEmpty());
    reader.ReadAll(&samples);
    EXPECT_THAT(samples, SizeIs(1));
  }
}

// The bug: glibc ends a cancelled thread in a system call by an exception, which went
// into a function that lets none pass: the end of the process.
TEST(SeriesReaderMoves, AThreadThatWaitsForAMoveMayBeCancelled) {
  Buffers buffers(1, 64, 8);
  buffers.stats().moves = 1;
  SeriesReader reader(buffers.view());
  const auto read = [](void* given) -> void* {
    auto* const own = static_cast<SeriesReader*>(given);
    WithoutThrowing([&] {
      std::vector<Sample> samples;
      own->ReadAll(&samples);
      own->ReadHealth();
      return absl::OkStatus();
    }).IgnoreError();
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, read, &reader), 0);
  ASSERT_EQ(pthread_cancel(thread), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  __atomic_store_n(&buffers.stats().moves, 2, __ATOMIC_RELEASE);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
