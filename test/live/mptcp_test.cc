// SPDX-License-Identifier: BSD-3-Clause
// MPTCP: what a process opens is not what sends the packets. The bytes of all
// subflows are those of the process, from the first SYN on.

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/world.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kUpload = 3000000, kDownload = 2000000;

// Whether the kernel has MPTCP at all.
bool HasMptcp() {
  const int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
  if (fd < 0) return false;
  close(fd);
  return true;
}

// Gives a socket to a service, and then leaves it alone.
std::function<void(int)> GivenTo(const std::string& service) {
  return [service](int fd) {
    if (const int error = Control(fd, NM_SERVICE, service)) {
      errno = error;
      DieWithErrno("NM_SERVICE");
    }
  };
}

class MptcpTest : public FamilyTest {
 protected:
  static TcpPlan Plan(int client_protocol, int server_protocol) {
    TcpPlan plan(Server(), kUpload, kDownload);
    plan.settle_ms = 100;  // acknowledgements of MPTCP's own end
    plan.client_protocol = client_protocol;
    plan.server_protocol = server_protocol;
    return plan;
  }

  static internal::Ends BothMeters() {
    return lab().Between(World::ClientMeter().cgroup(),
                         World::ServerMeter().cgroup());
  }

  // What the first subflow sent without retransmissions. TCP_INFO tells, while
  // the kernel still has it: on busy guests it was sometimes closed before, and
  // all numbers 0. Then it is what the link saw less what was sent again.
  static int64_t NewBytes(const TcpReport& report, const Measurement& end) {
    if (report.tcp_bytes_sent == 0)
      return end.link().tx_payload - end.seen().tx_retransmit;
    return static_cast<int64_t>(report.tcp_bytes_sent -
                                report.tcp_bytes_retrans);
  }

  static Totals Unattributed(const MeteredCgroup& meter) {
    return meter.TotalOf(Kind::kUnattributed, "unattributed");
  }

  // Both ends in the meters' cgroups, and given to services of this test's
  // own. Everything that a link has is theirs.
  static void ExpectAllOfIt(int client_protocol, int server_protocol,
                            const std::string& name) {
    const std::string service = name + FamilyName(GetParam());
    TcpPlan plan = Plan(client_protocol, server_protocol);
    plan.prepare = GivenTo(service);
    const Totals clients = Unattributed(World::ClientMeter());
    const Totals servers = Unattributed(World::ServerMeter());
    Measurement client(World::ClientMeter(), lab().ClientReference());
    Measurement server(World::ServerMeter(), lab().ServerReference());
    const TcpResult result = RunTcp(BothMeters(), plan);
    client.Finish();
    server.Finish(SynAckSent);
    client.ExpectBalance();
    server.ExpectBalance();
    // What MPTCP itself sends a second time is new to the subflow: as TCP says.
    const int64_t up = NewBytes(result.client, client);
    const int64_t down = NewBytes(result.server, server);
    EXPECT_GE(up, static_cast<int64_t>(kUpload));
    EXPECT_GE(down, static_cast<int64_t>(kDownload));
    client.ExpectPayloadOnly(up, down);
    server.ExpectPayloadOnly(down, up);
    const Totals ours = World::ClientMeter().TotalOf(Kind::kService, service);
    const Totals theirs = World::ServerMeter().TotalOf(Kind::kService, service);
    EXPECT_EQ(ours.tx_bytes, client.link().tx_bytes);
    EXPECT_EQ(ours.rx_bytes, client.link().rx_bytes);
    EXPECT_EQ(theirs.tx_bytes, server.seen().tx_bytes);
    EXPECT_EQ(theirs.rx_bytes, server.seen().rx_bytes);
    EXPECT_EQ(Unattributed(World::ClientMeter()).tx_bytes, clients.tx_bytes);
    EXPECT_EQ(Unattributed(World::ServerMeter()).rx_bytes, servers.rx_bytes);
  }
};
NM_FOR_BOTH_FAMILIES(MptcpTest);

// What a stock server written in Go does. All of it was unattributed.
TEST_P(MptcpTest, PlainClientsOfAListener) {
  ExpectAllOfIt(0, HasMptcp() ? IPPROTO_MPTCP : 0, "mptcp-listener");
}

TEST_P(MptcpTest, BothEnds) {
  const int protocol = HasMptcp() ? IPPROTO_MPTCP : 0;
  ExpectAllOfIt(protocol, protocol, "mptcp-both");
}

TEST_P(MptcpTest, ServerWithoutIt) {
  ExpectAllOfIt(HasMptcp() ? IPPROTO_MPTCP : 0, 0, "mptcp-fallback");
}

// A subflow that joins is made by a worker of the kernel, in no process.
TEST_P(MptcpTest, SubflowsThatJoin) {
  const std::string service = "mptcp-joins" + FamilyName(GetParam());
  const int protocol = HasMptcp() ? IPPROTO_MPTCP : 0;
  if (protocol != 0) {
    for (const NetNamespace* end : {&lab().client, &lab().server}) {
      Ip(*end,
         {"mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"});
    }
    Ip(lab().server, {"mptcp", "endpoint", "add",
                      v4() ? "10.77.3.3" : "fd77:3::3", "signal"});
  }
  TcpPlan plan = Plan(protocol, protocol);
  plan.settle_ms = 200;
  plan.prepare = GivenTo(service);
  const Totals before = World::ServerMeter().Total();
  Measurement client(World::ClientMeter(), lab().ClientReference());
  RunTcp(BothMeters(), plan);
  std::set<uint16_t> subflows;  // by their ports: a SYN may be sent again
  client.Finish([&](const Packet& packet) -> Remainder {
    if (packet.outgoing && packet.syn() && !packet.ack())
      subflows.insert(packet.source_port);
    return {};
  });
  if (protocol != 0) Ip(lab().server, {"mptcp", "endpoint", "flush"});
  EXPECT_EQ(subflows.size(), HasMptcp() ? 2u : 1u);
  client.ExpectBalance();
  const Totals ours = World::ClientMeter().TotalOf(Kind::kService, service);
  EXPECT_EQ(ours.tx_bytes, client.link().tx_bytes);
  EXPECT_EQ(ours.rx_bytes, client.link().rx_bytes);
  // No balance here: subflows end while data is acknowledged on others, and the
  // answer to what comes later is a RST without a socket.
  const Totals counted = World::ServerMeter().Total() - before;
  const Totals theirs = World::ServerMeter().TotalOf(Kind::kService, service);
  EXPECT_EQ(theirs.tx_bytes, counted.tx_bytes);
  EXPECT_EQ(theirs.rx_bytes, counted.rx_bytes);
}

// Both calls answered 0, and changed nothing.
TEST_P(MptcpTest, NamesGivenLaterHoldFromThenOn) {
  const int protocol = HasMptcp() ? IPPROTO_MPTCP : 0;
  const std::string name = "mptcp-later" + FamilyName(GetParam());
  const Address address = Server();
  Child server = AtServer([&](Child::Parent& parent) {
    const int listener = OpenSocket(address.family(), SOCK_STREAM, protocol);
    const int port = Bind(listener, address);
    Check(listen(listener, 8), "listen");
    parent.Send(port);
    for (int i = 0; i < 2; ++i) {
      // Since listen(2) the subflow is there.
      GivenTo(name + std::to_string(i))(listener);
      for (int j = 0; j < 2; ++j) {
        parent.Send(i);
        const int fd = Accept(listener);
        ReceiveUntilEnd(fd);
        close(fd);
      }
    }
  });
  const int port = server.Receive<int>();
  RunAtClient([&] {
    for (int i = 0; i < 2; ++i) {
      for (int of : {0, protocol}) {
        server.Receive<int>();
        const int fd = OpenSocket(address.family(), SOCK_STREAM, of);
        GivenTo(name)(fd);
        Connect(fd, address, port);
        usleep(100000);  // as TcpClient()
        SendAll(fd, 1000);
        usleep(100000);
        if (Control(fd, NM_TAG, "tagged") != 0) DieWithErrno("NM_TAG");
        SendAll(fd, 200);
        usleep(100000);
        close(fd);
      }
    }
  });
  server.Join();
  const auto sent = [&](const char* destination) {
    return World::ClientMeter()
        .TotalOf(Kind::kService, name, destination)
        .tx_payload;
  };
  EXPECT_EQ(sent(""), 4000);
  EXPECT_EQ(sent("tagged"), 800);
  for (const char* i : {"0", "1"}) {
    EXPECT_EQ(World::ServerMeter().TotalOf(Kind::kService, name + i).rx_payload,
              2400)
        << i;
  }
}

// The bug: a socket that connected again kept the destination that its first
// connection had named.
TEST_P(MptcpTest, WhoConnectsAgainHasAnotherDestination) {
  const int protocol = HasMptcp() ? IPPROTO_MPTCP : 0;
  const Address address = Server();
  MeteredCgroup& meter = World::MeterWith("");
  const std::string name = "mptcp-again" + FamilyName(GetParam());
  const std::vector<std::string> hosts = {"first.example", "second.example"};
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    const int listener = OpenSocket(address.family(), SOCK_STREAM, protocol);
    SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    Bind(listener, address, 80);
    Check(listen(listener, 8), "listen");
    parent.Send(0);
    for (size_t i = 0; i < hosts.size(); ++i) {
      const int fd = Accept(listener);
      // Until the end, which is a RST.
      for (char text[100]; recv(fd, text, sizeof(text), 0) > 0;) {
      }
      close(fd);
    }
  });
  server.Receive<int>();
  Child client(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(address.family(), SOCK_STREAM, protocol);
    GivenTo(name)(fd);
    for (const std::string& host : hosts) {
      Connect(fd, address, 80);
      usleep(100000);  // as TcpClient()
      const std::string text = "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
      SendText(fd, text);
      usleep(100000);
      sockaddr none = {};
      none.sa_family = AF_UNSPEC;
      Check(connect(fd, &none, sizeof(none)), "disconnect");
    }
    parent.Send(0);
  });
  client.Receive<int>();
  client.Join();
  server.Join();
  for (const std::string& host : hosts) {
    EXPECT_GT(meter.TotalOf(Kind::kService, name, host.c_str()).tx_payload, 0)
        << host;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
