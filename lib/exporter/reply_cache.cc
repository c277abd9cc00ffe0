// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/reply_cache.h"

#include <algorithm>
#include <utility>

#include "lib/exporter/gzip.h"

namespace netmeter {
namespace internal {

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
    // First, as both may not have room.
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
