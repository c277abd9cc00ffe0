// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong with TCP connections: resets, time-outs, and segments that are sent
// again, against TCP_INFO.

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/connections.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kServerPort = 8710;
// An address on the server's link without a host.
constexpr char kSilent4[] = "10.77.3.77";
constexpr char kSilent6[] = "fd77:3::77";

// tcpi_total_rto of Linux 6.7; ~0: an older kernel.
uint64_t TotalTimeouts(int fd) {
  constexpr size_t kOffset = 240;
  unsigned char info[512] = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size);
  uint16_t total;
  memcpy(&total, info + kOffset, sizeof(total));
  return size >= kOffset + sizeof(total) ? total : ~uint64_t{0};
}

// A received RST is known only if programs may follow the kernel's own types. The kernel
// may have them and yet not show them.
bool ReadsResets(const TcpConnections& seen) {
  return seen.resets_received != 0 ||
         access("/sys/kernel/btf/vmlinux", R_OK) == 0;
}

void ExpectResetsReceived(const TcpConnections& seen, uint64_t expected) {
  if (!ReadsResets(seen)) return;
  EXPECT_EQ(seen.resets_received, expected);
}

class TroubledConnectionsTest : public FamilyTest {};
NM_FOR_BOTH_FAMILIES(TroubledConnectionsTest);

// A RST counts at the side that sent it as sent, at the other one as received. Closing
// with SO_LINGER of 0, and with data unread, the kernel sends it after the end of the
// socket was told; all else comes before it.
TEST_P(TroubledConnectionsTest, ResetsAreThoseOfTheSideThatSentThem) {
  constexpr int kConnections = 9;
  Child server = AtServer([](Child::Parent& parent) {
    const int listener = Listen(Server(), kServerPort, kConnections);
    parent.Send(0);
    std::vector<int> accepted;
    for (int i = 0; i < kConnections; ++i) {
      accepted.push_back(Accept(listener));
      SendAll(accepted.back(), 100);
      ReceiveExactly(accepted.back(), 1);
    }
    parent.Receive<int>();
    // The last three; the client has closed the others.
    for (int i = 6; i < kConnections; ++i) Abort(accepted[i]);
    parent.Send(0);
    parent.Receive<int>();
  });
  server.Receive<int>();
  const Since client_meter(World::ClientMeter());
  const Since server_meter(World::ServerMeter());
  Child client = AtClient([](Child::Parent& parent) {
    const Address to = Server();
    std::vector<int> open;
    for (int i = 0; i < kConnections; ++i) {
      open.push_back(OpenSocket(to.family(), SOCK_STREAM));
      Connect(open.back(), to, kServerPort);
      SendAll(open.back(), 1);
      WaitReadable(open.back());
    }
    for (int i = 0; i < 3; ++i) {
      ReceiveExactly(open[i], 100);
      Abort(open[i]);
    }
    for (int i = 3; i < 6; ++i) close(open[i]);  // 100 bytes unread
    parent.Send(0);
    parent.Receive<int>();
  });
  client.Receive<int>();
  server.Send(0);
  server.Receive<int>();
  const TcpConnections ours = client_meter.AfterClosed(kConnections);
  const TcpConnections theirs = server_meter.AfterClosed(kConnections);
  EXPECT_EQ(ours.closed, uint64_t{kConnections});
  EXPECT_EQ(ours.resets_sent, 6u);
  ExpectResetsReceived(ours, 3);
  EXPECT_EQ(theirs.closed, uint64_t{kConnections});
  EXPECT_EQ(theirs.resets_sent, 3u);
  ExpectResetsReceived(theirs, 6);
  EXPECT_LE(ours.timeouts, ours.retransmitted_segments);
  EXPECT_LE(theirs.timeouts, theirs.retransmitted_segments);
  client.Send(0);
  server.Send(0);
  client.Join();
  server.Join();
  // Nothing is counted a second time when the descriptors are closed.
  EXPECT_EQ(client_meter.Now().resets_sent, 6u);
  EXPECT_EQ(server_meter.Now().resets_sent, 3u);
}

// The bug: data that comes after close(2) makes the kernel send a RST, and end the
// socket as if one had come. It counted as received.
TEST_P(TroubledConnectionsTest, DataAfterCloseIsAnsweredWithAResetOfOurs) {
  Child server = AtServer([](Child::Parent& parent) {
    const int listener = Listen(Server(), kServerPort, 1);
    parent.Send(0);
    const int fd = Accept(listener);
    ReceiveUntilEnd(fd);
    // Data that acknowledges the FIN ends the socket without an error.
    usleep(300000);
    SendAll(fd, 100);
    pollfd ended = {fd, POLLERR, 0};
    poll(&ended, 1, 10000);
    close(fd);
  });
  server.Receive<int>();
  const Since client_meter(World::ClientMeter());
  const Since server_meter(World::ServerMeter());
  RunAtClient([] {
    const Address to = Server();
    const int fd = Connected(to, kServerPort);
    // Longer than 60 s it stays a socket, which waits for the peer's FIN.
    SetOption(fd, IPPROTO_TCP, TCP_LINGER2, 90);
    close(fd);
  });
  server.Join();
  const TcpConnections ours = client_meter.AfterClosed(1);
  const TcpConnections theirs = server_meter.AfterClosed(1);
  EXPECT_EQ(ours.resets_received, 0u);
  EXPECT_EQ(ours.resets_sent, ReadsResets(theirs) ? 1u : 0u);
  EXPECT_EQ(theirs.resets_sent, 0u);
  ExpectResetsReceived(theirs, 1);
}

// SYNs to a host that never answers. How many there are depends on the kernel
// (tcp_syn_linear_timeouts of Linux 6.5), so TCP_INFO is the reference.
TEST_P(TroubledConnectionsTest, SynsThatNobodyAnswersTimeOut) {
  const Address silent(v4() ? kSilent4 : kSilent6);
  // A frame to an address that no interface has.
  lab().router_b.AddNeighbour("b1", silent, MacAddress(77));
  const Since meter(World::ClientMeter());
  Child client = AtClient([&silent](Child::Parent& parent) {
    // A connect(2) that waits, and fails, forgets the numbers.
    const int fd = OpenSocket(silent.family(), SOCK_STREAM | SOCK_NONBLOCK);
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 2500);
    const sockaddr_storage where = silent.WithPort(kServerPort);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&where),
                Address::Length(where)) == 0 ||
        errno != EINPROGRESS) {
      _exit(1);
    }
    WaitReadable(fd);
    parent.Send<uint64_t>(TcpInfo(fd).tcpi_total_retrans);
    parent.Send<uint64_t>(TotalTimeouts(fd));
  });
  const uint64_t segments = client.Receive<uint64_t>();
  const uint64_t timeouts = client.Receive<uint64_t>();
  client.Join();
  lab().router_b.DeleteNeighbour("b1", silent);
  const TcpConnections seen = meter.Now();
  EXPECT_EQ(seen.failed, 1u);
  EXPECT_EQ(seen.opened + seen.closed + seen.resets_received, 0u);
  EXPECT_GT(segments, 0u);
  EXPECT_EQ(seen.retransmitted_segments, segments);
  // Each of them by the timer; none when it gave up.
  EXPECT_EQ(seen.timeouts, segments);
  if (timeouts != ~uint64_t{0}) {
    EXPECT_EQ(seen.timeouts, timeouts);
  }
}

// Loss in both directions, and then silence: what is sent again after the peer tells
// of it, and what the timer sends.
TEST_P(TroubledConnectionsTest, RetransmissionsAreThoseOfTcpInfo) {
  constexpr uint64_t kBytes = 2000003;
  Lab& lab = World::WiredLab();
  struct Seen {
    uint64_t segments, timeouts;
  };
  const auto see = [](int fd) {
    return Seen{TcpInfo(fd).tcpi_total_retrans, TotalTimeouts(fd)};
  };
  Child server(World::ServerMeter().cgroup(), lab.server,
               [&see](Child::Parent& parent) {
                 const int listener = Listen(Server(), kServerPort, 1);
                 parent.Send(0);
                 const int fd = Accept(listener);
                 ReceiveExactly(fd, kBytes);
                 SendAll(fd, kBytes);
                 ReceiveExactly(fd, 1);
                 parent.Send(see(fd));
                 parent.Receive<int>();
               });
  server.Receive<int>();
  const Since client_meter(World::ClientMeter());
  const Since server_meter(World::ServerMeter());
  Impairment loss;
  loss.drop_every = 19;
  lab.wire->Impair(loss, loss);
  Child client(World::ClientMeter().cgroup(), lab.client,
               [&see](Child::Parent& parent) {
                 const Address to = Server();
                 const int fd = Connected(to, kServerPort);
                 SendAll(fd, kBytes);
                 ReceiveExactly(fd, kBytes);
                 parent.Send(0);
                 parent.Receive<int>();  // nothing arrives from here on
                 const uint64_t before = see(fd).segments;
                 SendAll(fd, 1);
                 while (see(fd).segments < before + 4) usleep(1000);
                 parent.Send(0);
                 parent.Receive<int>();  // it does again
                 while (TcpInfo(fd).tcpi_unacked != 0) usleep(1000);
                 parent.Send(see(fd));
                 parent.Receive<int>();
               });
  client.Receive<int>();
  const Address address = Server();
  lab.router_b.AddNeighbour("b1", address, MacAddress(77));
  client.Send(0);
  client.Receive<int>();
  lab.router_b.AddNeighbour("b1", address, MacAddress(6));
  client.Send(0);
  const Seen of_client = client.Receive<Seen>();
  const Seen of_server = server.Receive<Seen>();
  // Now, and not at the end: they count as they happen.
  const TcpConnections ours = client_meter.Now(), theirs = server_meter.Now();
  lab.wire->Impair(Impairment(), Impairment());
  client.Send(0);
  server.Send(0);
  client.Join();
  server.Join();
  EXPECT_GT(of_client.segments, 20u);
  EXPECT_GT(of_server.segments, 20u);
  EXPECT_EQ(ours.retransmitted_segments, of_client.segments);
  EXPECT_EQ(theirs.retransmitted_segments, of_server.segments);
  EXPECT_GE(ours.timeouts, 2u);
  EXPECT_LT(ours.timeouts, ours.retransmitted_segments);
  if (of_client.timeouts != ~uint64_t{0}) {
    EXPECT_EQ(ours.timeouts, of_client.timeouts);
    EXPECT_EQ(theirs.timeouts, of_server.timeouts);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
