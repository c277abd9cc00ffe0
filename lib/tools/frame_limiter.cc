// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/frame_limiter.h"

#include <algorithm>

namespace netmeter {
namespace internal {
namespace {

// RFC 9113, section 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kContinuation = 9,
};
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndHeaders = 4;

}  // namespace

size_t FrameLimiter::Pass(const char* bytes, size_t size, size_t budget,
                          size_t* cost) {
  size_t taken = 0;
  while (taken < size && *cost < budget) {
    size_t step = 1;
    if (preface_left_ > 0) {
      step = std::min(preface_left_, size - taken);
      preface_left_ -= step;
    } else if (payload_left_ > 0) {
      step = std::min(payload_left_, size - taken);
      payload_left_ -= step;
    } else {
      header_[header_size_++] = static_cast<uint8_t>(bytes[taken]);
      if (header_size_ == sizeof(header_)) {
        header_size_ = 0;
        if (!Begin(cost)) return kRefused;
      }
    }
    taken += step;
    *cost += step;
  }
  return taken;
}

// A frame whose header is complete.
bool FrameLimiter::Begin(size_t* cost) {
  const size_t length = static_cast<size_t>(header_[0]) << 16 |
                        static_cast<size_t>(header_[1]) << 8 | header_[2];
  const uint8_t type = header_[3];
  const uint8_t flags = header_[4];
  // Payload passes in pieces, and is paid for.
  if (length > kMaxFrameBytes && type != kData) return false;
  if (in_block_ != (type == kContinuation)) return false;
  payload_left_ = length;
  *cost += kFrameCost;
  switch (type) {
    case kHeaders:
      *cost += kHeadersCost;
      ++calls_;
      if (!acknowledged_ && calls_ > kMaxCallsBeforeAck) return false;
      block_bytes_ = 0;
      continuations_ = -1;
      [[fallthrough]];
    case kContinuation:
      block_bytes_ += length;
      in_block_ = (flags & kEndHeaders) == 0;
      return block_bytes_ <= kMaxBlockBytes &&
             ++continuations_ <= kMaxContinuations;
    case kSettings:
      if (flags & kAck) acknowledged_ = true;
      *cost += kAnsweredCost;
      return true;
    case kPing:
    case kRstStream:
      *cost += kAnsweredCost;
      return true;
    default:
      return true;
  }
}

}  // namespace internal
}  // namespace netmeter
