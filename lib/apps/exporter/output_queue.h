// SPDX-License-Identifier: BSD-3-Clause
// The bytes that one connection has to send, in order: its own, such as heads and
// frames, and parts of replies that it shares with others, which are never copied.
//
//   OutputQueue output;
//   output.Append("head");
//   output.Append(reply, 0, reply->bytes().size());
//   switch (output.Send(fd, 256 * 1024, &sent)) { ... }
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_OUTPUT_QUEUE_H_
#define NETMETER_LIB_APPS_EXPORTER_OUTPUT_QUEUE_H_

#include <cstddef>
#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/apps/exporter/reply_cache.h"

namespace netmeter {
namespace internal {

class OutputQueue {
 public:
  enum class Sent {
    kAll,      // nothing is left
    kSome,     // the limit is reached; the socket would take more
    kBlocked,  // the socket takes no more now
    kFailed,   // the connection is gone
  };

  // Both may throw std::bad_alloc; then nothing is appended.
  void Append(absl::string_view bytes);
  void Append(SharedReply reply, size_t begin, size_t size);

  // Sends to a non-blocking socket until `limit` bytes, or a few more, are sent.
  // Adds to *sent.
  Sent Send(int fd, size_t limit, size_t* sent);

  bool empty() const { return chunks_.empty(); }
  // Bytes to send, those of replies included.
  size_t size() const { return size_; }
  // size() and the bookkeeping for it: a peer that takes a byte at a time causes many
  // small pieces.
  size_t memory() const { return size_ + chunks_.size() * sizeof(Chunk); }
  bool holds_reply() const { return replies_ > 0; }

  // All bytes to send, as one string. For tests.
  std::string ToString() const;
  void Clear();

 private:
  struct Chunk {
    // The rest of `reply`, or of `bytes` if reply is null.
    absl::string_view view() const {
      return (reply == nullptr ? absl::string_view(bytes) : reply->bytes())
          .substr(begin, end - begin);
    }
    std::string bytes;
    SharedReply reply;
    size_t begin = 0;
    size_t end = 0;
  };

  void Drop(size_t sent);

  std::deque<Chunk> chunks_;
  size_t size_ = 0;
  size_t replies_ = 0;  // chunks with a reply
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_OUTPUT_QUEUE_H_
