// SPDX-License-Identifier: BSD-3-Clause
// One connection as the event loop (server.h) sees it. What the connection
// speaks is a matter of the classes derived from this: HttpPeer and GrpcPeer.
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_PEER_H_
#define NETMETER_LIB_EXPORTER_PEER_H_

#include <chrono>
#include <cstdint>
#include <utility>

#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {

class Peer {
 public:
  using Clock = std::chrono::steady_clock;

  // Each connection has a place in one of these. A pool has a fixed number of
  // places: for a newcomer that finds none, the connection of the same pool goes
  // that was used longest ago. So a flood of one sort displaces only that sort.
  enum class Pool {
    kHttpRequest,  // has not sent its request yet
    kHttpReply,    // has asked; took no more than its socket's buffer yet
    kHttpTaking,   // takes its reply: a flood of those that take nothing
                   // displaces none of these
    kHttpIdle,     // has its reply, has neither asked again nor closed yet
    kGrpcPreface,  // has not sent HTTP/2's preface yet
    kGrpcNew,      // speaks HTTP/2
    kGrpcKnown,    // the same, and made a call when it was a second old: a
                   // flood of short connections displaces none of these
  };
  static constexpr int kPools = 7;

  // `fd` is a non-blocking socket.
  Peer(UniqueFd fd, Pool pool) : fd_(std::move(fd)), pool_(pool) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Reads and writes a bounded amount, so that all peers have their turns.
  // `events` is what epoll says. Returns false if the connection is over. May
  // throw std::bad_alloc; the connection is over then, too.
  virtual bool TakeTurn(uint32_t events) = 0;

  // When to call OnDeadline(), which returns false if the connection is over.
  virtual Clock::time_point Deadline() const = 0;
  virtual bool OnDeadline() = 0;

  // What to ask epoll for.
  virtual uint32_t WantedEvents() const = 0;

  // Whether it holds memory of a reply that it has not taken yet.
  virtual bool HoldsReply() const = 0;

  // The server is about to end the connection: says so to the peer, where the
  // protocol has a way, as far as that is possible without waiting.
  virtual void SayGoodbye() {}

  int fd() const { return fd_.get(); }
  Pool pool() const { return pool_; }
  // When it was accepted, asked for something, or took something of a reply.
  Clock::time_point used_at() const { return used_at_; }

 protected:
  void set_pool(Pool pool) { pool_ = pool; }
  void set_used() { used_at_ = Clock::now(); }

 private:
  const UniqueFd fd_;
  Pool pool_;
  Clock::time_point used_at_ = Clock::now();
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_PEER_H_
