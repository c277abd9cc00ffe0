// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/apps/exporter/grpc_peer.h"
#include "lib/apps/exporter/http_peer.h"
#include "lib/testing/await.h"
#include "lib/testing/failing_new.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class ServerTest : public testing::Test {
 protected:
  // A path is answered with itself; "/large" and "/other" with 8 MB, of a cache.
  void SetUp() override {
    cache_options_.max_bytes = 20 << 20;  // of /large, two have room
    handler_ = [this](const HttpRequest& request) {
      ++answered_;
      HttpAnswer answer;
      if (request.path == "/large") {
        answer.body = replies_->Get(large_);
      } else {
        answer.reply.body = "answer to " + request.path;
      }
      return answer;
    };
    for (size_t& places : options_.places) places = 4;
    timeouts_.request = std::chrono::milliseconds(60000);
    timeouts_.reply = std::chrono::milliseconds(60000);
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    ASSERT_EQ(write(stop_.get(), &one, sizeof(one)),
              static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }

  void SetPlaces(size_t places) {
    for (size_t& of_pool : options_.places) of_pool = places;
  }

  void Start() {
    replies_ = std::make_unique<ReplyCache>(cache_options_);
    large_ = replies_->Add([this] {
      ++made_;
      return std::string(8 << 20, 'x');
    });
    service_.replies = replies_.get();
    server_ = std::make_unique<Server>(replies_.get(), options_);
    stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    const auto loopback = ParseListenAddress("127.0.0.1:0");
    auto http = server_->Listen(*loopback, [this](UniqueFd fd) {
      if (on_accept_) on_accept_();
      return std::make_unique<HttpPeer>(std::move(fd), &handler_, timeouts_);
    });
    auto grpc = server_->Listen(*loopback, [this](UniqueFd fd) {
      return std::make_unique<GrpcPeer>(std::move(fd), &service_);
    });
    ASSERT_TRUE(http.ok() && grpc.ok());
    http_ = *ParseListenAddress(*http);
    grpc_ = *ParseListenAddress(*grpc);
    thread_ =
        std::thread([this] { EXPECT_TRUE(server_->Run(stop_.get()).ok()); });
  }

  static UniqueFd Connect(const ListenAddress& address,
                          const std::string& send_this = "") {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval timeout = {10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    EXPECT_EQ(
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                address.length),
        0);
    EXPECT_EQ(send(fd.get(), send_this.data(), send_this.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(send_this.size()));
    return fd;
  }

  // All until the peer closes or resets; "(timeout)" at the end if neither.
  static std::string ReadAll(const UniqueFd& fd) {
    std::string all;
    char buffer[65536];
    while (true) {
      const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (count == 0 || (count < 0 && errno == ECONNRESET)) return all;
      if (count < 0) return all + "(timeout)";
      all.append(buffer, static_cast<size_t>(count));
    }
  }

  std::string Get(const std::string& path) {
    return ReadAll(Connect(http_, "GET " + path + " HTTP/1.0\r\n\r\n"));
  }

  // A request on a connection that stays open; its reply.
  static std::string Ask(const UniqueFd& fd, const std::string& path) {
    const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    const std::string end = "\r\n\r\nanswer to " + path;
    std::string reply;
    char byte;
    while (!EndsWithText(reply, end) && recv(fd.get(), &byte, 1, 0) == 1) {
      reply.push_back(byte);
    }
    return reply;
  }
  static bool EndsWithText(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
  }

  static bool IsOpen(const UniqueFd& fd) {
    pollfd p = {fd.get(), POLLIN, 0};
    return poll(&p, 1, 0) == 0;
  }

  ReplyCache::Options cache_options_;
  std::unique_ptr<ReplyCache> replies_;
  int large_ = 0;
  HttpPeer::Handler handler_;
  std::function<void()> on_accept_;
  HttpPeer::Timeouts timeouts_;
  GrpcService service_;
  Server::Options options_;
  std::unique_ptr<Server> server_;
  UniqueFd stop_;
  ListenAddress http_;
  ListenAddress grpc_;
  std::thread thread_;
  std::atomic<int> answered_{0};
  std::atomic<int> made_{0};
};

TEST_F(ServerTest, AnswersAndCloses) {
  Start();
  for (int i = 0; i < 100; ++i) {
    const std::string reply = Get("/x");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(reply, EndsWith("\r\n\r\nanswer to /x"));
  }
}

// Each scrape had a connection of its own.
TEST_F(ServerTest, AConnectionTakesOneRequestAfterTheOther) {
  Start();
  const UniqueFd fd = Connect(http_);
  for (int i = 0; i < 100; ++i) {
    const std::string path = "/" + std::to_string(i);
    EXPECT_THAT(Ask(fd, path), Not(HasSubstr("Connection: close")));
  }
  const std::string last = "HEAD /last HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_GT(send(fd.get(), last.data(), last.size(), MSG_NOSIGNAL), 0);
  EXPECT_THAT(ReadAll(fd), EndsWith("Connection: close\r\n\r\n"));
  EXPECT_EQ(answered_, 101);
}

// RFC 9112, 9.3.2: the client makes the others again.
TEST_F(ServerTest, AnswersTheFirstOfRequestsThatComeAtOnceAndCloses) {
  Start();
  const UniqueFd fd =
      Connect(http_, "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
  const std::string reply = ReadAll(fd);
  EXPECT_THAT(reply, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\nanswer to /a"));
  EXPECT_EQ(answered_, 1);
}

TEST_F(ServerTest, IdleConnectionsMakeRoomForOthers) {
  Start();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(Connect(http_));
    EXPECT_THAT(Ask(idle.back(), "/x"), EndsWith("answer to /x"));
  }
  EXPECT_TRUE(Await([&] {
    size_t open = 0;
    for (const UniqueFd& fd : idle) open += IsOpen(fd);
    return open == options_.places[0];
  }));
}

// An unread body must not reset the connection before the reply.
TEST_F(ServerTest, AnswersARequestWithABody) {
  Start();
  const UniqueFd fd =
      Connect(http_, "POST /x HTTP/1.0\r\n\r\n" + std::string(100000, 'b'));
  usleep(50000);
  EXPECT_THAT(ReadAll(fd), EndsWith("answer to /x"));
}

TEST_F(ServerTest, RefusesWhatIsNoRequestAndWhatIsTooLarge) {
  Start();
  EXPECT_THAT(ReadAll(Connect(http_, "\x16\x03\x01 nonsense\r\n")),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      ReadAll(Connect(http_, "GET / HTTP/1.1\r\nx: " + std::string(9000, 'x'))),
      StartsWith("HTTP/1.1 431 "));
  EXPECT_EQ(answered_, 0);
}

// Any of them ended the exporter.
TEST_F(ServerTest, WithoutMemoryOneRequestFailsAndTheOthersAreServed) {
  std::unique_ptr<FailNew> fail;  // of the server's thread
  int number = -1;
  handler_ = [&](const HttpRequest& request) {
    fail.reset();
    if (request.path == "/none") throw std::bad_alloc();
    HttpAnswer answer;
    answer.reply.body = "answer to " + request.path + std::string(1000, ' ');
    if (request.path.find("/fail/") == 0) {
      number = atoi(request.path.c_str() + 6);
    }
    return answer;
  };
  // The n-th allocation from the next connection on.
  on_accept_ = [&] {
    if (number >= 0) fail = std::make_unique<FailNew>(number);
    number = -1;
  };
  Start();
  EXPECT_THAT(Get("/none"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Get("/none"), EndsWith("\r\n\r\nNot enough memory.\n"));
  int refused = 0;
  for (int n = 0; n < 40; ++n) {
    EXPECT_THAT(Get("/fail/" + std::to_string(n)),
                StartsWith("HTTP/1.1 200 OK\r\n"));
    bool served = false;
    for (int i = 0; i < 3 && !served; ++i) {
      served = Get("/").find("answer to /") != std::string::npos;
      refused += !served;
    }
    EXPECT_TRUE(served) << n;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(ServerTest, PeersThatTakeNothingMakeRoomForOthers) {
  SetPlaces(100);
  // Each has a reply of its own.
  cache_options_.lifetime = cache_options_.long_lifetime =
      std::chrono::milliseconds(0);
  cache_options_.lifetime_per_making = 0;
  Start();
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 20; ++i) {
    greedy.push_back(Connect(http_, "GET /large HTTP/1.0\r\n\r\n"));
    EXPECT_THAT(Get("/x"), EndsWith("answer to /x"));
  }
  EXPECT_TRUE(Await([&] { return answered_ == 40; }));
  EXPECT_GT(Get("/large").size(), size_t{8 << 20});
  int whole = 0;
  for (const UniqueFd& fd : greedy) whole += ReadAll(fd).size() > (8 << 20);
  EXPECT_LE(whole, 2);
}

// On a busy machine, a reader of a large page may not run for a tenth of a second.
// Meanwhile a storm of scrapes by peers that read nothing took all places: the
// page ended in the middle.
TEST_F(ServerTest, PeersThatTakeNothingDisplaceNobodyWhoTakesItsReply) {
  // All share one copy: memory is not what is short here.
  cache_options_.lifetime = std::chrono::milliseconds(60000);
  Start();
  const UniqueFd fd = Connect(http_, "GET /large HTTP/1.0\r\n\r\n");
  // Until its buffer is full: a reader is known by the room that appears again.
  int before, waiting = 0;
  do {
    before = waiting;
    usleep(100000);
    ASSERT_EQ(ioctl(fd.get(), FIONREAD, &waiting), 0);
  } while (waiting == 0 || waiting != before);
  std::vector<char> buffer(static_cast<size_t>(waiting) + (1 << 20));
  ASSERT_EQ(recv(fd.get(), buffer.data(), buffer.size(), MSG_WAITALL),
            static_cast<ssize_t>(buffer.size()));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(Connect(http_, "GET /large HTTP/1.0\r\n\r\n"));
  }
  EXPECT_TRUE(Await([&] { return answered_ == 21; }));
  EXPECT_GT(ReadAll(fd).size() + buffer.size(), size_t{8 << 20});
}

TEST_F(ServerTest, PeersHaveADeadline) {
  timeouts_.request = std::chrono::milliseconds(100);
  timeouts_.reply = std::chrono::milliseconds(200);
  Start();
  EXPECT_EQ(ReadAll(Connect(http_)), "");
  EXPECT_EQ(ReadAll(Connect(http_, "GET /")), "");
  EXPECT_EQ(ReadAll(Connect(grpc_, "PRI *")), "");
  const UniqueFd fd = Connect(http_, "GET /large HTTP/1.0\r\n\r\n");
  usleep(500000);
  EXPECT_LT(ReadAll(fd).size(), size_t{8 << 20});
}

TEST_F(ServerTest, ClosesWhatIsNoHttp2WithoutAWord) {
  Start();
  EXPECT_EQ(ReadAll(Connect(grpc_, "GET / HTTP/1.0\r\n\r\n")), "");
  EXPECT_EQ(ReadAll(Connect(grpc_, "PRI * HTTP/1")), "");
  EXPECT_EQ(ReadAll(Connect(grpc_, "\x16\x03\x01")), "");  // TLS
  // The preface may come in pieces; then the server speaks.
  const UniqueFd fd = Connect(grpc_, "PRI * HT");
  usleep(50000);
  EXPECT_TRUE(IsOpen(fd));
  const std::string rest = std::string(kPreface).substr(8);
  ASSERT_GT(send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL), 0);
  char head[9];
  ASSERT_EQ(recv(fd.get(), head, sizeof(head), MSG_WAITALL), 9);
  EXPECT_EQ(head[3], 4);  // SETTINGS
}

// It cost a whole CPU to read all that such a peer sent.
TEST_F(ServerTest, APeerThatSendsWithoutEndIsReadSlowly) {
  Start();
  const UniqueFd fd =
      Connect(grpc_, kPreface + std::string("\0\0\0\4\0\0\0\0\0", 9));
  const int small = 8 * 1024;
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  std::string frames;  // of an unknown type
  while (frames.size() < 8192) frames.append("\0\0\0\x7f\0\0\0\0\0", 9);
  int64_t sent = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_ms = [begin] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now() - begin)
        .count();
  };
  while (elapsed_ms() < 1000 || sent <= GrpcPeer::kInputBytesPerSecond / 2) {
    // A frame that was cut is sent on.
    const size_t at = static_cast<size_t>(sent) % frames.size();
    const ssize_t count = send(fd.get(), frames.data() + at, frames.size() - at,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += count;
    } else {
      ASSERT_EQ(errno, EAGAIN);
      usleep(1000);
    }
  }
  // What was read, and what is in the buffers of both sockets.
  EXPECT_LT(sent, GrpcPeer::kInputBurstBytes +
                      GrpcPeer::kInputBytesPerSecond * elapsed_ms() / 1000 +
                      256 * 1024);
  EXPECT_TRUE(IsOpen(fd) || recv(fd.get(), &frames[0], 1, MSG_DONTWAIT) == 1);
  EXPECT_THAT(Get("/x"), EndsWith("answer to /x"));
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
