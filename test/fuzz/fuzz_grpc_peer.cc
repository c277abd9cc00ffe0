// SPDX-License-Identifier: BSD-3-Clause
// lib/exporter/server.h with lib/exporter/grpc_peer.h: the exporter's own event loop
// and connections, on real sockets. An input is what clients send, cut into parts by
// the bytes 0xff N: then the client N % 4 goes on; N >= 224: it closes its side, N >=
// 240: all of it, by TCP with a reset. The first byte says which of them send HTTP/2's
// preface first. They come by TCP where the length of the input is a multiple of 16,
// which the fuzzer does not come to prefer: a Unix socket takes half of the time. To
// connect and to close is most of that time, so that an input does it eight times at
// most.
//
// After each input a client that keeps to the protocol has its reply: nothing that
// others did keeps the server from that.

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "lib/exporter/grpc_peer.h"
#include "lib/exporter/server.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace fuzz {
namespace {

using namespace internal;  // NOLINT

constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
// SETTINGS without any, and an empty HEADERS frame's worth of a call.
constexpr std::string_view kSettings("\0\0\0\4\0\0\0\0\0", 9);

constexpr int kMostConnections = 8;  // of an input

// :method POST, :scheme http, and literals without indexing (RFC 7541).
std::string Call() {
  std::string block = "\x83\x86";
  const auto literal = [&block](std::string_view name, std::string_view value) {
    block += '\0';
    block += static_cast<char>(name.size());
    block += name;
    block += static_cast<char>(value.size());
    block += value;
  };
  literal(":path", "/s/Reply");
  literal(":authority", "localhost");
  literal("content-type", "application/grpc");
  literal("te", "trailers");
  std::string frames(kPreface);
  frames += kSettings;
  frames += std::string("\0\0", 2) + static_cast<char>(block.size()) +
            std::string("\1\4\0\0\0\1", 6) + block;
  frames += std::string("\0\0\5\0\1\0\0\0\1\0\0\0\0\0", 14);
  return frames;
}

class Exporter {
 public:
  Exporter() : replies_(ReplyCache::Options()), server_(&replies_) {
    service_.replies = &replies_;
    service_.path = "/s/";
    service_.methods["Reply"] =
        replies_.Add([] { return std::string("pong"); });
    const auto make_peer = [this](UniqueFd fd) {
      return std::make_unique<GrpcPeer>(std::move(fd), &service_);
    };
    const auto address = ParseListenAddress("127.0.0.1:0");
    FUZZ_CHECK(address.ok());
    const auto name = server_.Listen(*address, make_peer);
    FUZZ_CHECK(name.ok());
    port_ =
        static_cast<uint16_t>(std::stoi(name->substr(name->rfind(':') + 1)));
    // An address that no option can say, of this process alone.
    sockaddr_un local = {};
    local.sun_family = AF_UNIX;
    snprintf(local.sun_path + 1, sizeof(local.sun_path) - 1, "netmeter-fuzz-%d",
             static_cast<int>(getpid()));
    memcpy(&local_.storage, &local, sizeof(local));
    local_.length = sizeof(local);
    FUZZ_CHECK(server_.Listen(local_, make_peer).ok());
    stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    // For as long as the process lives.
    std::thread([this] { FUZZ_CHECK(server_.Run(stop_.get()).ok()); }).detach();
  }

  // poll(2) is never restarted after a signal.
  static void Await(const UniqueFd& fd, short events) {
    pollfd polled = {fd.get(), events, 0};
    int ready;
    do {
      ready = poll(&polled, 1, 5000);
    } while (ready < 0 && errno == EINTR);
    FUZZ_CHECK(ready == 1);
  }

  UniqueFd Connect(bool tcp) const {
    if (!tcp) {
      UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      int error;
      do {
        error = connect(fd.get(),
                        reinterpret_cast<const sockaddr*>(&local_.storage),
                        local_.length);
      } while (error != 0 && errno == EINTR);
      FUZZ_CHECK(error == 0);
      return fd;
    }
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
      // libFuzzer's SIGALRM, each 6 s with -timeout=10. The connection goes on.
      FUZZ_CHECK(errno == EINTR);
      Await(fd, POLLOUT);
      int error = 0;
      socklen_t size = sizeof(error);
      FUZZ_CHECK(getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) ==
                     0 &&
                 error == 0);
    }
    // No TIME_WAIT: a run makes a hundred thousand of connections.
    const linger at_once = {1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return fd;
  }

  // A well-behaved client has "pong".
  void ExpectServed(bool tcp) const {
    static const std::string call = Call();
    const UniqueFd fd = Connect(tcp);
    FUZZ_CHECK(send(fd.get(), call.data(), call.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(call.size()));
    std::string got;
    char buffer[4096];
    while (got.find("pong") == got.npos) {
      Await(fd, POLLIN);
      const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
      FUZZ_CHECK(count > 0);
      got.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  ReplyCache replies_;
  GrpcService service_;
  Server server_;
  uint16_t port_ = 0;
  ListenAddress local_;
  UniqueFd stop_;
};

void Send(const UniqueFd& fd, std::string_view bytes) {
  // The server may have closed, which is its right; it may not take all at once.
  if (!bytes.empty()) {
    (void)!send(fd.get(), bytes.data(), bytes.size(),
                MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Run(const Exporter& exporter, std::string_view input) {
  const uint8_t polite = static_cast<uint8_t>(input[0]);
  const bool tcp = input.size() % 16 == 0;
  input.remove_prefix(1);
  UniqueFd clients[4];
  size_t now = 0;
  int connections = 0;
  while (true) {
    if (!clients[now].ok()) {
      if (connections++ == kMostConnections) break;
      clients[now] = exporter.Connect(tcp);
      if (polite >> now & 1) {
        Send(clients[now], kPreface);
        Send(clients[now], kSettings);
      }
    }
    const size_t cut = std::min(input.find('\xff'), input.size());
    Send(clients[now], input.substr(0, cut));
    if (input.size() < cut + 2) break;
    const uint8_t next = static_cast<uint8_t>(input[cut + 1]);
    input.remove_prefix(cut + 2);
    if (next >= 240) {
      clients[now] = UniqueFd();
    } else if (next >= 224) {
      shutdown(clients[now].get(), SHUT_WR);
    }
    now = next % 4;
  }
  exporter.ExpectServed(tcp);
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* exporter = new netmeter::fuzz::Exporter;
  if (size < 1) return 0;
  netmeter::fuzz::Run(*exporter, {reinterpret_cast<const char*>(data), size});
  return 0;
}
