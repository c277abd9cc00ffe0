// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/core/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// RFC 9113, 3.4.
constexpr char kPrefaceBytes[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kPrefaceLength = sizeof(kPrefaceBytes) - 1;

constexpr uint64_t kHttpKey = 0;
constexpr uint64_t kGrpcKey = 1;
constexpr uint64_t kStopKey = 2;
constexpr uint64_t kFirstKey = 3;

constexpr int kBacklog = 1024;
// Ours, and those that gRPC and what is between us and it have of it.
constexpr size_t kDescriptorsOfAdopted = 4;
constexpr int kAdoptTries = 4;
// So that a flood of connections leaves time for those that are there.
constexpr int kAcceptsAtOnce = 128;
constexpr std::chrono::milliseconds kLingerTimeout(2000);
constexpr std::chrono::milliseconds kLongRound(1000);

// "127.0.0.1:9384" of a socket's own address.
std::string NameOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  char host[INET6_ADDRSTRLEN] = "";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return "";
  }
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof(host));
    return absl::StrCat("[", host, "]:", ntohs(address.sin6_port));
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
  inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", ntohs(address.sin_port));
}

bool IsLoopback(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    return ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const in6_addr& address =
      reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) &&
          address.s6_addr[12] == IN_LOOPBACKNET);
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no address like 127.0.0.1:9384 or [::1]:9384"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return wrong;
  absl::string_view host = text.substr(0, colon);
  uint32_t port;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return wrong;
  }
  const bool v6 = absl::ConsumePrefix(&host, "[");
  if (v6 && !absl::ConsumeSuffix(&host, "]")) return wrong;
  if (host == "localhost") host = "127.0.0.1";

  ListenAddress result;
  const std::string copy(host);
  if (v6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(result.storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET6, copy.c_str(), &address.sin6_addr) != 1) {
      return wrong;
    }
    result.length = sizeof(address);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(result.storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, copy.c_str(), &address.sin_addr) != 1) return wrong;
    result.length = sizeof(address);
  }
  result.loopback = IsLoopback(result.storage);
  return result;
}

Front::Front(Options options)
    : options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      next_key_(kFirstKey) {}

Front::~Front() = default;

absl::StatusOr<std::string> Front::ListenHttp(const ListenAddress& address) {
  return Listen(address, true);
}

absl::StatusOr<std::string> Front::ListenGrpc(const ListenAddress& address) {
  return Listen(address, false);
}

absl::StatusOr<std::string> Front::Listen(const ListenAddress& address,
                                          bool http) {
  if (!epoll_.ok()) return ErrnoStatus(errno, "epoll_create1");
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
           address.length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(
        errno, "listen",
        errno == EADDRINUSE ? "another program listens there" : "");
  }
  if (!Watch(fd.get(), EPOLLIN, http ? kHttpKey : kGrpcKey, true)) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  const std::string name = NameOf(fd.get());
  (http ? http_ : grpc_) = std::move(fd);
  return name;
}

bool Front::Watch(int fd, uint32_t events, uint64_t key, bool add) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd,
                   &event) == 0;
}

absl::Status Front::Run(int stop_fd) {
  if (!Watch(stop_fd, EPOLLIN, kStopKey, true)) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  epoll_event events[64];
  while (true) {
    const int count = epoll_wait(epoll_.get(), events, 64, CloseExpired());
    if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "epoll_wait");
    // Connections first: a new one may take the place of an old one.
    bool accept_http = false;
    bool accept_grpc = false;
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopKey) {
        while (CloseOldest(UINT64_MAX)) {
        }
        return absl::OkStatus();
      }
      accept_http |= key == kHttpKey;
      accept_grpc |= key == kGrpcKey;
      if (key >= kFirstKey) Handle(key);
    }
    if (accept_http) Accept(true);
    if (accept_grpc) Accept(false);
    AnswerAll();
  }
}

void Front::Accept(bool http) {
  const int listener = (http ? http_ : grpc_).get();
  const uint64_t first = next_key_;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd fd(
        accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.ok()) {
      Add(std::move(fd), http ? State::kRequest : State::kPreface);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      // It wants a descriptor before it looks whether anybody waits.
      pollfd waiting = {listener, POLLIN, 0};
      if (poll(&waiting, 1, 0) != 1) return;
      // Nothing of ours to give: the next connection that ends makes room.
      if (!CloseOldest(first)) {
        const timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, nullptr);
        return;
      }
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;  // EAGAIN: that was all
    }
  }
}

void Front::Add(UniqueFd fd, State state) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const uint64_t key = next_key_++;
  auto& order = order_[static_cast<int>(state)];
  try {  // what may find no memory, before anything is changed
    std::list<uint64_t> place(1, key);
    connections_[key].place = place.begin();
    order.splice(order.end(), place);
  } catch (const std::bad_alloc&) {
    connections_.erase(key);
    return;
  }
  Connection& connection = connections_[key];
  connection.fd = std::move(fd);
  connection.state = state;
  // A preface stays in the socket, for gRPC: EPOLLET, as it is readable for
  // good.
  const uint32_t events =
      state == State::kPreface ? EPOLLIN | EPOLLRDHUP | EPOLLET : EPOLLIN;
  if (!Watch(connection.fd.get(), events, key, true)) return Close(key);
  Enter(key, &connection, state);
  // Its request may be there, and share this round's reply.
  if (state == State::kRequest) Handle(key);
}

// Moves a connection to the end of a state's queue, with a new deadline.
void Front::Enter(uint64_t key, Connection* connection, State state) {
  auto& old_order = order_[static_cast<int>(connection->state)];
  auto& order = order_[static_cast<int>(state)];
  order.splice(order.end(), old_order, connection->place);
  connection->state = state;
  connection->deadline =
      state == State::kAdopted
          ? Clock::time_point::max()
          : Clock::now() + (state == State::kLinger ? kLingerTimeout
                            : state == State::kReply
                                ? options_.reply_timeout
                                : options_.request_timeout);
  // MakeRoom() chooses, the next round has none, who adopted it chooses.
  if (state == State::kReply || state == State::kAnswer ||
      state == State::kAdopted) {
    return;
  }
  while (order.size() > options_.max_connections && order.front() != key) {
    Close(order.front());
  }
}

void Front::Close(uint64_t key) {
  const auto found = connections_.find(key);
  Connection& connection = found->second;
  DropReply(&connection);
  // gRPC has a descriptor of the same connection.
  if (connection.state == State::kAdopted) {
    shutdown(connection.fd.get(), SHUT_RDWR);
  }
  // Out of epoll in any case, as long as that other descriptor is open.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd.get(), nullptr);
  order_[static_cast<int>(connection.state)].erase(connection.place);
  connections_.erase(found);
}

// Closes the oldest connection of the state that holds most descriptors, but
// none whose key is `first` or later. Returns false if there is none.
bool Front::CloseOldest(uint64_t first) {
  const std::list<uint64_t>* most = nullptr;
  size_t most_descriptors = 0;
  for (int i = 0; i < kStates; ++i) {
    const auto& order = order_[i];
    if (order.empty() || order.front() >= first) continue;
    const State state = static_cast<State>(i);
    size_t descriptors = order.size();
    if (state == State::kAdopted) descriptors *= kDescriptorsOfAdopted;
    // Who lingers has its reply.
    if (state == State::kLinger) descriptors = SIZE_MAX;
    if (descriptors > most_descriptors) {
      most = &order;
      most_descriptors = descriptors;
    }
  }
  if (most == nullptr) return false;
  Close(most->front());
  return true;
}

// Returns how long epoll may wait, in milliseconds.
int Front::CloseExpired() {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = Clock::time_point::max();
  for (const auto& order : order_) {
    while (!order.empty()) {
      const Clock::time_point deadline = connections_[order.front()].deadline;
      if (deadline > now) {
        next = std::min(next, deadline);
        break;
      }
      Close(order.front());
    }
  }
  if (next == Clock::time_point::max()) return -1;
  return static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(next - now)
          .count() +
      1);
}

void Front::Handle(uint64_t key) {
  try {
    HandleOrThrow(key);
  } catch (const std::bad_alloc&) {
    if (connections_.find(key) != connections_.end()) Close(key);
  }
}

void Front::HandleOrThrow(uint64_t key) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;  // closed since epoll_wait
  Connection* connection = &found->second;
  switch (connection->state) {
    case State::kRequest:
      return Read(key, connection);
    case State::kAnswer:  // no round is without AnswerAll()
      return;
    case State::kReply:
      return Write(key, connection);
    case State::kLinger:
      return Drain(key, connection);
    case State::kPreface:
      return ReadPreface(key, connection);
    case State::kAdopted:  // one side has closed
      return Close(key);
  }
}

void Front::Read(uint64_t key, Connection* connection) {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count =
      recv(connection->fd.get(), buffer,
           kMaxHttpHeadBytes - connection->received.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(key);
  connection->received.append(buffer, static_cast<size_t>(count));

  connection->parsed =
      ParseHttpRequest(connection->received, &connection->request);
  if (connection->parsed == HttpParse::kIncomplete) return;
  connection->received = std::string();
  Watch(connection->fd.get(), EPOLLOUT, key, false);
  Enter(key, connection, State::kAnswer);
}

void Front::AnswerAll() {
  // Peers that take nothing hold one reply a second then, not one each.
  if (pending_bytes_ <= options_.max_pending_bytes / 2 ||
      Clock::now() >= round_began_ + kLongRound) {
    ++round_;
    round_began_ = Clock::now();
  }
  const auto& waiting = order_[static_cast<int>(State::kAnswer)];
  while (!waiting.empty()) {
    const uint64_t key = waiting.front();
    try {
      Answer(key, &connections_[key]);
    } catch (const std::bad_alloc&) {
      Close(key);
    }
  }
}

void Front::Answer(uint64_t key, Connection* connection) {
  std::shared_ptr<Reply> reply = ReplyTo(*connection);
  if (reply->connections++ == 0) pending_bytes_ += reply->bytes.size();
  connection->reply = std::move(reply);
  connection->request = HttpRequest();
  Enter(key, connection, State::kReply);
  if (TooManyReplies()) MakeRoom(key);
  Write(key, connection);
}

bool Front::TooManyReplies() const {
  return pending_bytes_ > options_.max_pending_bytes ||
         order_[static_cast<int>(State::kReply)].size() >
             options_.max_connections;
}

// Closes peers that take nothing, until what is pending is not too much: all
// have a chance to take more, and who took something longest ago goes first.
// Not `newest`.
void Front::MakeRoom(uint64_t newest) {
  const auto& replies = order_[static_cast<int>(State::kReply)];
  for (auto next = replies.begin(); next != replies.end();) {
    const uint64_t key = *next++;
    if (key != newest) Write(key, &connections_[key]);
  }
  while (TooManyReplies()) {
    uint64_t idle = newest;
    for (const uint64_t key : replies) {
      if (key != newest &&
          (idle == newest ||
           connections_[key].taken_at < connections_[idle].taken_at)) {
        idle = key;
      }
    }
    if (idle == newest) return;
    Close(idle);
  }
}

std::shared_ptr<Front::Reply> Front::ReplyTo(const Connection& connection) {
  HttpReply reply;
  switch (connection.parsed) {
    case HttpParse::kIncomplete:
    case HttpParse::kBad:
      reply.status = 400;
      reply.body = "This is no request of HTTP/1.\n";
      break;
    case HttpParse::kTooLarge:
      reply.status = 431;
      reply.body = "The request's headers are too large.\n";
      break;
    case HttpParse::kComplete:
      try {
        return options_.answer(connection.request, round_);
      } catch (const std::bad_alloc&) {
        reply.status = 503;
        reply.body = "Not enough memory.\n";
      }
      break;
  }
  return std::make_shared<Reply>(
      FormatHttpReply(reply, connection.request.method == "HEAD"));
}

void Front::DropReply(Connection* connection) {
  if (connection->reply == nullptr) return;
  if (--connection->reply->connections == 0) {
    pending_bytes_ -= connection->reply->bytes.size();
  }
  connection->reply.reset();
}

void Front::Write(uint64_t key, Connection* connection) {
  const std::string& reply = connection->reply->bytes;
  while (connection->sent < reply.size()) {
    const ssize_t count =
        send(connection->fd.get(), reply.data() + connection->sent,
             reply.size() - connection->sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) return Close(key);
    connection->sent += static_cast<size_t>(count);
    connection->taken_at = Clock::now();
  }
  DropReply(connection);
  // close() with unread bytes would send a reset, and with it the peer may
  // lose what it has not read yet.
  shutdown(connection->fd.get(), SHUT_WR);
  Watch(connection->fd.get(), EPOLLIN, key, false);
  Enter(key, connection, State::kLinger);
}

void Front::Drain(uint64_t key, Connection* connection) {
  char buffer[16 * 1024];
  const ssize_t count = recv(connection->fd.get(), buffer, sizeof(buffer), 0);
  if (count > 0) return;
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  Close(key);
}

void Front::ReadPreface(uint64_t key, Connection* connection) {
  char buffer[kPrefaceLength];
  const ssize_t count =
      recv(connection->fd.get(), buffer, sizeof(buffer), MSG_PEEK);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(key);
  const size_t length = static_cast<size_t>(count);
  if (memcmp(buffer, kPrefaceBytes, length) != 0) return Close(key);
  if (length < kPrefaceLength) return;
  // Ours tells us when the connection ends, and can end it.
  if (!Watch(connection->fd.get(), EPOLLRDHUP | EPOLLET, key, false)) {
    return Close(key);
  }
  for (int i = 0; !Adopt(*connection); ++i) {
    if (i == kAdoptTries || !CloseOldest(key)) return Close(key);
    // What others have of it they close soon.
    const timespec pause = {0, 1000 * 1000};
    nanosleep(&pause, nullptr);
  }
  Enter(key, connection, State::kAdopted);
}

bool Front::Adopt(const Connection& connection) {
  const int given = fcntl(connection.fd.get(), F_DUPFD_CLOEXEC, 0);
  return given >= 0 && options_.adopt(given);
}

}  // namespace internal
}  // namespace netmeter
