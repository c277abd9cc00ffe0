// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/server.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <new>

#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// The data of epoll's events: the key of a peer, or one of these.
constexpr uint64_t kStopKey = 0;
constexpr uint64_t kFirstListenerKey = 1;
constexpr uint64_t kFirstPeerKey = 100;
constexpr uint64_t kNobody = 0;

// At least the size of all pools together, so that every ready connection has its turn
// in this round, before newly accepted ones.
constexpr int kEvents = 4096;

// Bounds on accepting, so that a flood of connections leaves time for the existing
// ones: at most kAcceptsInARound, and after kFewAccepts at most for kAcceptTime. A
// first turn that asks for a large page takes as long as fifty others.
constexpr int kAcceptsInARound = 128;
constexpr int kFewAccepts = 16;
constexpr std::chrono::milliseconds kAcceptTime(2);

constexpr std::chrono::seconds kStopTimeout(1);

}  // namespace

Server::Server(const ReplyCache* replies, const Options& options)
    : replies_(replies),
      options_(options),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      next_key_(kFirstPeerKey) {}

Server::~Server() = default;

absl::StatusOr<std::string> Server::Listen(const ListenAddress& address,
                                           MakePeer make_peer) {
  if (!epoll_.ok()) return ErrnoStatus(errno, "epoll_create1");
  auto fd = internal::Listen(address);
  if (!fd.ok()) return fd.status();
  if (!Watch(fd->get(), EPOLLIN, kFirstListenerKey + listeners_.size(),
             EPOLL_CTL_ADD)) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  const std::string name = NameOf(*fd);
  listeners_.push_back({std::move(*fd), std::move(make_peer)});
  return name;
}

bool Server::Watch(int fd, uint32_t events, uint64_t key, int operation) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

absl::Status Server::Run(int stop_fd) {
  if (!Watch(stop_fd, EPOLLIN, kStopKey, EPOLL_CTL_ADD)) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  std::vector<epoll_event> events(kEvents);
  Clock::time_point stop_at = Clock::time_point::max();
  while (Clock::now() < stop_at) {
    const bool stopping = stop_at != Clock::time_point::max();
    if (stopping && !AnybodyHoldsReply()) break;
    const int count = epoll_wait(epoll_.get(), events.data(), kEvents,
                                 stopping ? 10 : MillisecondsToWait());
    if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "epoll_wait");
    uint64_t ready_listeners = 0;  // one bit for each
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key >= kFirstPeerKey) {
        TakeTurn(key, events[i].events);
      } else if (key == kStopKey) {
        stop_at = Clock::now() + kStopTimeout;
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stop_fd, nullptr);
      } else {
        ready_listeners |= uint64_t{1} << (key - kFirstListenerKey);
      }
    }
    PassDeadlines();
    // Last, because a new connection may displace one that has just had its turn.
    if (stop_at != Clock::time_point::max()) {
      for (const Listener& listener : listeners_) {
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.fd.get(), nullptr);
      }
      listeners_.clear();
    } else {
      for (size_t i = 0; i < listeners_.size(); ++i) {
        if (ready_listeners >> i & 1) Accept(i);
      }
    }
  }
  while (!entries_.empty()) {
    entries_.begin()->second.peer->SayGoodbye();
    Close(entries_.begin()->first);
  }
  return absl::OkStatus();
}

int Server::MillisecondsToWait() const {
  if (deadlines_.empty()) return -1;
  const auto left = deadlines_.begin()->first - Clock::now();
  if (left <= left.zero()) return 0;
  using std::chrono::milliseconds;
  const auto ms = std::chrono::duration_cast<milliseconds>(left).count() + 1;
  return static_cast<int>(std::min<int64_t>(ms, 3600 * 1000));
}

void Server::Accept(size_t listener) {
  const int fd = listeners_[listener].fd.get();
  const uint64_t first_new = next_key_;
  const Clock::time_point end = Clock::now() + kAcceptTime;
  for (int i = 0; i < kAcceptsInARound; ++i) {
    if (i >= kFewAccepts && Clock::now() >= end) return;
    UniqueFd accepted(
        accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.ok()) {
      Add(listener, std::move(accepted));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      // accept(2) needs a descriptor before it looks for waiting connections.
      pollfd waiting = {fd, POLLIN, 0};
      if (poll(&waiting, 1, 0) != 1) return;
      if (!FreeDescriptor(first_new)) {
        // No connection can be closed; the next one that ends makes room.
        const timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, nullptr);
        return;
      }
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;  // EAGAIN: no more are waiting
    }
  }
}

void Server::Add(size_t listener, UniqueFd fd) {
  const uint64_t key = next_key_++;
  try {  // everything that allocates comes before the first change
    std::unique_ptr<Peer> peer = listeners_[listener].make_peer(std::move(fd));
    std::list<uint64_t> place(1, key);
    Deadlines deadline;
    deadline.emplace(peer->Deadline(), key);
    Entry& entry = entries_[key];
    entry.pool = peer->pool();
    entry.used_at = peer->used_at();
    entry.place = place.begin();
    entry.peer = std::move(peer);
    entry.deadline =
        deadlines_.insert(deadline.extract(deadline.begin())).position;
    auto& pool = PoolOf(entry);
    pool.splice(pool.end(), place);
  } catch (const std::bad_alloc&) {
    return;
  }
  // The request has usually arrived already. epoll(7) watches a connection only if it
  // outlives this turn; in a flood, most do not.
  TakeTurn(key, EPOLLIN);
}

void Server::TakeTurn(uint64_t key, uint32_t events) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;  // closed in this round
  bool goes_on = false;
  try {
    goes_on = found->second.peer->TakeTurn(events);
  } catch (const std::bad_alloc&) {
  }
  if (!goes_on) return Close(key);
  Update(key, &found->second);
  if (replies_->full()) DropReplies(key);
}

// After a turn: notes the peer's new pool, time of use, deadline and events.
void Server::Update(uint64_t key, Entry* entry) {
  const Peer& peer = *entry->peer;
  if (peer.pool() != entry->pool || peer.used_at() != entry->used_at) {
    auto& old_pool = PoolOf(*entry);
    entry->pool = peer.pool();
    entry->used_at = peer.used_at();
    auto& pool = PoolOf(*entry);
    pool.splice(pool.end(), old_pool, entry->place);
  }
  if (peer.Deadline() != entry->deadline->first) {
    // Moving the node allocates nothing.
    Deadlines::node_type node = deadlines_.extract(entry->deadline);
    node.value().first = peer.Deadline();
    entry->deadline = deadlines_.insert(std::move(node)).position;
  }
  const uint32_t events = peer.WantedEvents();
  if (events != entry->events) {
    const int operation = entry->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    entry->events = events;
    if (!Watch(peer.fd(), events, key, operation)) return Close(key);
  }
  auto& pool = PoolOf(*entry);
  while (pool.size() > options_.places[static_cast<int>(entry->pool)] &&
         pool.front() != key) {
    entries_.find(pool.front())->second.peer->SayGoodbye();
    Close(pool.front());
  }
}

void Server::PassDeadlines() {
  const Clock::time_point now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t key = deadlines_.begin()->second;
    Entry& entry = entries_.find(key)->second;
    bool goes_on = false;
    try {
      goes_on = entry.peer->OnDeadline();
    } catch (const std::bad_alloc&) {
    }
    // A deadline that does not advance would make this loop endless.
    if (!goes_on || entry.peer->Deadline() <= now) {
      entry.peer->SayGoodbye();
      Close(key);
    } else {
      Update(key, &entry);
    }
  }
}

// Closes peers that take nothing, until there is room for replies again. First all may
// take more; then those go that have taken nothing for the longest time. Spares
// `newest`.
void Server::DropReplies(uint64_t newest) {
  std::vector<uint64_t> holders;
  try {
    for (const auto& entry : entries_) {
      if (entry.second.peer->HoldsReply()) holders.push_back(entry.first);
    }
  } catch (const std::bad_alloc&) {  // fewer may take more
  }
  for (const uint64_t key : holders) {
    const auto found = entries_.find(key);
    if (key == newest || found == entries_.end()) continue;
    bool goes_on = false;
    try {
      goes_on = found->second.peer->TakeTurn(EPOLLOUT);
    } catch (const std::bad_alloc&) {
    }
    if (goes_on) {
      Update(key, &found->second);
    } else {
      Close(key);
    }
  }
  while (replies_->full()) {
    const uint64_t holder = LeastRecentHolder(newest);
    if (holder == kNobody) return;
    Close(holder);
  }
}

uint64_t Server::LeastRecentHolder(uint64_t but) const {
  uint64_t result = kNobody;
  Clock::time_point used_at = Clock::time_point::max();
  for (const auto& entry : entries_) {
    if (entry.first != but && entry.second.used_at < used_at &&
        entry.second.peer->HoldsReply()) {
      result = entry.first;
      used_at = entry.second.used_at;
    }
  }
  return result;
}

// Closes the least recently used connection of the largest pool, but none whose
// key is `first_new` or later. Returns false if there is none.
bool Server::FreeDescriptor(uint64_t first_new) {
  const std::list<uint64_t>* largest = nullptr;
  size_t most = 0;
  for (int i = 0; i < Peer::kPools; ++i) {
    const auto& pool = pools_[i];
    if (pool.empty() || pool.front() >= first_new) continue;
    // Connections that have had their reply go first.
    const size_t size = static_cast<Peer::Pool>(i) == Peer::Pool::kHttpIdle
                            ? SIZE_MAX
                            : pool.size();
    if (size > most) {
      largest = &pool;
      most = size;
    }
  }
  if (largest == nullptr) return false;
  const uint64_t key = largest->front();
  entries_.find(key)->second.peer->SayGoodbye();
  Close(key);
  return true;
}

void Server::Close(uint64_t key) {
  const auto found = entries_.find(key);
  PoolOf(found->second).erase(found->second.place);
  deadlines_.erase(found->second.deadline);
  entries_.erase(found);  // closing the descriptor removes it from epoll
}

bool Server::AnybodyHoldsReply() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.peer->HoldsReply();
  });
}

}  // namespace internal
}  // namespace netmeter
