// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/reply_cache.h"

#include <algorithm>
#include <utility>

namespace netmeter {
namespace internal {

Reply::Reply(std::string bytes, std::shared_ptr<size_t> total)
    : bytes_(std::move(bytes)), total_(std::move(total)) {
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

SharedReply ReplyCache::Get(int kind) {
  Kind& of = kinds_[static_cast<size_t>(kind)];
  const Clock::time_point begin = Clock::now();
  if (of.newest == nullptr || begin - of.made_at >= LifetimeOf(of)) {
    // First, as both may not have room.
    of.newest.reset();
    of.newest = std::make_shared<const Reply>(of.make(), bytes_);
    of.made_at = Clock::now();
    of.making = of.made_at - begin;
  }
  return of.newest;
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
