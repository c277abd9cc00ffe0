// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/frame_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

namespace netmeter {
namespace internal {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kPlenty = SIZE_MAX;

std::string Frame(size_t length, char type, char flags, size_t payload) {
  return std::string{static_cast<char>(length >> 16),
                     static_cast<char>(length >> 8),
                     static_cast<char>(length),
                     type,
                     flags,
                     0,
                     0,
                     0,
                     1} +
         std::string(payload, 'x');
}

std::string Frame(size_t length, char type, char flags) {
  return Frame(length, type, flags, length);
}

const std::string kSettingsAck = Frame(0, 4, 1);

// Takes all in chunks of so many bytes; false if refused.
bool PassAll(FrameLimiter* limiter, const std::string& bytes, size_t chunk,
             size_t* cost) {
  for (size_t i = 0; i < bytes.size(); i += chunk) {
    const size_t size = std::min(chunk, bytes.size() - i);
    const size_t taken =
        limiter->Pass(bytes.data() + i, size, kPlenty, cost);
    if (taken == FrameLimiter::kRefused) return false;
    EXPECT_EQ(taken, size);
  }
  return true;
}

bool IsRefused(const std::string& frames) {
  bool refused[2];
  for (const size_t chunk : {size_t{1}, size_t{1024}}) {
    FrameLimiter limiter;
    size_t cost = 0;
    refused[chunk > 1] = !PassAll(&limiter, kPreface + frames, chunk, &cost);
  }
  EXPECT_EQ(refused[0], refused[1]);
  return refused[0];
}

TEST(FrameLimiter, CostsAreOfBytesAndOfFrames) {
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{10000}}) {
    FrameLimiter limiter;
    const std::string call = Frame(200, 1, 4) + Frame(5, 0, 1);
    size_t cost = 0;
    EXPECT_TRUE(PassAll(&limiter, kPreface + Frame(0, 4, 0), chunk, &cost));
    EXPECT_EQ(cost, 24 + 9 + FrameLimiter::kFrameCost +
                        FrameLimiter::kAnsweredCost);
    cost = 0;
    EXPECT_TRUE(PassAll(&limiter, call, chunk, &cost));
    EXPECT_EQ(cost, call.size() + 2 * FrameLimiter::kFrameCost +
                        FrameLimiter::kHeadersCost);
  }
}

TEST(FrameLimiter, StopsWhereTheBudgetIsSpentAndGoesOn) {
  FrameLimiter limiter;
  std::string bytes = kPreface + kSettingsAck;
  for (int i = 0; i < 100; ++i) bytes += Frame(20, 1, 4);
  size_t position = 0;
  size_t all = 0;
  int turns = 0;
  while (position < bytes.size()) {
    size_t cost = 0;
    const size_t taken = limiter.Pass(bytes.data() + position,
                                      bytes.size() - position, 2048, &cost);
    ASSERT_NE(taken, FrameLimiter::kRefused);
    ASSERT_GT(taken, 0u);
    EXPECT_LE(cost, 2048 + FrameLimiter::kHeadersCost +
                        FrameLimiter::kFrameCost + 64);
    position += taken;
    all += cost;
    ++turns;
  }
  EXPECT_GE(all, 100 * FrameLimiter::kHeadersCost);
  EXPECT_GE(turns, 33);
  size_t cost = 0;
  EXPECT_EQ(limiter.Pass("x", 1, 0, &cost), 0u);
}

TEST(FrameLimiter, RefusesFramesThatAreTooLong) {
  EXPECT_FALSE(IsRefused(Frame(64 * 1024, 2, 0)));
  EXPECT_TRUE(IsRefused(Frame(64 * 1024 + 1, 2, 0, 0)));
  // DATA may have what the server announced.
  EXPECT_FALSE(IsRefused(Frame(4 * 1024 * 1024, 0, 0) + Frame(0, 6, 0)));
  EXPECT_TRUE(IsRefused(Frame(0xffffff, 4, 0, 0)));
}

// gRPC 1.51 keeps such a block, and reads it anew with each frame: two peers
// kept all others from being served, for as long as they sent.
TEST(FrameLimiter, RefusesHeaderBlocksWithoutAnEnd) {
  EXPECT_FALSE(IsRefused(Frame(100, 1, 0) + Frame(100, 9, 0) +
                         Frame(100, 9, 4) + Frame(0, 6, 0)));
  EXPECT_FALSE(IsRefused(Frame(16 * 1024, 1, 4)));
  EXPECT_TRUE(IsRefused(Frame(16 * 1024 + 1, 1, 4)));
  EXPECT_TRUE(
      IsRefused(Frame(16 * 1024, 1, 0) + Frame(1, 9, 4)));
  std::string many = Frame(1, 1, 0);
  for (int i = 0; i < FrameLimiter::kMaxContinuations; ++i) {
    many += Frame(1, 9, 0);
  }
  EXPECT_FALSE(IsRefused(many));
  EXPECT_TRUE(IsRefused(many + Frame(1, 9, 4)));
  // Again in the next block: the counts begin anew.
  std::string blocks;
  for (int i = 0; i < 20; ++i) {
    blocks += Frame(9000, 1, 0) + Frame(1000, 9, 0) + Frame(1000, 9, 4);
  }
  EXPECT_FALSE(IsRefused(blocks));
}

TEST(FrameLimiter, RefusesABlockThatIsInterrupted) {
  EXPECT_TRUE(IsRefused(Frame(1, 1, 0) + Frame(0, 6, 0)));
  EXPECT_TRUE(IsRefused(Frame(1, 9, 4)));
}

// It held to no limit of streams then.
TEST(FrameLimiter, RefusesManyCallsOfWhoDoesNotAcknowledgeTheSettings) {
  std::string calls;
  for (uint64_t i = 0; i < FrameLimiter::kMaxCallsBeforeAck; ++i) {
    calls += Frame(20, 1, 4);
  }
  EXPECT_FALSE(IsRefused(calls));
  EXPECT_TRUE(IsRefused(calls + Frame(20, 1, 4)));
  EXPECT_TRUE(IsRefused(Frame(0, 4, 0) + calls + Frame(20, 1, 4)));
  EXPECT_FALSE(IsRefused(calls + kSettingsAck + calls + calls));
}

TEST(FrameLimiter, NoiseIsTakenOrRefusedAlikeInChunksOfAnySize) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string noise;
    for (int i = 0; i < 20; ++i) {
      const size_t length = random() % 50;
      noise += Frame(length, static_cast<char>(random() % 12),
                     static_cast<char>(random()));
      if (random() % 20 == 0) noise.push_back(static_cast<char>(random()));
    }
    IsRefused(noise);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
