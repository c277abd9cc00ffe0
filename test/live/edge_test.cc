// SPDX-License-Identifier: BSD-3-Clause
// Unusual lives of ordinary connections: each a place where counting could go
// wrong by a byte or by four gigabytes.

#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

class EdgeTest : public FamilyTest {
 protected:
  // Runs a plan between both meters, and expects each end to be exact.
  void RunAtBothEnds(
      const TcpPlan& plan,
      const std::function<bool(const Packet&)>& expected_packet = nullptr,
      const Classify& classify = SynAckSent) {
    MeteredCgroup& client = World::ClientMeter();
    MeteredCgroup& server = World::ServerMeter();
    Measurement at_client(client, lab().ClientReference());
    Measurement at_server(server, lab().ServerReference());
    RunTcp(lab().Between(client.cgroup(), server.cgroup()), plan);
    const int64_t up = plan.upload * plan.connections;
    const int64_t down = plan.download * plan.connections;
    at_client.ExpectExact(up, down);
    at_server.ExpectExact(down, up, classify);
    if (expected_packet) {
      EXPECT_TRUE(at_client.Any(expected_packet));
    }
  }
};
NM_FOR_BOTH_FAMILIES(EdgeTest);

TEST_P(EdgeTest, FastOpenSendsPayloadInTheSyn) {
  // Client and server, and no cookies: Documentation/networking/ip-sysctl.
  for (NetNamespace* end : {&lab().client, &lab().server})
    end->Sysctl("ipv4/tcp_fastopen", "519");
  TcpPlan plan(Server(), 50000, 40000);
  plan.connections = 3;
  plan.prepare = [](int fd) {
    SetOption(fd, IPPROTO_TCP, TCP_FASTOPEN, 16);         // of the listener
    SetOption(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);  // of the client
  };
  // The accepted socket is there before its SYN-ACK, so that is seen.
  RunAtBothEnds(
      plan,
      [](const Packet& packet) {
        return packet.outgoing && packet.syn() && packet.payload > 0;
      },
      nullptr);
}

TEST_P(EdgeTest, FinTogetherWithTheLastData) {
  TcpPlan plan(Server(), 500, 30000);
  plan.connections = 10;
  plan.settle_ms = -1;
  RunAtBothEnds(plan);
}

// Both ends send their FIN before they have the other's.
TEST_P(EdgeTest, SimultaneousCloseIsExact) {
  MeteredCgroup& client_meter = World::ClientMeter();
  MeteredCgroup& server_meter = World::ServerMeter();
  const Address address = Server();
  Measurement at_client(client_meter, lab().ClientReference());
  Measurement at_server(server_meter, lab().ServerReference());
  constexpr int kConnections = 10;
  // Each side writes, shuts down and reads at the same time as the other. Both wait
  // before: a first packet that races with the end of the handshake passes the ingress
  // hook twice (req_stolen in tcp_v4_rcv()). QEMU gives each CPU of a guest 100 ms before
  // the next, so a handshake may take that time.
  const auto exchange = [](int fd) {
    usleep(120000);
    SendAll(fd, 3000);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    if (ReceiveUntilEnd(fd) != 3000) DieWithErrno("received too little");
    usleep(10000);
    close(fd);
  };
  Child server(server_meter.cgroup(), lab().server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = Listen(address, 0, 8);
    parent.Send(PortOf(listener));
    for (int i = 0; i < kConnections; ++i) {
      exchange(Accept(listener));
    }
  });
  const int port = server.Receive<int>();
  RunChild(client_meter.cgroup(), lab().client, [&] {
    RunOnOneCpu();
    for (int i = 0; i < kConnections; ++i) {
      const int fd = Connected(address, port);
      exchange(fd);
    }
  });
  server.Join();
  at_client.ExpectExact(kConnections * 3000, kConnections * 3000);
  at_server.ExpectExact(kConnections * 3000, kConnections * 3000, SynAckSent);
}

class LoadTest : public LiveTest {};

// A connection that was open before the meter was loaded.
TEST_F(LoadTest, ConnectionsOlderThanTheMeterCountFromTheLoad) {
  auto cgroup = std::make_unique<Cgroup>("older");
  std::unique_ptr<Child> servers[2], clients[2];
  for (int i = 0; i < 2; ++i) {
    const Address address = Lab::Server(i == 0 ? Family::kIpv4 : Family::kIpv6);
    servers[i] = std::make_unique<Child>(
        nullptr, lab().server, [&](Child::Parent& parent) {
          const int listener = Listen(address, 0, 1);
          parent.Send(PortOf(listener));
          const int fd = Accept(listener);
          ReceiveExactly(fd, 40000);
          SendAll(fd, 30000);
          ReceiveExactly(fd, 70000);
          SendAll(fd, 90000);
          usleep(50000);
          Check(shutdown(fd, SHUT_WR), "shutdown");
          ReceiveUntilEnd(fd);
        });
    const int port = servers[i]->Receive<int>();
    clients[i] = std::make_unique<Child>(
        cgroup.get(), lab().client, [&](Child::Parent& parent) {
          const int fd = Connected(address, port);
          SendAll(fd, 40000);
          ReceiveExactly(fd, 30000);
          usleep(100000);  // delayed acknowledgements
          parent.Send(0);
          parent.Receive<int>();
          SendAll(fd, 70000);
          ReceiveUntilEnd(fd);
        });
    clients[i]->Receive<int>();
  }
  MeteredCgroup meter(std::move(cgroup), "older");
  Measurement measurement(meter, lab().ClientReference());
  for (int i = 0; i < 2; ++i) {
    clients[i]->Send(0);
    clients[i]->Join();
    servers[i]->Join();
  }
  measurement.ExpectExact(2 * 70000, 2 * 90000);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
