// SPDX-License-Identifier: BSD-3-Clause
// NAT on the host itself: the application's own addresses decide the destination, in both
// directions. A cluster address is translated to a server, with another port and another
// source address; and a transparent proxy takes the connections to a port.
//
//   client c0 ── s0 server

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "test/live/sockets.h"
#include "test/live/traffic.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kProxy = 8443;
constexpr char kConfig[] =
    "destinations:\n"
    "  - {name: cluster, address: 10.96.0.11, port: 53}\n"
    "  - {name: cluster, address: \"fd96::11\", port: 53}\n"
    "  - {name: dns, port: 53}\n";

struct NatLab {
  NetNamespace client, server;

  NatLab() {
    const Family v4 = Family::kIpv4, v6 = Family::kIpv6;
    Join({&client,
          "c0",
          MacAddress(1),
          {At(v4, 1), At(v6, 1), At(v4, 3), At(v6, 3)}},
         {&server, "s0", MacAddress(2), {At(v4, 2), At(v6, 2)}});
    for (Family family : {v4, v6}) {
      client.AddDefaultRoute(At(family, 2));
      // To the server, on another port, from another address.
      for (const std::string protocol : {"tcp", "udp"}) {
        for (const auto& ports : {std::make_pair("53", 5353), {"443", 6443}}) {
          Rule(family, {"OUTPUT", "-p", protocol, "-d", Cluster(family),
                        "--dport", ports.first, "-j", "DNAT",
                        "--to-destination", Target(family, ports.second)});
        }
      }
      Rule(family, {"POSTROUTING", "-o", "c0", "-j", "SNAT", "--to-source",
                    Text(family, 3)});
      Rule(family,
           {"OUTPUT", "-p", "tcp", "-d", Cluster(family), "--dport", "80", "-j",
            "REDIRECT", "--to-ports", std::to_string(kProxy)});
      Rule(family, {"OUTPUT", "-p", "tcp", "-o", "lo", "--dport", "81", "-j",
                    "REDIRECT", "--to-ports", std::to_string(kProxy)});
    }
  }

  void Rule(Family family, std::vector<std::string> rule) {
    rule.insert(rule.begin(), {"-t", "nat", "-A"});
    IpTables(client, family, rule);
  }

  static std::string Text(Family family, int host) {
    return (family == Family::kIpv4 ? "10.79.1." : "fd79::") +
           std::to_string(host);
  }
  static Address At(Family family, int host) {
    return Address(Text(family, host));
  }
  static std::string Cluster(Family family) {
    return family == Family::kIpv4 ? "10.96.0.11" : "fd96::11";
  }
  static std::string Target(Family family, int port) {
    const std::string address = Text(family, 2);
    return (family == Family::kIpv4 ? address : "[" + address + "]") + ":" +
           std::to_string(port);
  }
};

class NatTest : public FamilyTest {
 protected:
  static void SetUpTestSuite() { lab_ = std::make_unique<NatLab>(); }
  static void TearDownTestSuite() { lab_.reset(); }

  // The cluster's address is always that of the application.
  static Address Cluster() { return Address(NatLab::Cluster(GetParam())); }
  static Address Server() { return NatLab::At(GetParam(), 2); }
  static int64_t UdpHeaders() { return v4() ? 20 + 8 : 40 + 8; }

  static std::unique_ptr<NatLab> lab_;
};
std::unique_ptr<NatLab> NatTest::lab_;
NM_FOR_BOTH_FAMILIES(NatTest);

// Answers each datagram with two bytes for each of its own.
void Answer(Child::Parent& parent, const Address& address, int port,
            int datagrams) {
  const int fd = OpenSocket(address.family(), SOCK_DGRAM);
  Bind(fd, address, port);
  parent.Send(0);
  for (; datagrams > 0; --datagrams) {
    char buffer[2000];
    sockaddr_storage peer;
    socklen_t length = sizeof(peer);
    WaitReadable(fd);
    const ssize_t size =
        Check(recvfrom(fd, buffer, 1000, 0, reinterpret_cast<sockaddr*>(&peer),
                       &length),
              "recvfrom");
    Check(sendto(fd, buffer, 2 * size, 0, reinterpret_cast<sockaddr*>(&peer),
                 length),
          "sendto");
  }
}

// The bug: what was sent went to a destination of its own, the translated port's.
TEST_P(NatTest, AConnectedUdpSocketHasTheDestinationOfItsPeer) {
  MeteredCgroup& meter = World::MeterWith(kConfig);
  constexpr int kDatagrams = 5, kSize = 100;
  const auto exchange = [](int fd, const Address& to, int port) {
    Connect(fd, to, port);
    for (int i = 0; i < kDatagrams; ++i) {
      SendAll(fd, kSize);
      ReceiveExactly(fd, 2 * kSize);
    }
  };
  Child server(nullptr, lab_->server, [&](Child::Parent& parent) {
    Answer(parent, Server(), 5353, 2 * kDatagrams);
  });
  server.Receive<int>();
  Child client(meter.cgroup(), lab_->client, [&](Child::Parent&) {
    Register("client");
    const int fd = OpenSocket(Server().family(), SOCK_DGRAM);
    exchange(fd, Cluster(), 53);
    exchange(fd, Server(), 5353);  // it connects again
  });
  client.Join();
  server.Join();
  for (const char* destination : {"cluster", ""}) {
    SCOPED_TRACE(destination);
    const Totals totals = meter.TotalOf(Kind::kService, "client", destination);
    EXPECT_EQ(totals.tx_bytes, kDatagrams * (kSize + UdpHeaders()));
    EXPECT_EQ(totals.rx_bytes, kDatagrams * (2 * kSize + UdpHeaders()));
  }
  EXPECT_EQ(meter.Total().tx_packets, 2 * kDatagrams);
}

// A ClientHello that has only a name.
std::string Hello(const std::string& name) {
  const auto sized = [](int bytes, const std::string& text) {
    std::string size;
    for (int i = bytes - 1; i >= 0; --i) {
      size += static_cast<char>(text.size() >> (8 * i));
    }
    return size + text;
  };
  const std::string names = sized(2, std::string(1, '\0') + sized(2, name));
  const std::string body = "\x03\x03" + std::string(32, 'r') + sized(1, "") +
                           sized(2, "\x13\x01") +
                           sized(1, std::string(1, '\0')) +
                           sized(2, std::string(2, '\0') + sized(2, names));
  return "\x16\x03\x01" + sized(2, "\x01" + sized(3, body));
}

// The bug: ports of SNI, and rules, were compared with the translated address.
TEST_P(NatTest, ATcpConnectionHasTheNameAndTheRuleOfItsPeer) {
  MeteredCgroup& meter = World::MeterWith(kConfig);
  const std::string hello = Hello("named.example");
  for (const bool named : {true, false}) {
    Child server(nullptr, lab_->server, [&](Child::Parent& parent) {
      const int listener = Listen(Server(), named ? 6443 : 5353, 1);
      parent.Send(0);
      const int fd = Accept(listener);
      ReceiveExactly(fd, hello.size());
      SendAll(fd, 1000);
      ReceiveUntilEnd(fd);
    });
    server.Receive<int>();
    Child client(meter.cgroup(), lab_->client, [&](Child::Parent&) {
      Register("client");
      const int fd = OpenSocket(Server().family(), SOCK_STREAM);
      Connect(fd, Cluster(), named ? 443 : 53);
      SendText(fd, hello);
      ReceiveExactly(fd, 1000);
    });
    client.Join();
    server.Join();
  }
  for (const char* destination : {"named.example", "cluster"}) {
    SCOPED_TRACE(destination);
    const Totals totals = meter.TotalOf(Kind::kService, "client", destination);
    EXPECT_EQ(totals.tx_payload, static_cast<int64_t>(hello.size()));
    EXPECT_EQ(totals.rx_payload, 1000);
  }
  EXPECT_EQ(meter.Total().tx_payload, static_cast<int64_t>(2 * hello.size()));
}

// The bug: path `proxy` had one direction at each end, and the FIN was a byte of payload.
// The proxy aborts the second connection: its RST comes from a closed socket. And packets
// over loopback were slow for good, once a connection had been redirected.
TEST_P(NatTest, ARedirectedConnectionHasPathProxyAtBothEndsAndForItsWholeLife) {
  MeteredCgroup& meter = World::MeterWith(kConfig);
  const std::string request = "GET / HTTP/1.1\r\nHost: asked.example\r\n\r\n";
  const int64_t sent = 2 * static_cast<int64_t>(request.size());
  constexpr int kReply = 20000;
  const Address loopback(v4() ? "127.0.0.1" : "::1");
  Child proxy(meter.cgroup(), lab_->client, [&](Child::Parent& parent) {
    RunOnOneCpu();  // or the first data may pass the ingress hook twice
    Register("proxy");
    const int listener = Listen(loopback, kProxy, 1);
    parent.Send(0);
    for (const bool aborts : {false, true}) {
      const int fd = Accept(listener);
      ReceiveExactly(fd, request.size());
      SendAll(fd, kReply);
      parent.Receive<int>();
      if (aborts) {
        Abort(fd);
      } else {
        ReceiveUntilEnd(fd);
        close(fd);
      }
    }
  });
  proxy.Receive<int>();
  Child client(meter.cgroup(), lab_->client, [&](Child::Parent& parent) {
    RunOnOneCpu();
    Register("client");
    for (const bool aborted : {false, true}) {
      const int fd = OpenSocket(loopback.family(), SOCK_STREAM);
      Connect(fd, Cluster(), 80);
      SendText(fd, request);
      ReceiveExactly(fd, kReply);
      parent.Send(0);
      parent.Receive<int>();
      if (!aborted) Check(shutdown(fd, SHUT_WR), "shutdown");
      char byte;
      WaitReadable(fd);
      const ssize_t end = recv(fd, &byte, 1, 0);
      if (end != 0 && (!aborted || errno != ECONNRESET)) DieWithErrno("recv");
      close(fd);
    }
  });
  Totals ours, theirs;
  const auto read = [&] {
    ours = meter.TotalOf(Kind::kService, "client", "asked.example");
    theirs = meter.TotalOf(Kind::kService, "proxy");
  };
  // SYN-ACKs: SynAckSent().
  const int64_t unseen =
      GetParam() == Family::kIpv6 && !KernelAtLeast(6, 12) ? 80 : 0;
  for (int connections = 1; connections <= 2; ++connections) {
    client.Receive<int>();
    // An acknowledgement may be late.
    for (int i = 0; i < 500; ++i) {
      if (i > 0) usleep(10000);
      read();
      if (ours.tx_bytes == theirs.rx_bytes &&
          ours.rx_bytes == theirs.tx_bytes + connections * unseen) {
        break;
      }
    }
    EXPECT_EQ(ours.tx_bytes, theirs.rx_bytes);
    EXPECT_EQ(ours.rx_bytes, theirs.tx_bytes + connections * unseen);
    client.Send(0);
    proxy.Send(0);
  }
  const int64_t before_rst = theirs.tx_packets;
  client.Join();
  proxy.Join();
  read();
  EXPECT_EQ(meter.ReadStats().connections_redirected, 0u);
  EXPECT_EQ(theirs.tx_packets, before_rst + 1);
  EXPECT_EQ(ours.tx_payload, sent);
  EXPECT_EQ(ours.rx_payload, 2 * kReply);
  EXPECT_EQ(theirs.tx_payload, 2 * kReply);
  EXPECT_EQ(theirs.rx_payload, sent);
  EXPECT_EQ(meter.Total(Path::kProxy).tx_bytes,
            ours.tx_bytes + theirs.tx_bytes);
  EXPECT_EQ(meter.Total(Path::kDirect).tx_bytes, 0);
}

// The bug: a socket that connected again counted as redirected for good. No hook tells
// that a connection over loopback has failed.
TEST_P(NatTest, ARedirectedConnectionThatFailsIsNotOpen) {
  MeteredCgroup& meter = World::MeterWith(kConfig);
  const Address loopback(v4() ? "127.0.0.1" : "::1");
  RunChild(meter.cgroup(), lab_->client, [&] {
    sockaddr_storage address = loopback.WithPort(81);
    for (const bool listens : {false, true}) {
      const int fd = OpenSocket(loopback.family(), SOCK_STREAM);
      for (int i = 0; i < 3; ++i) {
        if (connect(fd, reinterpret_cast<sockaddr*>(&address),
                    Address::Length(address)) == 0) {
          errno = 0;
          DieWithErrno("connect");
        }
      }
      if (listens) Check(listen(fd, 1), "listen");
      close(fd);
    }
  });
  EXPECT_EQ(meter.ReadStats().connections_redirected, 0u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
