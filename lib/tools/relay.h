// SPDX-License-Identifier: BSD-3-Clause
// Stands between gRPC and its peers, so that none can starve the others. gRPC
// reads all that a peer sends, and keeps memory for each call and an answer to
// each frame that wants one: floods of them cost it gigabytes, and its threads
// were busy for minutes. Here connections take turns, and all together send no
// more than a rate that gRPC keeps up with; the rest waits in the sender. What
// it does not bear at all ends the connection: see FrameLimiter, which also
// says what frames cost. Replies flow as they come.
//
//   Relay relay(1024 * 1024, 128);
//   absl::Status status = relay.Start();
//   absl::StatusOr<UniqueFd> end = relay.Add(std::move(peer));  // for gRPC
//
// A connection costs three descriptors (peer, and both ends of a socketpair)
// and 17 KiB. Bytes are copied twice more than without.
//
// Threads: Add() may be called from any. One of its own carries the bytes.

#ifndef NETMETER_LIB_TOOLS_RELAY_H_
#define NETMETER_LIB_TOOLS_RELAY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/core/unique_fd.h"
#include "lib/tools/frame_limiter.h"

namespace netmeter {
namespace internal {

class Relay {
 public:
  // What all peers together may spend in a second; how many there may be. For
  // one more, that which made fewest calls goes, and of equal ones that which
  // was idle longest: who comes in masses has made few.
  Relay(size_t cost_per_second, size_t max_connections);
  // Ends all connections.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Unavailable without a descriptor or a thread.
  absl::Status Start();

  // Takes over a non-blocking stream socket, and returns another in its place:
  // where either side closes or fails, the other is closed. What gRPC sent
  // before it closed is delivered, to a peer that takes something every 30
  // seconds. Unavailable or ResourceExhausted, without descriptors or memory; who
  // has a duplicate of the peer still has it then.
  absl::StatusOr<UniqueFd> Add(UniqueFd peer);

 private:
  using Clock = std::chrono::steady_clock;

  // Edge-triggered: what is said here holds until a call says EAGAIN.
  struct End {
    UniqueFd fd;
    bool readable = true;
    bool writable = true;
    bool ended = false;  // there may still be something to read
  };

  // What was read and is not sent yet.
  template <size_t kSize>
  struct Buffer {
    size_t begin = 0;
    size_t passed = 0;  // what may be sent: up to here
    size_t end = 0;
    char bytes[kSize];
  };

  struct Connection {
    End peer;
    End server;
    FrameLimiter limiter;
    Buffer<1024> requests;
    Buffer<16 * 1024> replies;
    Clock::time_point active_at;
    Clock::time_point blocked_at;  // since when the peer takes no reply, or max
  };

  enum class Moved { kBlocked, kMore, kEnded };

  template <size_t kSize, typename Pass>
  static Moved Move(End* from, End* to, Buffer<kSize>* buffer, size_t limit,
                    size_t* cost, const Pass& pass);

  void Run();
  bool TakeAdded();
  bool Watch(End* end);
  void Wait(int timeout_ms);
  void EarnBudget();
  void Round();
  Moved Turn(Connection* connection, size_t* cost);
  void KeepToLimit();
  void Close(Connection* connection);

  const size_t cost_per_second_;
  const size_t max_connections_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::list<Connection> added_;
  bool stop_ = false;

  // The rest belongs to thread_. The next to have its turn is first.
  std::list<Connection> connections_;
  Clock::time_point earned_at_;
  int64_t budget_ = 0;   // to spend now; the last frame may exceed it
  bool more_ = false;    // a turn ended before there was nothing left to do
  bool hungry_ = false;  // somebody waits for the budget
  bool blocked_ = false; // somebody takes no reply
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_RELAY_H_
