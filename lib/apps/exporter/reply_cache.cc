// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/reply_cache.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

// zlib.h, deflateInit2(): 15 bits of window, and 16 more for gzip's header.
constexpr int kGzipWindowBits = 15 + 16;
constexpr int kMemoryLevel = 8;  // zlib's default

// Ends the stream if an exception is thrown, too.
struct Stream : z_stream {
  Stream() : z_stream() {
    if (deflateInit2(this, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits,
                     kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Stream() { deflateEnd(this); }
};

}  // namespace

std::string Gzip(absl::string_view bytes) {
  Stream stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string result;
  char buffer[16 * 1024];
  int state;
  do {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof(buffer);
    state = deflate(&stream, Z_FINISH);
    result.append(buffer, sizeof(buffer) - stream.avail_out);
  } while (state == Z_OK);
  result.shrink_to_fit();
  return result;
}

Reply::Reply(std::string bytes, bool gzipped, std::shared_ptr<size_t> total)
    : bytes_(std::move(bytes)), gzipped_(gzipped), total_(std::move(total)) {
  *total_ += bytes_.size();
}

Reply::~Reply() { *total_ -= bytes_.size(); }

ReplyCache::ReplyCache(const Options& options)
    : options_(options), bytes_(std::make_shared<size_t>(0)) {}

int ReplyCache::Add(Make make) {
  Kind kind;
  kind.make = std::move(make);
  kinds_.push_back(std::move(kind));
  return static_cast<int>(kinds_.size()) - 1;
}

SharedReply ReplyCache::Get(int kind, bool gzip) {
  Kind& of = kinds_[static_cast<size_t>(kind)];
  const Clock::time_point begin = Clock::now();
  if (of.newest == nullptr || begin - of.made_at >= LifetimeOf(of)) {
    // First, because there may be no room for the old and the new.
    of.newest.reset();
    of.compressed.reset();
    of.newest = std::make_shared<const Reply>(of.make(), false, bytes_);
    of.made_at = Clock::now();
    of.making = of.made_at - begin;
  }
  if (!gzip) return of.newest;
  if (of.compressed == nullptr) {
    const Clock::time_point compressing = Clock::now();
    std::string bytes = Gzip(of.newest->bytes());
    of.compressed =
        bytes.size() < of.newest->bytes().size()
            ? std::make_shared<const Reply>(std::move(bytes), true, bytes_)
            : of.newest;
    of.making += Clock::now() - compressing;
  }
  return of.compressed;
}

ReplyCache::Clock::duration ReplyCache::LifetimeOf(const Kind& kind) const {
  Clock::duration lifetime = std::max<Clock::duration>(
      options_.lifetime, options_.lifetime_per_making * kind.making);
  if (bytes() > options_.max_bytes / 2) {
    lifetime = std::max<Clock::duration>(lifetime, options_.long_lifetime);
  }
  return lifetime;
}

}  // namespace internal
}  // namespace netmeter
