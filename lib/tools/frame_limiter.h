// SPDX-License-Identifier: BSD-3-Clause
// Follows the frames that a client of HTTP/2 sends, by their headers alone
// (RFC 9113, section 4.1): says what they cost the server, and refuses what
// gRPC 1.51 does not bear: header blocks without an end, which it keeps and
// reads again with each frame (CVE-2023-33953), and streams beyond its limit,
// from clients that do not acknowledge it.
//
//   FrameLimiter limiter;
//   size_t cost = 0;
//   size_t passed = limiter.Pass(bytes, size, 2048, &cost);
//   if (passed == FrameLimiter::kRefused) Close();
//
// What HTTP/2 forbids otherwise is left to gRPC to find.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_TOOLS_FRAME_LIMITER_H_
#define NETMETER_LIB_TOOLS_FRAME_LIMITER_H_

#include <cstddef>
#include <cstdint>

namespace netmeter {
namespace internal {

class FrameLimiter {
 public:
  static constexpr size_t kRefused = SIZE_MAX;

  // Each byte costs 1, and each frame some more: a call about as many bytes as
  // gRPC could copy in the time that it takes.
  static constexpr size_t kFrameCost = 32;
  static constexpr size_t kAnsweredCost = 100;  // SETTINGS, PING, RST_STREAM
  static constexpr size_t kHeadersCost = 1000;

  static constexpr size_t kMaxFrameBytes = 64 * 1024;  // but of DATA
  static constexpr size_t kMaxBlockBytes = 16 * 1024;
  static constexpr int kMaxContinuations = 8;
  static constexpr uint64_t kMaxCallsBeforeAck = 32;

  // Takes bytes until `budget` is spent, which the last frame may exceed. Adds
  // to *cost; returns how many it took, or kRefused.
  size_t Pass(const char* bytes, size_t size, size_t budget, size_t* cost);

  // Calls that were begun, by their HEADERS.
  uint64_t calls() const { return calls_; }

 private:
  bool Begin(size_t* cost);

  size_t preface_left_ = 24;
  uint8_t header_[9] = {};
  size_t header_size_ = 0;
  size_t payload_left_ = 0;
  bool in_block_ = false;  // HEADERS without END_HEADERS
  size_t block_bytes_ = 0;
  int continuations_ = 0;
  uint64_t calls_ = 0;
  bool acknowledged_ = false;  // the server's SETTINGS
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_FRAME_LIMITER_H_
