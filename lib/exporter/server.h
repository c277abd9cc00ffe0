// SPDX-License-Identifier: BSD-3-Clause
// The event loop of netmeter-exporter: one thread that accepts connections and
// gives each of them its turns.
//
//   ReplyCache replies((ReplyCache::Options()));
//   Server server(&replies);
//   absl::StatusOr<std::string> name = server.Listen(address, make_peer);
//   absl::Status status = server.Run(stop_fd);
//
// How it works. A round is: epoll_wait(2); one turn for every connection that
// is ready; one for every connection whose deadline has passed; then up to 128
// new connections, or as many as 2 ms suffice for, each of which has its first
// turn at once, as its request is often there already. A turn reads 4 or 8 KiB at most
// and writes 256 KiB at most, so a round is short, and nobody has two turns before
// everybody had one.
// Replies are made within a turn; the cache (reply_cache.h) bounds how often.
// Nothing here blocks but the read of the meter: see Time below.
//
// The threat model. Who reaches the ports may read the metrics: there is no
// authentication, so the ports are loopback's unless the operator says
// otherwise, and who reaches them is a user of this host. Such users are taken
// to be hostile, in any number of processes. What the server keeps up against
// them, one by one and all together:
//
//   * Others are served: each request, on an old or a new connection, has its
//     reply after a few rounds. Connections beyond the places of their pool
//     (peer.h) end the one that was used longest ago; gRPC's channels then connect
//     again by themselves. Turns are bounded, as above, and a peer that sends
//     without end is read slowly (grpc_peer.h).
//   * Memory is bounded: so many places, each with a session of HTTP/2 (30 KiB)
//     or a request (8 KiB), 64 KiB of output and small socket buffers; and
//     replies, of which there is one copy for all that asked at about the same
//     time. If the copies have more than ReplyCache::Options::max_bytes, the holder
//     goes that took something longest ago.
//   * Time is bounded: everything that waits has a deadline. A reply that is made
//     reads the meter, under two mutexes that no peer can hold. While a load writes
//     `info` or retires series it waits for that, some microseconds, and half a second
//     if the meter's memory makes no sense. Of a meter that was unloaded or has new
//     tables it opens the maps, which takes up to 100 ms where netmeter-fds does not
//     answer (wait_for_loader). Peers cannot bring about any of these.
//   * Without memory or descriptors single connections end, never the process.
//
// Not kept up: a user's right to burn his share of CPU, which the kernel's
// scheduler divides; secrecy of the metrics; and service to a network from
// which packets come faster than a CPU can answer (--allow-public).
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_SERVER_H_
#define NETMETER_LIB_EXPORTER_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"
#include "lib/exporter/listen_address.h"
#include "lib/exporter/reply_cache.h"

namespace netmeter {
namespace internal {

// One connection as the event loop (server.h) sees it. What the connection
// speaks is a matter of the classes derived from this: HttpPeer and GrpcPeer.
//
// Threads: one.

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

class Server {
 public:
  struct Options {
    // Places in each Peer::Pool. Where connections come that are of no use, a
    // useful one has as long to its next step as others need to take all places:
    // a client on a busy machine may need a tenth of a second from connect(2) to
    // its first byte, in which a flood makes a thousand connections.
    size_t places[Peer::kPools] = {1024, 256, 256, 256, 1024, 1024, 256};
  };

  // Makes a peer of an accepted connection. May throw std::bad_alloc.
  using MakePeer = std::function<std::unique_ptr<Peer>(UniqueFd fd)>;

  // Peers hold replies of this cache, which must outlive the server.
  explicit Server(const ReplyCache* replies) : Server(replies, Options()) {}
  Server(const ReplyCache* replies, const Options& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens. Returns "host:port", with the true port if it was 0.
  absl::StatusOr<std::string> Listen(const ListenAddress& address,
                                     MakePeer make_peer);

  // Serves until stop_fd is readable, then for as long as somebody takes a
  // reply, but not longer than a second, then closes all connections.
  absl::Status Run(int stop_fd);

 private:
  using Clock = Peer::Clock;
  using Deadlines = std::set<std::pair<Clock::time_point, uint64_t>>;

  struct Listener {
    UniqueFd fd;
    MakePeer make_peer;
  };

  // A peer, and where the server keeps it.
  struct Entry {
    std::unique_ptr<Peer> peer;
    Peer::Pool pool;                      // whose list it is in
    std::list<uint64_t>::iterator place;  // there
    Clock::time_point used_at;            // which that list is sorted by
    Deadlines::iterator deadline;
    uint32_t events = 0;  // that epoll watches; 0 before the first turn
  };

  bool Watch(int fd, uint32_t events, uint64_t key, int operation);
  int MillisecondsToWait() const;
  void Accept(size_t listener);
  void Add(size_t listener, UniqueFd fd);
  void TakeTurn(uint64_t key, uint32_t events);
  void Update(uint64_t key, Entry* entry);
  void PassDeadlines();
  void DropReplies(uint64_t newest);
  uint64_t LeastRecentHolder(uint64_t but) const;
  bool FreeDescriptor(uint64_t first_new);
  void Close(uint64_t key);
  bool AnybodyHoldsReply() const;
  std::list<uint64_t>& PoolOf(const Entry& entry) {
    return pools_[static_cast<int>(entry.pool)];
  }

  const ReplyCache* const replies_;
  const Options options_;
  UniqueFd epoll_;
  std::vector<Listener> listeners_;
  uint64_t next_key_;
  std::map<uint64_t, Entry> entries_;
  std::list<uint64_t> pools_[Peer::kPools];  // least recently used first
  Deadlines deadlines_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_SERVER_H_
