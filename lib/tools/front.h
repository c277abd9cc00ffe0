// SPDX-License-Identifier: BSD-3-Clause
// Accepts connections for netmeter-exporter: answers HTTP itself, and hands
// those of gRPC over once they have sent HTTP/2's preface. Made for peers that
// are slow, silent, greedy or mad: each costs one descriptor and at most 8 KiB
// until it has sent a request, has a deadline, and is the first to go when
// there are too many. No peer can make another one wait, or lose its reply.
// Where memory is short a reply is 503, or its connection is closed; where
// descriptors are, the oldest of those that hold most of them. The others are
// served.
//
//   Front front(options);
//   absl::StatusOr<int> port = front.ListenHttp(address);
//   absl::Status status = front.Run(stop_fd);
//
// Threads: one.

#ifndef NETMETER_LIB_TOOLS_FRONT_H_
#define NETMETER_LIB_TOOLS_FRONT_H_

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/core/unique_fd.h"
#include "lib/tools/http_request.h"

namespace netmeter {
namespace internal {

// An IP address and a port.
struct ListenAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  bool loopback = false;
};

// "127.0.0.1:9384", "[::1]:0", "localhost:9384"; InvalidArgument for others.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

class Front {
 public:
  struct Reply {
    explicit Reply(std::string all) : bytes(std::move(all)) {}
    const std::string bytes;  // FormatHttpReply()
    size_t connections = 0;   // Front's: those that have not taken all of it
  };

  struct Options {
    // Answers one request; never called in parallel. All requests of one round
    // were complete before the first of them is answered: equal ones can share
    // a reply, so that many peers cost as little as one. Where replies that
    // nobody takes are more than half of max_pending_bytes, a round lasts a
    // second: a reply may be so old. std::bad_alloc is 503.
    std::function<std::shared_ptr<Reply>(const HttpRequest& request,
                                         uint64_t round)>
        answer;
    // Takes over a connection of HTTP/2, non-blocking. Front keeps a duplicate,
    // by which it sees the end; how many there may be is not its matter.
    // Returns false, with `fd` closed, without descriptors or memory.
    std::function<bool(int fd)> adopt;

    // Of each sort: HTTP requests, replies, HTTP/2 before its preface. A further
    // one takes the place of the oldest; of a reply, as below.
    size_t max_connections = 128;
    // Of replies that were not taken yet, a shared one counted once. With more,
    // who took something longest ago goes. A full table has 20 MB.
    size_t max_pending_bytes = 64 * 1024 * 1024;
    std::chrono::milliseconds request_timeout{5000};
    std::chrono::milliseconds reply_timeout{30000};
  };

  explicit Front(Options options);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Listens; "host:port", with the true port if it was 0.
  absl::StatusOr<std::string> ListenHttp(const ListenAddress& address);
  absl::StatusOr<std::string> ListenGrpc(const ListenAddress& address);

  // Serves until stop_fd is readable, then closes everything.
  absl::Status Run(int stop_fd);

 private:
  using Clock = std::chrono::steady_clock;

  enum class State {
    kRequest,  // HTTP: until its head is complete
    kAnswer,   // HTTP: until the end of this round, which answers it
    kReply,    // HTTP: until all is sent
    kLinger,   // HTTP: until the peer has closed, so that it gets all
    kPreface,  // HTTP/2: until its first bytes are there
    kAdopted,  // gRPC has it; this is a duplicate that sees it end
  };
  static constexpr int kStates = 6;

  struct Connection {
    UniqueFd fd;
    State state = State::kRequest;
    Clock::time_point deadline;
    std::string received;
    HttpRequest request;
    HttpParse parsed = HttpParse::kIncomplete;
    std::shared_ptr<Reply> reply;
    size_t sent = 0;
    Clock::time_point taken_at;  // the last of it
    std::list<uint64_t>::iterator place;  // in order_[state]
  };

  absl::StatusOr<std::string> Listen(const ListenAddress& address, bool http);
  bool Watch(int fd, uint32_t events, uint64_t key, bool add);
  void Accept(bool http);
  void Add(UniqueFd fd, State state);
  void Enter(uint64_t key, Connection* connection, State state);
  void Close(uint64_t key);
  bool CloseOldest(uint64_t first);
  void Handle(uint64_t key);
  void HandleOrThrow(uint64_t key);
  void Read(uint64_t key, Connection* connection);
  void AnswerAll();
  void Answer(uint64_t key, Connection* connection);
  bool TooManyReplies() const;
  void MakeRoom(uint64_t newest);
  std::shared_ptr<Reply> ReplyTo(const Connection& connection);
  void DropReply(Connection* connection);
  void Write(uint64_t key, Connection* connection);
  void Drain(uint64_t key, Connection* connection);
  void ReadPreface(uint64_t key, Connection* connection);
  bool Adopt(const Connection& connection);
  int CloseExpired();

  const Options options_;
  UniqueFd epoll_;
  UniqueFd http_;
  UniqueFd grpc_;
  uint64_t next_key_;
  uint64_t round_ = 0;
  Clock::time_point round_began_;
  std::map<uint64_t, Connection> connections_;
  std::list<uint64_t> order_[kStates];  // oldest first
  size_t pending_bytes_ = 0;            // in replies
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_FRONT_H_
