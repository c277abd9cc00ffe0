// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/reply_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <new>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

std::string Gunzip(const std::string& bytes, size_t size) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string result(size + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(&result[0]);
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  inflateEnd(&stream);
  return result;
}

TEST(Gzip, GivesBackWhatItWas) {
  std::string page;  // more than a buffer of output
  for (uint32_t i = 0; i < 100000; ++i) {
    page += "netmeter_wire_bytes_total{name=\"" +
            std::to_string(i * 2654435761u) + "\"}\n";
  }
  for (const std::string& text : {std::string(), std::string("x"), page}) {
    EXPECT_EQ(Gunzip(Gzip(text), text.size()), text);
  }
  EXPECT_LT(Gzip(page).size(), page.size() / 3);
}

}  // namespace

namespace {

using std::chrono::milliseconds;

ReplyCache::Options Options(int lifetime_ms, int long_lifetime_ms) {
  ReplyCache::Options options;
  options.max_bytes = 1000;
  options.lifetime = milliseconds(lifetime_ms);
  options.long_lifetime = milliseconds(long_lifetime_ms);
  if (lifetime_ms == 0) options.lifetime_per_making = 0;
  return options;
}

TEST(ReplyCache, SharesAReplyForItsLifetime) {
  ReplyCache cache(Options(60000, 60000));
  int made = 0;
  const int kind = cache.Add([&] { return std::to_string(++made); });
  const int other = cache.Add([] { return std::string("other"); });
  const SharedReply first = cache.Get(kind);
  EXPECT_EQ(first->bytes(), "1");
  EXPECT_EQ(cache.Get(kind), first);
  EXPECT_EQ(cache.Get(other)->bytes(), "other");
}

TEST(ReplyCache, MakesAReplyAnewAfterItsLifetime) {
  ReplyCache cache(Options(1, 1));
  int made = 0;
  const int kind = cache.Add([&] { return std::to_string(++made); });
  const SharedReply first = cache.Get(kind);
  SharedReply next;
  do {
    usleep(1000);
    next = cache.Get(kind);
  } while (next == first);
  EXPECT_EQ(next->bytes(), "2");
  EXPECT_EQ(first->bytes(), "1");  // whoever took it keeps it
}

TEST(ReplyCache, CompressesAReplyOnceAndOnlyIfThatMakesItSmaller) {
  ReplyCache cache(Options(60000, 60000));
  int made = 0;
  const int large = cache.Add([&] {
    ++made;
    return std::string(500, 'x');
  });
  const int small = cache.Add([] { return std::string("small"); });
  const SharedReply compressed = cache.Get(large, true);
  EXPECT_TRUE(compressed->gzipped());
  EXPECT_EQ(cache.Get(large, true), compressed);
  EXPECT_EQ(cache.Get(large)->bytes(), std::string(500, 'x'));
  EXPECT_EQ(made, 1);
  EXPECT_EQ(cache.bytes(), 500 + compressed->bytes().size());
  EXPECT_FALSE(cache.Get(small, true)->gzipped());
  EXPECT_EQ(cache.Get(small, true)->bytes(), "small");
}

TEST(ReplyCache, CountsTheBytesOfAllCopies) {
  ReplyCache cache(Options(0, 0));
  const int kind = cache.Add([] { return std::string(300, 'x'); });
  std::vector<SharedReply> held;
  for (size_t i = 1; i <= 3; ++i) {
    held.push_back(cache.Get(kind));
    held.push_back(held.back());
    EXPECT_EQ(cache.bytes(), i * 300);
    EXPECT_FALSE(cache.full());
  }
  held.push_back(cache.Get(kind));
  EXPECT_TRUE(cache.full());
  held.clear();
  EXPECT_EQ(cache.bytes(), 300u);  // the newest
}

TEST(ReplyCache, WhereMuchIsHeldCopiesAppearSlowly) {
  ReplyCache cache(Options(0, 60000));
  int made = 0;
  const int kind = cache.Add([&] {
    ++made;
    return std::string(300, 'x');
  });
  std::vector<SharedReply> held;
  for (int i = 0; i < 10; ++i) held.push_back(cache.Get(kind));
  EXPECT_EQ(made, 2);
}

// Made in 30 ms, and wanted without end.
TEST(ReplyCache, RepliesThatAreSlowToMakeLiveLonger) {
  ReplyCache cache(Options(1, 1000));
  std::vector<std::chrono::steady_clock::time_point> ends;
  const int kind = cache.Add([&] {
    usleep(30000);
    ends.push_back(std::chrono::steady_clock::now());
    return std::string("x");
  });
  while (ends.size() < 4) cache.Get(kind);
  for (size_t i = 1; i < ends.size(); ++i)
    EXPECT_GE(ends[i] - ends[i - 1], milliseconds(4 * 30 + 30));
}

TEST(ReplyCache, KeepsNothingOfAReplyThatCouldNotBeMade) {
  ReplyCache cache(Options(100, 1000));
  bool fail = true;
  const int kind = cache.Add([&] {
    if (fail) throw std::bad_alloc();
    return std::string("x");
  });
  EXPECT_THROW(cache.Get(kind), std::bad_alloc);
  fail = false;
  EXPECT_EQ(cache.Get(kind)->bytes(), "x");
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
