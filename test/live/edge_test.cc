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
  void SetUp() override {
    FamilyTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }

  // Runs a plan between both meters, and expects each end to be exact.
  void RunAtBothEnds(
      const TcpPlan& plan,
      const std::function<bool(const Packet&)>& expected_packet = nullptr,
      const Classify& classify = SynAckSent) {
    Lab& lab = World::CleanLab();
    MeteredCgroup& client = World::ClientMeter();
    MeteredCgroup& server = World::ServerMeter();
    Measurement at_client(client, lab.ClientReference());
    Measurement at_server(server, lab.ServerReference());
    RunTcp(lab.Between(client.cgroup(), server.cgroup()), plan);
    at_client.Finish();
    at_server.Finish(classify);
    const int64_t up = plan.upload * plan.connections;
    const int64_t down = plan.download * plan.connections;
    at_client.ExpectBalance();
    at_client.ExpectPayload(up, down);
    at_server.ExpectBalance();
    at_server.ExpectPayload(down, up);
    if (expected_packet) {
      EXPECT_TRUE(at_client.Any(expected_packet));
    }
  }
};
NM_FOR_BOTH_FAMILIES(EdgeTest);

TEST_P(EdgeTest, SequenceNumbersWrapAround) {
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.upload = 1 << 20;
  plan.download = 1 << 20;
  plan.prepare = [](int fd) {
    // The next SYN has the number 2^32 - 300000.
    SetOption(fd, IPPROTO_TCP, TCP_REPAIR, 1);
    SetOption(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
    SetOption(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, -300000);
    SetOption(fd, IPPROTO_TCP, TCP_REPAIR, 0);
  };
  RunAtBothEnds(plan, [](const Packet& packet) {
    return packet.outgoing && packet.syn() && packet.tcp_sequence == -300000U;
  });
}

TEST_P(EdgeTest, FastOpenSendsPayloadInTheSyn) {
  Lab& lab = World::CleanLab();
  // Client and server, and no cookies: Documentation/networking/ip-sysctl.
  for (NetNamespace* end : {&lab.client, &lab.server})
    end->Sysctl("ipv4/tcp_fastopen", "519");
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.upload = 50000;
  plan.download = 40000;
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

TEST_P(EdgeTest, ConnectionWithoutAByteHasHeadersOnly) {
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 10;
  RunAtBothEnds(plan);
}

TEST_P(EdgeTest, OneByteIsOneByte) {
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 10;
  plan.upload = 1;
  plan.download = 1;
  RunAtBothEnds(plan);
}

TEST_P(EdgeTest, FinTogetherWithTheLastData) {
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 10;
  plan.upload = 500;
  plan.download = 30000;
  plan.settle_ms = -1;
  RunAtBothEnds(plan);
}

// Both ends send their FIN before they have the other's.
TEST_P(EdgeTest, SimultaneousCloseIsExact) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& client_meter = World::ClientMeter();
  MeteredCgroup& server_meter = World::ServerMeter();
  const Address address = Lab::Server(GetParam());
  Measurement at_client(client_meter, lab.ClientReference());
  Measurement at_server(server_meter, lab.ServerReference());
  constexpr int kConnections = 10;
  // Each writes, shuts down and reads at the same time as the other. Both wait
  // before: a first packet that races with the end of the handshake passes the
  // ingress hook twice (req_stolen in tcp_v4_rcv()). QEMU gives each CPU of a
  // guest 100 ms before the next, so that a handshake may take as long.
  const auto exchange = [](int fd) {
    usleep(120000);
    SendAll(fd, 3000);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    if (ReceiveUntilEnd(fd) != 3000) Die("received too little");
    usleep(10000);
    close(fd);
  };
  Child server(server_meter.cgroup(), lab.server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = OpenSocket(address.family(), SOCK_STREAM);
    const int port = Bind(listener, address);
    Check(listen(listener, 8), "listen");
    parent.Send(port);
    for (int i = 0; i < kConnections; ++i) {
      exchange(Accept(listener));
    }
  });
  const int port = server.Receive<int>();
  Child client(client_meter.cgroup(), lab.client, [&](Child::Parent&) {
    RunOnOneCpu();
    for (int i = 0; i < kConnections; ++i) {
      const int fd = OpenSocket(address.family(), SOCK_STREAM);
      Connect(fd, address, port);
      exchange(fd);
    }
  });
  client.Join();
  server.Join();
  at_client.Finish();
  at_server.Finish(SynAckSent);
  at_client.ExpectBalance();
  at_client.ExpectPayload(kConnections * 3000, kConnections * 3000);
  at_server.ExpectBalance();
  at_server.ExpectPayload(kConnections * 3000, kConnections * 3000);
}

// One end stops reading: the window closes, and zero-window probes follow.
TEST_P(EdgeTest, ZeroWindowProbesAreNoPayload) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  const Address address = Lab::Server(GetParam());
  Child server(nullptr, lab.server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = OpenSocket(address.family(), SOCK_STREAM);
    SetOption(listener, SOL_SOCKET, SO_RCVBUF, 8192);
    const int port = Bind(listener, address);
    Check(listen(listener, 1), "listen");
    parent.Send(port);
    const int fd = Accept(listener);
    usleep(1200000);
    ReceiveExactly(fd, 200000);
    usleep(50000);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    ReceiveUntilEnd(fd);
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int fd = OpenSocket(address.family(), SOCK_STREAM);
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, 1 << 20);
    Connect(fd, address, port);
    SendAll(fd, 200000);
    ReceiveUntilEnd(fd);
    TcpReport report;
    ReadTcpInfo(fd, &report);
    parent.Send(report);
  });
  const TcpReport report = client.Receive<TcpReport>();
  client.Join();
  server.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(200000, 0);
  EXPECT_EQ(measurement.seen().tx_retransmit,
            static_cast<int64_t>(report.tcp_bytes_retrans));
}

TEST_P(EdgeTest, HalfClosedConnectionGoesOnCounting) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  const Address address = Lab::Server(GetParam());
  Child server(nullptr, lab.server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = OpenSocket(address.family(), SOCK_STREAM);
    const int port = Bind(listener, address);
    Check(listen(listener, 1), "listen");
    parent.Send(port);
    const int fd = Accept(listener);
    ReceiveUntilEnd(fd);  // the client's FIN comes first
    SendAll(fd, 150000);
    close(fd);
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent&) {
    RunOnOneCpu();
    const int fd = OpenSocket(address.family(), SOCK_STREAM);
    Connect(fd, address, port);
    SendAll(fd, 5000);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    if (ReceiveUntilEnd(fd) != 150000) Die("received too little");
    usleep(20000);
  });
  client.Join();
  server.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(5000, 150000);
}

class LoadTest : public LiveTest {
 protected:
  void SetUp() override {
    LiveTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }
};

// A connection that was open before the meter was loaded.
TEST_F(LoadTest, ConnectionsOlderThanTheMeterCountFromTheLoad) {
  Lab& lab = World::CleanLab();
  auto cgroup = std::make_unique<Cgroup>("older");
  std::unique_ptr<Child> servers[2], clients[2];
  for (int i = 0; i < 2; ++i) {
    const Address address = Lab::Server(i == 0 ? Family::kIpv4 : Family::kIpv6);
    servers[i] = std::make_unique<Child>(
        nullptr, lab.server, [&](Child::Parent& parent) {
          const int listener = OpenSocket(address.family(), SOCK_STREAM);
          const int port = Bind(listener, address);
          Check(listen(listener, 1), "listen");
          parent.Send(port);
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
        cgroup.get(), lab.client, [&](Child::Parent& parent) {
          const int fd = OpenSocket(address.family(), SOCK_STREAM);
          Connect(fd, address, port);
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
  Measurement measurement(meter, lab.ClientReference());
  for (int i = 0; i < 2; ++i) {
    clients[i]->Send(0);
    clients[i]->Join();
    servers[i]->Join();
  }
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(2 * 70000, 2 * 90000);
}

TEST_F(LoadTest, LoadingAgainUnderTrafficLosesNothing) {
  Lab& lab = World::CleanLab();
  MeteredCgroup meter("again");
  const Address address = Lab::Server(Family::kIpv4);
  Measurement measurement(meter, lab.ClientReference());
  Child server(nullptr, lab.server, [&](Child::Parent& parent) {
    const int listener = OpenSocket(address.family(), SOCK_STREAM);
    const int port = Bind(listener, address);
    Check(listen(listener, 1), "listen");
    parent.Send(port);
    const int fd = Accept(listener);
    parent.Send(ReceiveUntilEnd(fd));
  });
  const int port = server.Receive<int>();
  Child client(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(address.family(), SOCK_STREAM);
    Connect(fd, address, port);
    pollfd ready = {parent.fd(), POLLIN, 0};
    do {
      SendAll(fd, 3000);
    } while (poll(&ready, 1, 2) == 0);
    parent.Receive<int>();
    Check(shutdown(fd, SHUT_WR), "shutdown");
    ReceiveUntilEnd(fd);
    usleep(20000);
  });
  usleep(50000);
  meter.Load();  // nothing to do
  // Other programs, the same maps.
  meter.Load("proxy_ports: [8443, 9443]\n");
  usleep(50000);
  client.Send(0);
  const auto sent = static_cast<int64_t>(server.Receive<uint64_t>());
  client.Join();
  server.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(sent, 0);
  EXPECT_GT(sent, 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
