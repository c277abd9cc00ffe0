// SPDX-License-Identifier: BSD-3-Clause
// The replies of netmeter-exporter, each made once for all peers that ask at about the
// same time.
//
// Making the reply for a full table takes a quarter of a second, and the reply has
// megabytes. Without a cache, a polling client would use a CPU, and one that never
// reads would hold memory per request. So a reply is kept for a short time, and all
// requests in that time share one copy of it:
//
//   time of making   |--A--|                      |--B--|
//   requests             a  b c   d (lifetime)  e  f      get
//   reply                   A A   A                  B
//
// Peers that accept gzip share one compressed copy, made from this reply at the first
// request for it.
//
// A reply is therefore at most a tenth of a second old, or half a second if the table
// is full and the machine slow. Peers may still be taking older copies: bytes() is the
// memory of all copies, and the server bounds it by closing holders (server.h). When
// much of that memory is in use, a reply lives longer: new copies then appear at most
// once a second, so that slow peers have time.
//
//   ReplyCache cache((ReplyCache::Options()));
//   const int kind = cache.Add([] { return std::string("reply"); });
//   const SharedReply reply = cache.Get(kind);
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_REPLY_CACHE_H_
#define NETMETER_LIB_APPS_EXPORTER_REPLY_CACHE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// The compression of replies, for HTTP and gRPC.
//
// Threads: any.

// Compresses to the format of RFC 1952 at zlib's fastest level, which shrinks a page to
// a tenth. The other levels reach a twelfth and take several times as long. Throws
// std::bad_alloc.
std::string Gzip(absl::string_view bytes);

// Bytes that several connections share while they send; the last holder frees them.
class Reply {
 public:
  // Adds its size to *total while it exists.
  Reply(std::string bytes, bool gzipped, std::shared_ptr<size_t> total);
  ~Reply();
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  absl::string_view bytes() const { return bytes_; }
  bool gzipped() const { return gzipped_; }

 private:
  const std::string bytes_;
  const bool gzipped_;
  const std::shared_ptr<size_t> total_;
};

using SharedReply = std::shared_ptr<const Reply>;

class ReplyCache {
 public:
  using Clock = std::chrono::steady_clock;
  using Make = std::function<std::string()>;

  struct Options {
    // For all replies in memory; a shared one counts once. The cache exceeds this
    // rather than refuse a reply: see full().
    size_t max_bytes = 96 * 1024 * 1024;
    // How long a reply lives: the longer of `lifetime` and the time of making it, times
    // lifetime_per_making. If clients then ask for all three kinds without a pause, the
    // kinds are made one after the other, and time is left for sending.
    std::chrono::milliseconds lifetime{100};
    int lifetime_per_making = 4;
    // The minimum while more than half of max_bytes is in use.
    std::chrono::milliseconds long_lifetime{1000};
  };

  explicit ReplyCache(const Options& options);

  // Adds a kind of reply, which `make` produces. Returns its number for Get().
  int Add(Make make);

  // The reply of this kind; never null. With `gzip` it is compressed, unless that makes
  // it no smaller. Throws what its Make throws, such as std::bad_alloc; then the cache
  // keeps nothing of this kind.
  SharedReply Get(int kind, bool gzip = false);

  // The bytes of all replies in memory, those in the cache included.
  size_t bytes() const { return *bytes_; }
  // Whether bytes() exceeds Options::max_bytes, so that a holder has to go.
  bool full() const { return bytes() > options_.max_bytes; }

 private:
  struct Kind {
    Make make;
    SharedReply newest;
    SharedReply compressed;  // of `newest`; null until the first request
    Clock::time_point made_at;
    Clock::duration making{};  // how long making and compressing took
  };

  Clock::duration LifetimeOf(const Kind& kind) const;

  const Options options_;
  const std::shared_ptr<size_t> bytes_;
  std::vector<Kind> kinds_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_REPLY_CACHE_H_
