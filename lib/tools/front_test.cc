// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/core/failing_new.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

TEST(ListenAddress, IsNumericWithAPort) {
  for (const char* text : {"127.0.0.1:9384", "127.8.9.1:0", "localhost:1",
                           "[::1]:65535", "[::ffff:127.0.0.1]:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_TRUE(address->loopback) << text;
  }
  for (const char* text :
       {"0.0.0.0:9384", "192.0.2.1:1", "[::]:1", "[2001:db8::1]:1",
        "[::ffff:192.0.2.1]:1", "128.0.0.1:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_FALSE(address->loopback) << text;
  }
  for (const char* text :
       {"", ":", "9384", ":9384", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
        "127.0.0.1:-1", "::1:9384", "[::1]", "[::1:9384", "[127.0.0.1]:1",
        "127.1:1", "example.org:80", "127.0.0.1:1x"}) {
    EXPECT_EQ(ParseListenAddress(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

class FrontTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.answer = [this](const HttpRequest& request, uint64_t) {
      ++answered_;
      return Reply(request.path == "/large" ? std::string(8 << 20, 'x')
                                            : "answer to " + request.path);
    };
    options_.adopt = [this](int fd) {
      const std::lock_guard<std::mutex> lock(mutex_);
      adopted_.emplace_back(fd);
      return true;
    };
    options_.max_connections = 4;
    options_.request_timeout = std::chrono::milliseconds(60000);
    options_.reply_timeout = std::chrono::milliseconds(60000);
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    ASSERT_EQ(write(stop_.get(), &one, sizeof(one)),
              static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }

  static std::shared_ptr<Front::Reply> Reply(std::string body) {
    HttpReply reply;
    reply.body = std::move(body);
    return std::make_shared<Front::Reply>(FormatHttpReply(reply, false));
  }

  void Start() {
    front_ = std::make_unique<Front>(options_);
    stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    const auto loopback = ParseListenAddress("127.0.0.1:0");
    auto http = front_->ListenHttp(*loopback);
    auto grpc = front_->ListenGrpc(*loopback);
    ASSERT_TRUE(http.ok() && grpc.ok());
    http_ = *ParseListenAddress(*http);
    grpc_ = *ParseListenAddress(*grpc);
    thread_ =
        std::thread([this] { EXPECT_TRUE(front_->Run(stop_.get()).ok()); });
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
    return ReadAll(Connect(http_, "GET " + path + " HTTP/1.1\r\n\r\n"));
  }

  static bool IsOpen(const UniqueFd& fd) {
    pollfd p = {fd.get(), POLLIN, 0};
    return poll(&p, 1, 0) == 0;
  }

  size_t adopted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return adopted_.size();
  }
  static void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) usleep(10000);
    EXPECT_TRUE(condition());
  }

  Front::Options options_;
  std::unique_ptr<Front> front_;
  UniqueFd stop_;
  ListenAddress http_;
  ListenAddress grpc_;
  std::thread thread_;
  std::atomic<int> answered_{0};
  std::mutex mutex_;
  std::vector<UniqueFd> adopted_;
  std::map<uint64_t, std::shared_ptr<Front::Reply>> replies_;  // by round
};

TEST_F(FrontTest, AnswersAndCloses) {
  Start();
  for (int i = 0; i < 100; ++i) {
    const std::string reply = Get("/x");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(reply, EndsWith("\r\n\r\nanswer to /x"));
  }
}

TEST_F(FrontTest, AnswersARequestThatComesByteByByte) {
  Start();
  const UniqueFd fd = Connect(http_);
  for (const char c : std::string("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")) {
    ASSERT_EQ(send(fd.get(), &c, 1, MSG_NOSIGNAL), 1);
    usleep(1000);
  }
  EXPECT_THAT(ReadAll(fd), EndsWith("answer to /slow"));
}

TEST_F(FrontTest, SendsALargeReplyToTheEnd) {
  Start();
  EXPECT_GT(Get("/large").size(), size_t{8 << 20});
}

// A body that nobody reads must not reset the connection before the reply.
TEST_F(FrontTest, AnswersARequestWithABody) {
  Start();
  const UniqueFd fd =
      Connect(http_, "POST /x HTTP/1.1\r\n\r\n" + std::string(100000, 'b'));
  usleep(50000);
  EXPECT_THAT(ReadAll(fd), EndsWith("answer to /x"));
}

TEST_F(FrontTest, RefusesWhatIsNoRequestAndWhatIsTooLarge) {
  Start();
  EXPECT_THAT(ReadAll(Connect(http_, "\x16\x03\x01 nonsense\r\n")),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      ReadAll(Connect(http_, "GET / HTTP/1.1\r\nx: " + std::string(9000, 'x'))),
      StartsWith("HTTP/1.1 431 "));
  EXPECT_EQ(answered_, 0);
}

// Any of them ended the exporter.
TEST_F(FrontTest, WithoutMemoryOneRequestFailsAndTheOthersAreServed) {
  std::unique_ptr<FailNew> fail;  // of the front's thread
  options_.answer = [&fail](const HttpRequest& request, uint64_t) {
    fail.reset();
    if (request.path == "/none") throw std::bad_alloc();
    auto reply = Reply("answer to " + request.path + std::string(1000, ' '));
    // The n-th allocation from here on, of a connection that comes later.
    if (request.path.find("/fail/") == 0) {
      fail = std::make_unique<FailNew>(atoi(request.path.c_str() + 6));
    }
    return reply;
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

// Peers that scraped a full table without end kept the others waiting: each
// request had an answer made for it, one after the other.
TEST_F(FrontTest, RequestsThatCameMeanwhileShareARoundAndAReply) {
  constexpr int kPeers = 20;
  std::atomic<bool> first_asked(false), all_sent(false);
  options_.max_connections = 100;
  options_.max_pending_bytes = 20 << 20;  // of which two have room
  options_.answer = [&](const HttpRequest& request, uint64_t round) {
    if (request.path == "/first") {
      first_asked = true;
      while (!all_sent) usleep(1000);
      return Reply("first");
    }
    auto& reply = replies_[round];
    if (reply == nullptr) reply = Reply(std::string(8 << 20, 'x'));
    return reply;
  };
  Start();
  const UniqueFd first = Connect(http_, "GET /first HTTP/1.1\r\n\r\n");
  Await([&] { return first_asked.load(); });
  std::vector<UniqueFd> peers;
  for (int i = 0; i < kPeers; ++i) {
    peers.push_back(Connect(http_, "GET /large HTTP/1.1\r\n\r\n"));
  }
  usleep(50000);
  all_sent = true;
  EXPECT_THAT(ReadAll(first), EndsWith("\r\n\r\nfirst"));
  for (const UniqueFd& peer : peers) {
    EXPECT_GT(ReadAll(peer).size(), size_t{8 << 20});
  }
  EXPECT_LE(replies_.size(), 2u);
}

TEST_F(FrontTest, SilentPeersMakeRoomForOthers) {
  Start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(Connect(http_, i % 2 ? "GET /x HT" : ""));
    if (i % 50 == 49) {
      EXPECT_THAT(Get("/x"), EndsWith("answer to /x"));
    }
  }
  Await([&] {
    size_t open = 0;
    for (const UniqueFd& fd : silent) open += IsOpen(fd);
    return open <= options_.max_connections;
  });
}

TEST_F(FrontTest, PeersThatTakeNothingMakeRoomForOthers) {
  options_.max_connections = 100;
  options_.max_pending_bytes = 20 << 20;  // two replies
  Start();
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 20; ++i) {
    greedy.push_back(Connect(http_, "GET /large HTTP/1.1\r\n\r\n"));
    EXPECT_THAT(Get("/x"), EndsWith("answer to /x"));
  }
  Await([&] { return answered_ == 40; });
  EXPECT_GT(Get("/large").size(), size_t{8 << 20});
  int whole = 0;
  for (const UniqueFd& fd : greedy) whole += ReadAll(fd).size() > (8 << 20);
  EXPECT_LE(whole, 2);
}

// The oldest reply went: that of a peer that was taking it, as those that took
// nothing were younger.
TEST_F(FrontTest, PeersThatTakeNothingCutNobodysReplyOff) {
  options_.max_connections = 100;
  options_.max_pending_bytes = 20 << 20;  // two replies
  options_.answer = [this](const HttpRequest&, uint64_t round) {
    auto& reply = replies_[round];
    if (reply == nullptr) reply = Reply(std::string(8 << 20, 'x'));
    return reply;
  };
  Start();
  std::atomic<bool> stop(false);
  std::thread peers([&] {
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 500 && !stop; ++i) {
      silent.push_back(Connect(http_, "GET /large HTTP/1.1\r\n\r\n"));
      usleep(5000);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = Connect(http_, "GET /large HTTP/1.1\r\n\r\n");
    size_t size = 0;
    std::vector<char> buffer(1 << 20);
    ssize_t count;
    while ((count = recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0) {
      size += static_cast<size_t>(count);
      usleep(2000);
    }
    EXPECT_GT(size, size_t{8 << 20}) << i;
  }
  stop = true;
  peers.join();
}

TEST_F(FrontTest, PeersHaveADeadline) {
  options_.request_timeout = std::chrono::milliseconds(100);
  options_.reply_timeout = std::chrono::milliseconds(200);
  Start();
  EXPECT_EQ(ReadAll(Connect(http_)), "");
  EXPECT_EQ(ReadAll(Connect(http_, "GET /")), "");
  EXPECT_EQ(ReadAll(Connect(grpc_, "PRI *")), "");
  const UniqueFd fd = Connect(http_, "GET /large HTTP/1.1\r\n\r\n");
  usleep(500000);
  EXPECT_LT(ReadAll(fd).size(), size_t{8 << 20});
}

TEST_F(FrontTest, HandsOverHttp2OnlyOnceItsPrefaceIsThere) {
  Start();
  EXPECT_EQ(ReadAll(Connect(grpc_, "GET / HTTP/1.1\r\n\r\n")), "");
  EXPECT_EQ(ReadAll(Connect(grpc_, "PRI * HTTP/1")), "");
  const UniqueFd fd = Connect(grpc_, "PRI * HT");
  usleep(50000);
  EXPECT_EQ(adopted(), 0u);
  const std::string rest = std::string(kPreface).substr(8) + "more";
  ASSERT_GT(send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL), 0);
  Await([&] { return adopted() == 1; });
  // All bytes are still there for who takes over.
  char buffer[64];
  const ssize_t count = recv(adopted_[0].get(), buffer, sizeof(buffer), 0);
  ASSERT_GT(count, 0);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(count)),
            std::string(kPreface) + "more");
}

TEST_F(FrontTest, ForgetsWhatTheOtherSideEnded) {
  Start();
  for (int i = 0; i < 20; ++i) {
    const UniqueFd peer = Connect(grpc_, kPreface);
    Await([&] { return adopted() == 1; });
    // As gRPC does when it ends a connection.
    shutdown(adopted_[0].get(), SHUT_RDWR);
    adopted_.clear();
    EXPECT_EQ(ReadAll(peer), "");
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
