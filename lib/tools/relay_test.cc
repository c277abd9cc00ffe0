// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/relay.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a client sends first (RFC 9113, section 3.4); no more than counted here.
const std::string kPreface(24, 'p');

// A frame of DATA.
std::string Frame(const std::string& payload) {
  const std::string header = {0,
                              static_cast<char>(payload.size() >> 8),
                              static_cast<char>(payload.size()),
                              0,
                              0,
                              0,
                              0,
                              0,
                              1};
  return header + payload;
}

// A peer's socket and the one that gRPC gets.
struct Pair {
  UniqueFd peer;
  UniqueFd server;
};

class RelayTest : public testing::Test {
 protected:
  void Start(size_t cost_per_second, size_t max_connections = 1000) {
    relay_ = std::make_unique<Relay>(cost_per_second, max_connections);
    const absl::Status status = relay_->Start();
    ASSERT_TRUE(status.ok()) << status;
  }

  Pair Add() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         fds),
              0);
    Pair pair;
    pair.peer = UniqueFd(fds[0]);
    auto server = relay_->Add(UniqueFd(fds[1]));
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) pair.server = std::move(*server);
    return pair;
  }

  // The first `size` bytes, or those until the end, or "(timeout)".
  static std::string Read(const UniqueFd& fd, size_t size) {
    std::string all;
    std::vector<char> buffer(65536);
    while (all.size() < size) {
      pollfd p = {fd.get(), POLLIN, 0};
      if (poll(&p, 1, 20000) != 1) return "(timeout)";
      const ssize_t count =
          recv(fd.get(), buffer.data(),
               std::min(buffer.size(), size - all.size()), 0);
      if (count <= 0) break;
      all.append(buffer.data(), static_cast<size_t>(count));
    }
    return all;
  }

  static void Send(const UniqueFd& fd, const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = send(fd.get(), text.data() + sent,
                                 text.size() - sent, MSG_NOSIGNAL);
      if (count > 0) {
        sent += static_cast<size_t>(count);
        continue;
      }
      if (errno != EAGAIN) return;
      pollfd p = {fd.get(), POLLOUT, 0};
      if (poll(&p, 1, 20000) != 1) return;
    }
  }

  static bool Ends(const UniqueFd& fd) { return Read(fd, 1).empty(); }

  // Sends until it is full; read as HTTP/2: a preface, and empty frames.
  static void Fill(const UniqueFd& fd) {
    const std::string bytes(65536, '\0');
    while (send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  }

  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, CarriesAllBytesBothWays) {
  Start(64 * 1024 * 1024);
  std::mt19937 random(7);
  for (const size_t size : {size_t{1}, size_t{1024}, size_t{3 << 20}}) {
    const Pair pair = Add();
    std::string request = kPreface;
    while (request.size() < size) {
      std::string payload(random() % 10000, '\0');
      for (char& c : payload) c = static_cast<char>(random());
      request += Frame(payload);
    }
    std::string reply(size, '\0');
    for (char& c : reply) c = static_cast<char>(random());
    std::thread peer([&] {
      std::thread sender([&] { Send(pair.peer, request); });
      EXPECT_TRUE(Read(pair.peer, size) == reply);
      sender.join();
    });
    std::thread sender([&] { Send(pair.server, reply); });
    EXPECT_TRUE(Read(pair.server, request.size()) == request);
    sender.join();
    peer.join();
  }
}

TEST_F(RelayTest, ClosesOneSideWhereTheOtherCloses) {
  Start(1024 * 1024);
  for (int i = 0; i < 100; ++i) {
    Pair first = Add();
    Pair second = Add();
    first.peer = UniqueFd();
    EXPECT_TRUE(Ends(first.server));
    Send(second.server, "goodbye");
    second.server = UniqueFd();
    EXPECT_EQ(Read(second.peer, 100), "goodbye");
  }
}

// The exporter keeps a duplicate, to end a connection and to see its end.
TEST_F(RelayTest, ADuplicateCanEndAConnectionAndOutlivesIt) {
  Start(1024 * 1024);
  for (int i = 0; i < 100; ++i) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const UniqueFd peer(fds[0]);
    const UniqueFd duplicate(dup(fds[1]));
    auto server = relay_->Add(UniqueFd(fds[1]));
    ASSERT_TRUE(server.ok());
    if (i % 2 == 0) {
      shutdown(duplicate.get(), SHUT_RDWR);
      EXPECT_TRUE(Ends(*server));
    } else {
      *server = UniqueFd();
      EXPECT_TRUE(Ends(duplicate));
      EXPECT_TRUE(Ends(peer));
    }
    // What happens to it now is nobody's event any more.
    shutdown(peer.get(), SHUT_RDWR);
    const Pair next = Add();
    Send(next.peer, "x");
    EXPECT_EQ(Read(next.server, 1), "x");
  }
}

// It ended once all that it had sent had had its turn, 10 minutes later: 300 of
// them had 900 descriptors meanwhile, and the turns of others.
TEST_F(RelayTest, WhatAPeerLeavesBehindIsDroppedAtOnce) {
  Start(1);  // nobody is going to have a turn
  for (int i = 0; i < 100; ++i) {
    Pair pair = Add();
    Fill(pair.peer);
    pair.peer = UniqueFd();
    std::string left = Read(pair.server, SIZE_MAX);
    EXPECT_NE(left, "(timeout)");
    EXPECT_LE(left.size(), 128u * 1024);
  }
}

// Who has made no call goes before who has, so that no flood of connections
// ends one that is in use.
TEST_F(RelayTest, BeyondTheLimitWhoMadeFewestCallsGoes) {
  Start(1024 * 1024, 4);
  const std::string call = std::string({0, 0, 1, 1, 4, 0, 0, 0, 1, 'x'});
  std::vector<Pair> called;
  for (int i = 0; i < 3; ++i) {
    called.push_back(Add());
    Send(called.back().peer, kPreface + call);
    EXPECT_EQ(Read(called.back().server, kPreface.size() + call.size()),
              kPreface + call);
  }
  for (int i = 0; i < 100; ++i) {
    const Pair pair = Add();
    Send(pair.peer, kPreface);
    EXPECT_EQ(Read(pair.server, kPreface.size()), kPreface);
    const Pair next = Add();
    EXPECT_TRUE(Ends(pair.peer));
    EXPECT_TRUE(Ends(pair.server));
  }
  for (const Pair& pair : called) {
    Send(pair.peer, call);
    EXPECT_EQ(Read(pair.server, call.size()), call);
  }
}

TEST_F(RelayTest, EndsAllWithItself) {
  Start(1024 * 1024);
  const Pair pair = Add();
  Send(pair.peer, "x");
  EXPECT_EQ(Read(pair.server, 1), "x");
  relay_.reset();
  EXPECT_TRUE(Ends(pair.peer));
  EXPECT_TRUE(Ends(pair.server));
}

// Before there was a relay, peers that flooded gRPC made others wait for 12
// seconds.
TEST_F(RelayTest, FloodsShareARateAndOthersHaveTheirTurn) {
  constexpr size_t kRate = 256 * 1024;
  Start(kRate);
  std::vector<Pair> floods;
  std::vector<std::thread> readers;
  std::vector<size_t> received(8);
  const auto begin = Clock::now();
  for (size_t i = 0; i < received.size(); ++i) floods.push_back(Add());
  const auto end = begin + milliseconds(2000);
  for (size_t i = 0; i < received.size(); ++i) {
    readers.emplace_back([&, i] {
      std::vector<char> buffer(65536);
      while (Clock::now() < end) {
        Fill(floods[i].peer);
        const ssize_t count =
            recv(floods[i].server.get(), buffer.data(), buffer.size(), 0);
        if (count > 0) received[i] += static_cast<size_t>(count);
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  const Pair polite = Add();
  Send(polite.peer, kPreface);
  EXPECT_EQ(Read(polite.server, kPreface.size()), kPreface);
  std::vector<Clock::duration> times;
  while (Clock::now() < end - milliseconds(200)) {
    const auto asked = Clock::now();
    const std::string request = Frame(std::string(300, 'r'));
    Send(polite.peer, request);
    EXPECT_EQ(Read(polite.server, request.size()), request);
    Send(polite.server, std::string(100000, 'r'));
    EXPECT_EQ(Read(polite.peer, 100000), std::string(100000, 'r'));
    times.push_back(Clock::now() - asked);
  }
  for (std::thread& reader : readers) reader.join();
  const double seconds =
      std::chrono::duration<double>(Clock::now() - begin).count();
  size_t all = 0;
  for (const size_t bytes : received) all += bytes;
  // Empty frames: of 9 bytes, which cost 32 more.
  const double frames = static_cast<double>(all) / 9;
  EXPECT_LE(frames * (9 + 32), kRate * seconds + 3 * 64 * 1024);
  EXPECT_GE(frames * (9 + 32), kRate * seconds / 4);
  std::sort(times.begin(), times.end());
  // Its turn comes after 8 of 2 KiB: 64 ms.
  EXPECT_LT(times[times.size() / 2], milliseconds(500));
  EXPECT_GT(times.size(), 3u);
}

TEST_F(RelayTest, EndsWhatTheLimiterRefuses) {
  Start(1024 * 1024);
  for (int i = 0; i < 20; ++i) {
    const Pair pair = Add();
    Send(pair.peer, kPreface + Frame("x") + std::string(9, '\xff'));
    EXPECT_TRUE(Read(pair.server, 1000).size() < 40);  // and no "(timeout)"
    EXPECT_TRUE(Ends(pair.peer));
  }
}

TEST_F(RelayTest, PeersThatTakeNothingHoldNobodyUp) {
  Start(1024 * 1024);
  std::vector<Pair> greedy;
  for (int i = 0; i < 50; ++i) {
    greedy.push_back(Add());
    Fill(greedy.back().server);
    greedy.push_back(Add());
    Fill(greedy.back().peer);
  }
  const Pair polite = Add();
  Send(polite.peer, "request");
  EXPECT_EQ(Read(polite.server, 7), "request");
  Send(polite.server, "reply");
  EXPECT_EQ(Read(polite.peer, 5), "reply");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
