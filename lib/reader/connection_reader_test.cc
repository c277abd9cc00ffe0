// SPDX-License-Identifier: BSD-3-Clause
// Uses real sockets over loopback, without root.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/testing/failing_new.h"
#include "netmeter/connections.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kMptcp = 262;

// A connection of this process to itself.
struct Pair {
  UniqueFd listener, client, server;
};

int Open(int family, int protocol) {
  return socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol);
}

Pair Connect(int family = AF_INET, int protocol = IPPROTO_TCP) {
  Pair pair;
  sockaddr_storage address = {};
  socklen_t size = sizeof(sockaddr_in6);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    auto* const in = reinterpret_cast<sockaddr_in*>(&address);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(*in);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = in6addr_loopback;
  }
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  pair.listener = UniqueFd(Open(family, protocol));
  EXPECT_EQ(bind(pair.listener.get(), to, size), 0) << strerror(errno);
  EXPECT_EQ(listen(pair.listener.get(), 8), 0);
  EXPECT_EQ(getsockname(pair.listener.get(), to, &size), 0);
  pair.client = UniqueFd(Open(family, protocol));
  EXPECT_EQ(connect(pair.client.get(), to, size), 0) << strerror(errno);
  pair.server = UniqueFd(accept(pair.listener.get(), nullptr, nullptr));
  EXPECT_TRUE(pair.server.ok());
  return pair;
}

// Sends, and waits until the peer's kernel has acknowledged.
void Exchange(const Pair& pair, size_t size) {
  const std::string sent(size, 'x');
  std::string received(size, ' ');
  std::thread writer([&] {
    EXPECT_EQ(send(pair.client.get(), sent.data(), size, MSG_NOSIGNAL),
              static_cast<ssize_t>(size));
  });
  EXPECT_EQ(recv(pair.server.get(), &received[0], size, MSG_WAITALL),
            static_cast<ssize_t>(size));
  writer.join();
}

Connection Read(int fd) {
  const absl::StatusOr<Connection> connection = ReadConnection(fd);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return connection.ok() ? *connection : Connection();
}

const Connection* Find(const std::vector<Connection>& connections, int fd) {
  for (const Connection& connection : connections) {
    if (connection.fd == fd) return &connection;
  }
  return nullptr;
}

TEST(ReadConnection, TellsWhatTheServiceHasSent) {
  const Pair pair = Connect();
  Exchange(pair, 1000000);
  const Connection client = Read(pair.client.get());
  const Connection server = Read(pair.server.get());
  EXPECT_EQ(client.state, "ESTABLISHED");
  EXPECT_EQ(client.local_address, "127.0.0.1");
  EXPECT_EQ(client.remote_address, "127.0.0.1");
  EXPECT_EQ(client.remote_port, server.local_port);
  EXPECT_EQ(client.local_port, server.remote_port);
  EXPECT_NE(client.local_port, 0);
  EXPECT_FALSE(client.mptcp);
  EXPECT_NE(client.cookie, 0U);
  EXPECT_NE(client.cookie, server.cookie);
  EXPECT_FALSE(client.congestion.empty());
  EXPECT_EQ(client.sent_bytes - client.retransmitted_bytes, 1000000U);
  EXPECT_EQ(server.received_bytes, 1000000U);
  EXPECT_EQ(client.received_bytes, 0U);
  EXPECT_EQ(client.unsent_bytes, 0U);
  EXPECT_GT(client.sent_segments, 0U);
  EXPECT_GT(client.rtt_us, 0U);
  EXPECT_GT(client.min_rtt_us, 0U);
  EXPECT_LT(client.min_rtt_us, 1000000U);
  EXPECT_GT(client.congestion_window_segments, 0U);
  EXPECT_GT(client.send_window_bytes, 0U);
  EXPECT_GE(client.path_mtu, 1500U);
}

// Compares with a second reader, which uses the system's header.
TEST(ReadConnection, HasTheKernelsNumbers) {
  const Pair pair = Connect(AF_INET6);
  Exchange(pair, 5000);
  struct tcp_info info = {};
  socklen_t size = sizeof(info);
  ASSERT_EQ(getsockopt(pair.server.get(), IPPROTO_TCP, TCP_INFO, &info, &size),
            0);
  const Connection read = Read(pair.server.get());
  EXPECT_EQ(read.local_address, "::1");
  EXPECT_EQ(read.rtt_us, info.tcpi_rtt);
  EXPECT_EQ(read.rtt_variation_us, info.tcpi_rttvar);
  EXPECT_EQ(read.retransmission_timeout_us, info.tcpi_rto);
  EXPECT_EQ(read.segment_bytes, info.tcpi_snd_mss);
  EXPECT_EQ(read.path_mtu, info.tcpi_pmtu);
  EXPECT_EQ(read.congestion_window_segments, info.tcpi_snd_cwnd);
  EXPECT_EQ(read.retransmitted_segments, info.tcpi_total_retrans);
  ASSERT_GE(read.tcp_info.size(), size);
  struct tcp_info whole = {};
  memcpy(&whole, read.tcp_info.data(), sizeof(whole));
  EXPECT_EQ(whole.tcpi_rcv_mss, info.tcpi_rcv_mss);
}

TEST(ReadConnection, ABackloggedReceiverIsToldByWindowAndTime) {
  const Pair pair = Connect();
  const std::string block(1 << 16, 'x');
  // The peer does not read, so the window closes, and then our buffer fills up.
  while (send(pair.client.get(), block.data(), block.size(),
              MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  Connection client;
  for (int tries = 0; tries < 200 && client.limited_by_receiver_us == 0;
       ++tries) {
    usleep(10000);
    client = Read(pair.client.get());
  }
  EXPECT_GT(client.limited_by_receiver_us, 0U);
  EXPECT_GE(client.busy_us, client.limited_by_receiver_us);
  EXPECT_GT(client.unsent_bytes, 0U);
}

TEST(ReadConnection, AnIpv4PeerOfAnIpv6SocketIsIpv4) {
  UniqueFd listener(Open(AF_INET6, IPPROTO_TCP));
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  socklen_t size = sizeof(any);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
  UniqueFd client(Open(AF_INET, IPPROTO_TCP));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = any.sin6_port;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
  UniqueFd server(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(Read(server.get()).remote_address, "127.0.0.1");
  EXPECT_EQ(Read(listener.get()).local_address, "::");
}

TEST(ReadConnection, WhatIsNoTcpSocketIsRefused) {
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM, 0));
  const UniqueFd local(socket(AF_UNIX, SOCK_STREAM, 0));
  int closed = dup(0);
  close(closed);
  for (const int fd : {udp.get(), local.get(), 0, -1, closed}) {
    EXPECT_EQ(ReadConnection(fd).status().code(),
              absl::StatusCode::kInvalidArgument)
        << fd;
  }
}

TEST(ReadConnection, MptcpIsToldByItsFirstSubflowOrNotAtAll) {
  const UniqueFd probe(Open(AF_INET, kMptcp));
  if (!probe.ok()) return;  // this kernel, or its settings, have no MPTCP
  const Pair pair = Connect(AF_INET, kMptcp);
  const absl::StatusOr<Connection> client = ReadConnection(pair.client.get());
  if (!client.ok()) {
    EXPECT_EQ(client.status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  Exchange(pair, 1000);
  EXPECT_TRUE(client->mptcp);
  EXPECT_EQ(client->state, "ESTABLISHED");
  EXPECT_GE(Read(pair.client.get()).sent_bytes, 1000U);
}

TEST(ReadOwnConnections, HasEachSocketOnce) {
  const Pair pair = Connect();
  const UniqueFd copy(dup(pair.client.get()));
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM, 0));
  const auto own = ReadOwnConnections();
  ASSERT_TRUE(own.ok()) << own.status();
  for (const UniqueFd* fd : {&pair.listener, &pair.client, &pair.server}) {
    ASSERT_NE(Find(*own, fd->get()), nullptr);
    EXPECT_EQ(Find(*own, fd->get())->cookie, Read(fd->get()).cookie);
  }
  EXPECT_EQ(Find(*own, copy.get()), nullptr);
  EXPECT_EQ(Find(*own, udp.get()), nullptr);
  for (size_t i = 1; i < own->size(); ++i) {
    EXPECT_LT((*own)[i - 1].fd, (*own)[i].fd);
  }
}

// The bug would be one connection with the numbers of two: a descriptor may be closed,
// and used again for another socket, in the middle of a read.
TEST(ReadOwnConnections, GoesOnWhileOtherThreadsOpenAndClose) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) Connect();
  });
  for (int i = 0; i < 200; ++i) {
    const auto own = ReadOwnConnections();
    ASSERT_TRUE(own.ok()) << own.status();
    for (const Connection& connection : *own) {
      EXPECT_NE(connection.cookie, 0U);
    }
  }
  stop = true;
  other.join();
}

TEST(ReadOwnConnections, AnExhaustedMemoryIsAnError) {
  const Pair pair = Connect();
  for (int n = 0;; ++n) {
    FailNew fail(n);
    const auto own = ReadOwnConnections();
    const auto one = ReadConnection(pair.client.get());
    if (!fail.Failed()) break;
    EXPECT_EQ(own.ok() ? one.status().code() : own.status().code(),
              absl::StatusCode::kResourceExhausted)
        << n;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
