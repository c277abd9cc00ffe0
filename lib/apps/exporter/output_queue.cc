// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/output_queue.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

// Small appends share a chunk until it has this many bytes.
constexpr size_t kChunkBytes = 4096;

constexpr size_t kMaxParts = 64;  // for one sendmsg(2)

}  // namespace

void OutputQueue::Append(absl::string_view bytes) {
  if (bytes.empty()) return;
  if (chunks_.empty() || chunks_.back().reply != nullptr ||
      chunks_.back().end >= kChunkBytes) {
    Chunk chunk;
    chunk.bytes = std::string(bytes);
    chunk.end = bytes.size();
    chunks_.push_back(std::move(chunk));
  } else {
    Chunk& last = chunks_.back();
    last.bytes.append(bytes.data(), bytes.size());
    last.end += bytes.size();
  }
  size_ += bytes.size();
}

void OutputQueue::Append(SharedReply reply, size_t begin, size_t size) {
  if (size == 0) return;
  Chunk chunk;
  chunk.reply = std::move(reply);
  chunk.begin = begin;
  chunk.end = begin + size;
  chunks_.push_back(std::move(chunk));
  size_ += size;
  ++replies_;
}

OutputQueue::Sent OutputQueue::Send(int fd, size_t limit, size_t* sent) {
  size_t total = 0;
  while (!chunks_.empty()) {
    if (total >= limit) {
      return Sent::kSome;
    }
    iovec parts[kMaxParts];
    size_t count = 0;
    size_t gathered = 0;
    for (const Chunk& chunk : chunks_) {
      if (count == kMaxParts || total + gathered >= limit) break;
      // Over HTTP/1 a reply of megabytes is one chunk.
      const absl::string_view view =
          chunk.view().substr(0, limit - total - gathered);
      parts[count++] = {const_cast<char*>(view.data()), view.size()};
      gathered += view.size();
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t taken = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN ? Sent::kBlocked : Sent::kFailed;
    }
    Drop(static_cast<size_t>(taken));
    total += static_cast<size_t>(taken);
    *sent += static_cast<size_t>(taken);
  }
  return Sent::kAll;
}

void OutputQueue::Drop(size_t sent) {
  size_ -= sent;
  while (sent > 0) {
    Chunk& first = chunks_.front();
    const size_t step = std::min(sent, first.end - first.begin);
    first.begin += step;
    sent -= step;
    if (first.begin < first.end) return;
    if (first.reply != nullptr) --replies_;
    chunks_.pop_front();
  }
}

std::string OutputQueue::ToString() const {
  std::string all;
  for (const Chunk& chunk : chunks_) {
    all.append(chunk.view().data(), chunk.view().size());
  }
  return all;
}

void OutputQueue::Clear() {
  chunks_.clear();
  size_ = 0;
  replies_ = 0;
}

}  // namespace internal
}  // namespace netmeter
