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
#include "lib/core/unique_fd.h"
#include "lib/exporter/listen_address.h"
#include "lib/exporter/peer.h"
#include "lib/exporter/reply_cache.h"

namespace netmeter {
namespace internal {

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
