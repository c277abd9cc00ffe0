// SPDX-License-Identifier: BSD-3-Clause
// Reads that meet a move (nm_stats.moves), and are repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/no_throw.h"
#include "lib/reader/series_buffers.h"
#include "lib/reader/series_reader.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::SizeIs;

TEST(SeriesReaderMoves, RowsKeepTheirWords) {
  const std::string old(NM_NAME_BYTES, 'o');  // memory of its own
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, old);
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 0);
  auto reader = std::make_unique<SeriesReader>(buffers.view());
  SampleRows kept, other;
  reader->ReadAll(&kept);
  // The reader forgets all that it has learned.
  buffers.SetName(3, std::string(NM_NAME_BYTES, 'n'));
  buffers.stats().moves += 2;
  reader->ReadAll(&other);
  ASSERT_THAT(kept.rows, SizeIs(1));
  EXPECT_EQ(kept.rows[0].name, old);
  reader->ReadAll(&kept);
  reader.reset();
  ASSERT_THAT(kept.rows, SizeIs(1));
  EXPECT_EQ(kept.rows[0].name, std::string(NM_NAME_BYTES, 'n'));
}

// The bug: the results of a first pass stayed, and names for a caller of the C API were
// in freed memory.
TEST(SeriesReaderMoves, AReadThatFailsLeavesTheLastResultOrNone) {
  const std::string old(NM_NAME_BYTES, 'o');
  for (const int fails_at : {1, 2}) {
    SCOPED_TRACE(fails_at);
    Buffers buffers(1, 64, 8);
    buffers.SetName(3, old);
    buffers.stats().slots_allocated = 1;
    buffers.SetHead(21, 0, 3, 0);
    MapView view = buffers.view();
    view.first_series = view.max_series;
    // Each pass meets another move, until one runs out of memory.
    int passes = 0;
    SeriesReader reader(view, [&](MapView*) -> bool {
      if (++passes == fails_at) throw std::bad_alloc();
      buffers.stats().moves += 2;
      return true;
    });
    SampleRows rows;
    std::vector<Sample> samples;
    reader.ReadAll(&rows);
    reader.ReadAll(&samples);
    buffers.info().max_series = view.max_series + 1;
    const size_t left = fails_at == 1 ? 1 : 0;
    buffers.stats().moves += 2;
    EXPECT_THROW(reader.ReadAll(&rows), std::bad_alloc);
    ASSERT_THAT(rows.rows, SizeIs(left));
    if (left != 0) {
      EXPECT_EQ(rows.rows[0].name, old);
    }
    passes = 0;
    EXPECT_THROW(reader.ReadAll(&samples), std::bad_alloc);
    EXPECT_THAT(samples, SizeIs(left));
    buffers.info().max_series = 0;
    reader.ReadAll(&rows);
    EXPECT_THAT(rows.rows, SizeIs(1));
  }
}

// The bug: glibc ends a cancelled thread in a system call by an exception. The exception
// reached a noexcept function, which ended the process.
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
