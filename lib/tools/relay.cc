// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/relay.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "lib/core/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// One call, with what belongs to it, or some of the small frames.
constexpr size_t kRequestTurn = 2048;
constexpr size_t kReplyTurn = 256 * 1024;
constexpr int64_t kMaxBudget = 64 * 1024;
constexpr int kPauseMs = 5;  // where the budget is spent
constexpr int kLookMs = 1000;  // for peers that take nothing
constexpr std::chrono::seconds kReplyTimeout(30);

}  // namespace

Relay::Relay(size_t cost_per_second, size_t max_connections)
    : cost_per_second_(cost_per_second), max_connections_(max_connections) {}

Relay::~Relay() {
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  for (Connection& connection : connections_) Close(&connection);
  for (Connection& connection : added_) Close(&connection);
}

absl::Status Relay::Start() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.ok()) return ErrnoStatus(errno, "epoll_create1");
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.ok()) return ErrnoStatus(errno, "eventfd");
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  earned_at_ = Clock::now();
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return ErrnoStatus(error.code().value(), "pthread_create");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Relay::Add(UniqueFd peer) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) !=
      0) {
    return ErrnoStatus(errno, "socketpair");
  }
  UniqueFd server(fds[0]);
  UniqueFd given(fds[1]);
  std::list<Connection> connection;
  try {
    connection.emplace_back();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("not enough memory");
  }
  connection.front().peer.fd = std::move(peer);
  connection.front().server.fd = std::move(server);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    added_.splice(added_.end(), connection);
  }
  eventfd_write(wake_.get(), 1);
  return given;
}

void Relay::Run() {
  while (TakeAdded()) {
    EarnBudget();
    Round();
    Wait(more_ ? 0 : hungry_ ? kPauseMs : blocked_ ? kLookMs : -1);
  }
}

// Returns false if it is time to stop.
bool Relay::TakeAdded() {
  std::list<Connection> added;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return false;
    added.swap(added_);
  }
  while (!added.empty()) {
    Connection* connection = &added.front();
    connections_.splice(connections_.end(), added, added.begin());
    if (!Watch(&connection->peer) || !Watch(&connection->server)) {
      Close(connection);
      connections_.pop_back();
      continue;
    }
    connection->active_at = Clock::now();
    connection->blocked_at = Clock::time_point::max();
  }
  KeepToLimit();
  return true;
}

void Relay::KeepToLimit() {
  while (connections_.size() > max_connections_) {
    const auto victim = std::min_element(
        connections_.begin(), connections_.end(),
        [](const Connection& a, const Connection& b) {
          if (a.limiter.calls() != b.limiter.calls()) {
            return a.limiter.calls() < b.limiter.calls();
          }
          return a.active_at < b.active_at;
        });
    Close(&*victim);
    connections_.erase(victim);
  }
}

bool Relay::Watch(End* end) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = end;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end->fd.get(), &event) == 0;
}

void Relay::Wait(int timeout_ms) {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    auto* end = static_cast<End*>(events[i].data.ptr);
    if (end == nullptr) {
      eventfd_t ignored;
      eventfd_read(wake_.get(), &ignored);
      continue;
    }
    if (events[i].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
      end->ended = true;
    }
    if (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) {
      end->readable = true;
    }
    if (events[i].events & ~static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP)) {
      end->writable = true;
    }
  }
}

void Relay::EarnBudget() {
  const Clock::time_point now = Clock::now();
  const double seconds =
      std::chrono::duration<double>(now - earned_at_).count();
  const double earned =
      std::min(seconds * static_cast<double>(cost_per_second_),
               2.0 * static_cast<double>(kMaxBudget));
  if (earned < 1) return;  // else many short rounds would earn nothing
  earned_at_ = now;
  budget_ = std::min(kMaxBudget, budget_ + static_cast<int64_t>(earned));
}

// Gives each connection its turn. Who could spend goes to the end of the queue.
void Relay::Round() {
  more_ = false;
  hungry_ = false;
  blocked_ = false;
  auto next = connections_.begin();
  for (size_t left = connections_.size(); left > 0; --left) {
    const auto current = next++;
    size_t cost = 0;
    if (Turn(&*current, &cost) == Moved::kEnded) {
      Close(&*current);
      connections_.erase(current);
    } else if (cost > 0) {
      connections_.splice(connections_.end(), connections_, current);
    }
  }
}

Relay::Moved Relay::Turn(Connection* connection, size_t* cost) {
  // Whatever it sent before: who sends masses and goes would else stay until
  // all of that had its turn.
  if (connection->peer.ended) return Moved::kEnded;
  const Buffer<16 * 1024>& replies = connection->replies;
  const size_t begin = replies.begin;
  size_t replied = 0;
  const Moved reply =
      Move(&connection->server, &connection->peer, &connection->replies,
           kReplyTurn, &replied,
           [](const char*, size_t size, size_t, size_t* count) {
             *count += size;
             return size;
           });
  if (reply == Moved::kEnded) return reply;
  if (reply == Moved::kMore) more_ = true;
  const Clock::time_point now = Clock::now();
  const bool taken = replied > 0 || replies.begin != begin;
  if (taken || replies.begin == replies.passed) {
    connection->blocked_at = Clock::time_point::max();
  }
  if (replies.begin < replies.passed) {
    blocked_ = true;
    if (connection->blocked_at == Clock::time_point::max()) {
      connection->blocked_at = now;
    }
    if (now - connection->blocked_at > kReplyTimeout) return Moved::kEnded;
  }
  const Moved request =
      Move(&connection->peer, &connection->server, &connection->requests,
           budget_ > 0 ? kRequestTurn : 0, cost,
           [connection](const char* bytes, size_t size, size_t limit,
                        size_t* sum) {
             return connection->limiter.Pass(bytes, size, limit, sum);
           });
  budget_ -= static_cast<int64_t>(*cost);
  if (*cost > 0 || taken) connection->active_at = now;
  if (request == Moved::kMore) (budget_ > 0 ? more_ : hungry_) = true;
  return request;
}

// Reads and sends until the cost is `limit`. `pass` takes bytes up to that, and
// adds to the cost; it returns how many it took, or kRefused.
template <size_t kSize, typename Pass>
Relay::Moved Relay::Move(End* from, End* to, Buffer<kSize>* buffer,
                         size_t limit, size_t* cost, const Pass& pass) {
  while (true) {
    while (buffer->begin < buffer->passed) {
      if (!to->writable) return Moved::kBlocked;
      const ssize_t sent =
          send(to->fd.get(), buffer->bytes + buffer->begin,
               buffer->passed - buffer->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        buffer->begin += static_cast<size_t>(sent);
      } else if (errno == EAGAIN) {
        to->writable = false;
      } else if (errno != EINTR) {
        return Moved::kEnded;
      }
    }
    if (buffer->passed == buffer->end) {
      if (!from->readable) return Moved::kBlocked;
      if (*cost >= limit) return Moved::kMore;
      const ssize_t received =
          recv(from->fd.get(), buffer->bytes, kSize, MSG_DONTWAIT);
      if (received > 0) {
        buffer->begin = 0;
        buffer->passed = 0;
        buffer->end = static_cast<size_t>(received);
      } else if (received < 0 && errno == EAGAIN) {
        from->readable = false;
        return Moved::kBlocked;
      } else if (received == 0 || errno != EINTR) {
        return Moved::kEnded;
      } else {
        continue;
      }
    }
    if (*cost >= limit) return Moved::kMore;
    const size_t passed = pass(buffer->bytes + buffer->passed,
                               buffer->end - buffer->passed, limit, cost);
    if (passed == FrameLimiter::kRefused) return Moved::kEnded;
    buffer->passed += passed;
  }
}

// Whoever has a duplicate of a descriptor sees the end too, and keeps it in no
// epoll.
void Relay::Close(Connection* connection) {
  for (const End* end : {&connection->peer, &connection->server}) {
    shutdown(end->fd.get(), SHUT_RDWR);
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, end->fd.get(), nullptr);
  }
}

}  // namespace internal
}  // namespace netmeter
