// SPDX-License-Identifier: BSD-3-Clause
// The event loop of netmeter-exporter: one thread that accepts connections and
// gives each of them its turns.
//
//   ReplyCache replies((ReplyCache::Options()));
//   Server server(&replies);
//   absl::StatusOr<std::string> name = server.Listen(address, make_peer);
//   absl::Status status = server.Run(stop_fd);
//
// A round consists of: epoll_wait(2); one turn for every ready connection; one for
// every connection whose deadline has passed; then new connections, at most 128 or as
// many as fit into 2 ms. Each new one has its first turn at once, because its request
// has often arrived already. A turn reads at most 4 or 8 KiB and writes at most 256
// KiB, so a round is short, and every connection has a turn before any has a second
// one. Replies are made within a turn; the cache (reply_cache.h) bounds how often. Only
// reading the meter can block: see Time below.
//
// The threat model. Everyone who can reach the ports can read the metrics, as there is
// no authentication. So the ports are on loopback unless the operator chooses
// otherwise, and the peers are users of this host. The server takes them to be hostile,
// in any number of processes. It guarantees, against each of them and all together:
//
//   * Service: each request, on an old or a new connection, has its reply after
//     a few rounds. A connection for which its pool (Peer::Pool) has no room ends the
//     least recently used one of that pool; gRPC's channels then reconnect by
//     themselves. Turns are bounded, as above, and a peer that sends without end is
//     read slowly (grpc_peer.h).
//   * Bounded memory: a fixed number of connections, each with an HTTP/2 session
//     (30 KiB) or a request (8 KiB), 64 KiB of output and small socket buffers; and
//     replies, which peers share that ask at about the same time. If all replies
//     exceed ReplyCache::Options::max_bytes, the holder that has taken nothing for the
//     longest time is closed.
//   * Bounded time: everything that waits has a deadline. Making a reply reads the
//     meter, under two mutexes that no peer can hold. While a load writes `info` or
//     evicts series, the read waits some microseconds, and half a second if the meter's
//     memory is inconsistent. After an unload or a new load, the read opens the maps
//     again, which takes up to 100 ms if netmeter-fds does not answer
//     (wait_for_loader). Peers cannot cause any of these.
//   * If memory or descriptors run out, single connections end, never the process.
//
// Not guaranteed: protection against users who burn their own share of CPU, which the
// kernel's scheduler divides; secrecy of the metrics; and service to a network that
// sends packets faster than a CPU can answer (--allow-public).
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_SERVER_H_
#define NETMETER_LIB_APPS_EXPORTER_SERVER_H_

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
#include "lib/apps/exporter/listen_address.h"
#include "lib/apps/exporter/reply_cache.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// One connection, as the event loop sees it. HttpPeer and GrpcPeer add the protocols.
//
// Threads: one.

class Peer {
 public:
  using Clock = std::chrono::steady_clock;

  // Each connection is in one of these pools, which have a fixed size. A newcomer to a
  // full pool ends the least recently used connection of that pool. So a flood of one
  // kind displaces only its own kind.
  enum class Pool {
    kHttpRequest,  // has not sent its request yet
    kHttpReply,    // has asked; has taken only one socket buffer so far
    kHttpTaking,   // takes its reply: a flood of peers that take nothing
                   // displaces none of these
    kHttpIdle,     // has its reply, has neither asked again nor closed yet
    kGrpcPreface,  // has not sent HTTP/2's preface yet
    kGrpcNew,      // speaks HTTP/2
    kGrpcKnown,    // and has made a call at an age of a second or more: a
                   // flood of short connections displaces none of these
  };
  static constexpr int kPools = 7;

  // `fd` is a non-blocking socket.
  Peer(UniqueFd fd, Pool pool) : fd_(std::move(fd)), pool_(pool) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Reads and writes a bounded amount, so that all peers have their turns. `events`
  // comes from epoll. Returns false if the connection is over. May throw
  // std::bad_alloc; then, too, the connection is over.
  virtual bool TakeTurn(uint32_t events) = 0;

  // When to call OnDeadline(), which returns false if the connection is over.
  virtual Clock::time_point Deadline() const = 0;
  virtual bool OnDeadline() = 0;

  // The events to ask epoll for.
  virtual uint32_t WantedEvents() const = 0;

  // Whether it holds a reply that it has not taken completely.
  virtual bool HoldsReply() const = 0;

  // Called before the server ends the connection. Tells the peer, if the protocol can,
  // without waiting.
  virtual void SayGoodbye() {}

  int fd() const { return fd_.get(); }
  Pool pool() const { return pool_; }
  // The last time when it was accepted, asked, or took bytes of a reply.
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
    // The size of each Peer::Pool. A useful connection survives a flood if its next
    // step comes before the flood fills the pool. On a busy machine a client may need a
    // tenth of a second from connect(2) to its first byte, in which a flood makes a
    // thousand connections.
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

  // Serves until stop_fd is readable. Then serves peers that still hold a reply, for at
  // most a second, and closes all connections.
  absl::Status Run(int stop_fd);

 private:
  using Clock = Peer::Clock;
  using Deadlines = std::set<std::pair<Clock::time_point, uint64_t>>;

  struct Listener {
    UniqueFd fd;
    MakePeer make_peer;
  };

  // A peer, and its positions in the lists below.
  struct Entry {
    std::unique_ptr<Peer> peer;
    Peer::Pool pool;                      // the list that it is in
    std::list<uint64_t>::iterator place;  // in that list
    Clock::time_point used_at;            // the order of that list
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

// The methods of a gRPC service. A cache has the reply of each.
struct GrpcService {
  ReplyCache* replies = nullptr;
  std::string path;                    // such as "/magma.orc8r.Service303/"
  std::map<std::string, int> methods;  // by name: the kind of reply
};

// Makes its peers; null in a build with --define=netmeter_service303=off.
Server::MakePeer MakeGrpcPeers(const GrpcService* service);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_SERVER_H_
