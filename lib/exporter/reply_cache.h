// SPDX-License-Identifier: BSD-3-Clause
// What netmeter-exporter answers, made once for all who ask at about the same
// time.
//
// To make a reply of a full table takes a quarter of a second, and the reply
// has megabytes. Who asks without end would cost a CPU, and who does not take
// what he asked for would cost memory for each request. So a reply is kept for
// a short time, and all requests of that time share its one copy:
//
//   time of making   |--A--|                      |--B--|
//   requests             a  b c   d (lifetime)  e  f      get
//   reply                   A A   A                  B
//
// Who takes gzip shares one compressed copy, made of the same reply when it is asked for
// first.
//
// So a reply is a tenth of a second old at most, or half a second where the table
// is full and the machine slow. Peers may still be taking older copies; bytes()
// says how much memory all copies have together, and the holders keep that
// bounded (server.h). Where much of that room is taken, a reply lives longer:
// copies then appear no faster than once a second, so that those who take theirs
// slowly have time.
//
//   ReplyCache cache((ReplyCache::Options()));
//   const int kind = cache.Add([] { return std::string("reply"); });
//   const SharedReply reply = cache.Get(kind);
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_REPLY_CACHE_H_
#define NETMETER_LIB_EXPORTER_REPLY_CACHE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// What the exporter's replies are compressed with, for HTTP and gRPC alike.
//
// Threads: any.

// Compresses to the format of RFC 1952 at zlib's fastest level: our pages shrink to a
// tenth. The other levels reach a twelfth and take several times longer. Throws
// std::bad_alloc.
std::string Gzip(absl::string_view bytes);

// Bytes that several connections send at once; the last holder frees them.
class Reply {
 public:
  // Counts itself in *total while it exists.
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
    // Of replies that anybody holds, a shared one counted once. The cache itself
    // exceeds it rather than to refuse a reply: see full().
    size_t max_bytes = 96 * 1024 * 1024;
    // A reply lives so long; or so many times as long as it took to make, if that
    // is longer. Three kinds of reply that everybody asks for without end are
    // then made one after the other, and leave as much time again for sending.
    std::chrono::milliseconds lifetime{100};
    int lifetime_per_making = 4;
    // While more than half of max_bytes is held, this is the least.
    std::chrono::milliseconds long_lifetime{1000};
  };

  explicit ReplyCache(const Options& options);

  // Adds a kind of reply, and says how it is made.
  int Add(Make make);

  // The reply of this kind; never null. With `gzip` it is compressed, unless that makes
  // it no smaller. Throws what its Make throws, such as std::bad_alloc, and keeps
  // nothing then.
  SharedReply Get(int kind, bool gzip = false);

  // Of all replies that anybody holds, the cache's own included.
  size_t bytes() const { return *bytes_; }
  // Whether that is more than Options::max_bytes: somebody has to go.
  bool full() const { return bytes() > options_.max_bytes; }

 private:
  struct Kind {
    Make make;
    SharedReply newest;
    SharedReply compressed;  // the newest, or null until it is asked for
    Clock::time_point made_at;
    Clock::duration making{};  // took so long, with compressing
  };

  Clock::duration LifetimeOf(const Kind& kind) const;

  const Options options_;
  const std::shared_ptr<size_t> bytes_;
  std::vector<Kind> kinds_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_REPLY_CACHE_H_
