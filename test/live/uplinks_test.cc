// SPDX-License-Identifier: BSD-3-Clause
// A gateway with two uplinks, which forwards for a LAN and has services of its own:
// for each uplink and direction, what the services had and what was forwarded is
// what the interface counted, to the byte; also while connections move from one
// uplink to the other.

#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "test/live/connections.h"
#include "test/live/gateway.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kConfig[] =
    "uplinks:\n"
    "  satellite: [sat0, \"wwan*\"]\n"
    "  mobile: [lte0]\n"
    "  lan: [lan0]\n";
constexpr int kRounds = 4;

const std::map<std::string, std::string> kUplinks = {
    {"sat0", "satellite"}, {"lte0", "mobile"}, {"lan0", "lan"}};

// What was counted in between.
UplinkCounts Between(const UplinkCounts& before, const UplinkCounts& after) {
  UplinkCounts counts = after;
  for (const auto member :
       {&UplinkCounts::interface_bytes, &UplinkCounts::interface_packets,
        &UplinkCounts::local_bytes, &UplinkCounts::local_packets,
        &UplinkCounts::forwarded_bytes, &UplinkCounts::forwarded_packets,
        &UplinkCounts::layer2_header_bytes, &UplinkCounts::unnamed_bytes,
        &UplinkCounts::unnamed_packets}) {
    counts.*member -= before.*member;
  }
  return counts;
}

bool MeasuresForwarded() { return KernelAtLeast(6, 4); }

class UplinksTest : public FamilyTest {
 protected:
  static void SetUpTestSuite() {
    lab_ = new GatewayLab;
    // The uplinks are those of the namespace that the loader runs in.
    lab_->gateway.Run([] { meter_ = new MeteredCgroup("uplinks", kConfig); });
  }
  static void TearDownTestSuite() {
    delete meter_;
    delete lab_;
    meter_ = nullptr;
    lab_ = nullptr;
  }

  void SetUp() override {
    FamilyTest::SetUp();
    meter_->CountFromNow();
    Route(Way::kSatellite, Way::kSatellite);
  }

  void Route(Way out, Way back) {
    lab_->Out(GetParam(), out);
    lab_->Back(GetParam(), back);
  }

  // By name. The reader has to be in the namespace of the uplinks.
  static std::map<std::string, Uplink> ReadUplinks() {
    std::map<std::string, Uplink> uplinks;
    lab_->gateway.Run([&] {
      const auto read = meter_->meter().ReadUplinks();
      ASSERT_TRUE(read.ok()) << read.status();
      for (const Uplink& uplink : *read) uplinks[uplink.name] = uplink;
    });
    return uplinks;
  }

  static void ExpectRead(const UplinkCounts& read, int64_t link_bytes,
                         int64_t link_packets, int64_t forwarded_bytes,
                         const std::string& what) {
    EXPECT_EQ(read.interface_packets, static_cast<uint64_t>(link_packets))
        << what;
    EXPECT_EQ(read.interface_bytes,
              static_cast<uint64_t>(link_bytes + kEthernet * link_packets))
        << what;
    EXPECT_EQ(read.forwarded_bytes,
              static_cast<uint64_t>(MeasuresForwarded() ? forwarded_bytes : 0))
        << what;
    EXPECT_EQ(read.local_bytes + read.forwarded_bytes +
                  read.layer2_header_bytes + read.unnamed_bytes,
              read.interface_bytes)
        << what;
    EXPECT_EQ(
        read.unnamed_packets,
        read.interface_packets - read.local_packets - read.forwarded_packets)
        << what;
    if (MeasuresForwarded()) {
      EXPECT_EQ(read.unnamed_packets, 0u) << what;
    }
  }

  static Totals Local(const std::string& uplink) {
    Totals totals;
    for (const Sample& sample : meter_->Samples()) {
      if (sample.path == Path::kDirect && sample.uplink == uplink) {
        totals.Add(sample);
      }
    }
    return totals;
  }

  Address Server() const { return At(GetParam(), kServer, 1); }

  static void ExpectNothingLocal(const std::vector<std::string>& uplinks) {
    for (const std::string& uplink : uplinks) {
      ExpectEqual(Totals(), Local(uplink), "uplink '" + uplink + "'");
    }
  }

  // One connection from there to the server, and a socket of UDP that sends beside
  // it; `between` is called before each round. Returns the bytes that the client's
  // TCP sent again: on a slow machine it probes for a lost tail that only is late.
  template <typename Between>
  int64_t Talk(const Cgroup* cgroup, const NetNamespace& client_network,
               const Between& between) {
    const Address to = Server();
    const int family = to.family();
    Child server(nullptr, lab_->internet, [&](Child::Parent& parent) {
      const int listener = OpenSocket(family, SOCK_STREAM);
      const int port = Bind(listener, to);
      Check(listen(listener, 1), "listen");
      const int udp = OpenSocket(family, SOCK_DGRAM);
      Check(Bind(udp, to, port), "bind");
      parent.Send(port);
      const int fd = Accept(listener);
      for (int round = 0; round < kRounds; ++round) {
        ReceiveExactly(fd, 100001);
        SendAll(fd, 50003);
        for (int i = 0; i < 5; ++i) {
          char data[2000];
          sockaddr_storage from = {};
          socklen_t length = sizeof(from);
          WaitReadable(udp);
          const ssize_t size =
              recvfrom(udp, data, sizeof(data), 0,
                       reinterpret_cast<sockaddr*>(&from), &length);
          Check(sendto(udp, data, static_cast<size_t>(size), 0,
                       reinterpret_cast<sockaddr*>(&from), length),
                "sendto");
        }
      }
      ReceiveUntilEnd(fd);
    });
    const int port = server.Receive<int>();
    Child client(cgroup, client_network, [&](Child::Parent& parent) {
      const int fd = OpenSocket(family, SOCK_STREAM);
      const int udp = OpenSocket(family, SOCK_DGRAM);
      Connect(fd, to, port);
      for (int round = 0; round < kRounds; ++round) {
        parent.Send(round);
        parent.Receive<int>();
        SendAll(fd, 100001);
        ReceiveExactly(fd, 50003);
        for (int i = 0; i < 5; ++i) {
          SendTo(udp, std::string(700, 'x'), to, port);
          char data[2000];
          WaitReadable(udp);
          Check(recv(udp, data, sizeof(data), 0), "recv");
        }
      }
      Check(shutdown(fd, SHUT_WR), "shutdown");
      ReceiveUntilEnd(fd);
      parent.Send(static_cast<int64_t>(TcpInfo(fd).tcpi_bytes_retrans));
    });
    for (int round = 0; round < kRounds; ++round) {
      client.Receive<int>();
      AwaitQuiet(lab_->gateway);
      between(round);
      client.Send(0);
    }
    const int64_t sent_again = client.Receive<int64_t>();
    client.Join();
    server.Join();
    AwaitQuiet(lab_->gateway);
    return sent_again;
  }

  static GatewayLab* lab_;
  static MeteredCgroup* meter_;
};
GatewayLab* UplinksTest::lab_ = nullptr;
MeteredCgroup* UplinksTest::meter_ = nullptr;
NM_FOR_BOTH_FAMILIES(UplinksTest);

TEST_P(UplinksTest, LocalAndForwardedAreWhatEachUplinkCounted) {
  for (const Way way : {Way::kSatellite, Way::kMobile}) {
    SCOPED_TRACE(way == Way::kSatellite ? "satellite" : "mobile");
    Route(way, way);
    meter_->CountFromNow();
    auto before = ReadUplinks();
    const Links links(lab_->gateway);
    Talk(meter_->cgroup(), lab_->gateway, [](int) {});
    Talk(nullptr, lab_->lan, [](int) {});
    auto after = ReadUplinks();
    // All that passed the LAN was forwarded. What came in there went out here.
    const Totals forwarded = links.Of("lan0");
    ASSERT_GT(forwarded.tx_bytes, 4 * 50003);
    Totals expected = Local(way == Way::kSatellite ? "satellite" : "mobile");
    ASSERT_GT(expected.tx_bytes, 4 * 100001);
    expected.tx_bytes += forwarded.rx_bytes;
    expected.rx_bytes += forwarded.tx_bytes;
    expected.tx_packets += forwarded.rx_packets;
    expected.rx_packets += forwarded.tx_packets;
    ExpectEqual(expected, links.Of(way == Way::kSatellite ? "sat0" : "lte0"),
                "in use");
    ExpectEqual(Totals(), links.Of(way == Way::kSatellite ? "lte0" : "sat0"),
                "not in use");
    ExpectNothingLocal({"lan", "other", ""});
    const std::string in_use = way == Way::kSatellite ? "satellite" : "mobile";
    for (const auto& [link, uplink] : kUplinks) {
      const Uplink &was = before[uplink], &now = after[uplink];
      EXPECT_EQ(now.unknown, "") << uplink;
      EXPECT_EQ(now.forwarded_unknown.empty(), MeasuresForwarded()) << uplink;
      Totals passed = uplink == "lan" ? forwarded : Totals();
      if (uplink == in_use) {
        passed.tx_bytes = forwarded.rx_bytes;
        passed.rx_bytes = forwarded.tx_bytes;
      }
      const Totals all = links.Of(link);
      ExpectRead(Between(was.tx, now.tx), all.tx_bytes, all.tx_packets,
                 passed.tx_bytes, uplink + " tx");
      ExpectRead(Between(was.rx, now.rx), all.rx_bytes, all.rx_packets,
                 passed.rx_bytes, uplink + " rx");
    }
  }
}

// Each segment was counted with a header of 8 bytes, as UDP's; SCTP's has 12.
TEST_P(UplinksTest, ForwardedSctpCountsAsItsSegments) {
  const int family = Server().family();
  if (!KernelHas(family, SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  if (!MeasuresForwarded()) return;
  // The packets leave the LAN whole, and the gateway cuts them.
  const std::vector<std::string> whole = {
      "tx-generic-segmentation", "tx-sctp-segmentation", "tx-checksum"};
  lab_->lan.SetFeatures("l0", whole, true);
  auto before = ReadUplinks();
  const Links links(lab_->gateway);
  const LinkCounters sent = lab_->lan.Counters("l0");
  const Address to = Server();
  Child server(nullptr, lab_->internet, [&](Child::Parent& parent) {
    const int listener = OpenSocket(family, SOCK_STREAM, IPPROTO_SCTP);
    const int port = Bind(listener, to);
    Check(listen(listener, 1), "listen");
    parent.Send(port);
    ReceiveExactly(Accept(listener), 200000);
  });
  const int port = server.Receive<int>();
  RunChild(nullptr, lab_->lan, [&] {
    const int fd = OpenSocket(family, SOCK_STREAM, IPPROTO_SCTP);
    Connect(fd, to, port);
    SendAll(fd, 200000);
    close(fd);
  });
  server.Join();
  AwaitQuiet(lab_->gateway);
  lab_->lan.SetFeatures("l0", whole, false);
  auto after = ReadUplinks();
  for (const auto& [link, uplink] : kUplinks) {
    if (uplink == "mobile") continue;
    const UplinkCounts passed = Between(before[uplink].tx, after[uplink].tx);
    EXPECT_EQ(passed.forwarded_bytes,
              static_cast<uint64_t>(links.Of(link).tx_bytes))
        << link;
    EXPECT_EQ(passed.forwarded_packets,
              static_cast<uint64_t>(links.Of(link).tx_packets))
        << link;
  }
  EXPECT_LT(lab_->lan.Counters("l0").tx_packets - sent.tx_packets,
            static_cast<uint64_t>(links.Of("sat0").tx_packets))
      << "no GSO packet";
}

TEST_P(UplinksTest, AConnectionThatMovesCountsWhereItsPacketsPass) {
  const Links links(lab_->gateway);
  const auto move = [this](int round) {
    // To the other one, back on the other one, home again.
    if (round == 1) Route(Way::kMobile, Way::kSatellite);
    if (round == 2) Route(Way::kMobile, Way::kMobile);
    if (round == 3) Route(Way::kSatellite, Way::kMobile);
  };
  const int64_t sent_again = Talk(meter_->cgroup(), lab_->gateway, move);
  const Totals satellite = Local("satellite"), mobile = Local("mobile");
  ExpectEqual(satellite, links.Of("sat0"), "satellite");
  ExpectEqual(mobile, links.Of("lte0"), "mobile");
  // Two of the rounds passed each of them, in each direction.
  for (const Totals& uplink : {satellite, mobile}) {
    EXPECT_GT(uplink.tx_bytes, 2 * 100001);
    EXPECT_GT(uplink.rx_bytes, 2 * 50003);
  }
  EXPECT_EQ(satellite.tx_payload + mobile.tx_payload,
            kRounds * (100001 + 5 * 700));
  EXPECT_EQ(satellite.rx_payload + mobile.rx_payload,
            kRounds * (50003 + 5 * 700));
  EXPECT_EQ(satellite.tx_retransmit + mobile.tx_retransmit, sent_again);
  ExpectNothingLocal({"other", ""});
}

TEST_P(UplinksTest, WhatMovesBeforeItIsNamedCountsWhereItPassed) {
  const Address to = Server();
  const Links links(lab_->gateway);
  const std::string request = "GET / HTTP/1.1\r\nHost: moves.example\r\n\r\n";
  Child server(nullptr, lab_->internet, [&](Child::Parent& parent) {
    const int listener = Listen(to, 80, 1);
    parent.Send(0);
    const int fd = Accept(listener);
    ReceiveExactly(fd, request.size());
    SendAll(fd, 10007);
    ReceiveUntilEnd(fd);
  });
  server.Receive<int>();
  Child client(meter_->cgroup(), lab_->gateway, [&](Child::Parent& parent) {
    const int fd = Connected(to, 80);
    parent.Send(0);
    parent.Receive<int>();
    SendText(fd, request);
    ReceiveExactly(fd, 10007);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    ReceiveUntilEnd(fd);
  });
  client.Receive<int>();
  Route(Way::kMobile, Way::kMobile);
  client.Send(0);
  client.Join();
  server.Join();
  AwaitQuiet(lab_->gateway);
  ExpectEqual(Local("satellite"), links.Of("sat0"), "satellite");
  ExpectEqual(Local("mobile"), links.Of("lte0"), "mobile");
  Totals named, elsewhere, pending;
  uint64_t opened = 0;
  for (const Sample& sample : meter_->Samples()) {
    if (sample.kind == Kind::kPending) pending.Add(sample);
    if (sample.destination != "moves.example") continue;
    (sample.uplink == "satellite" ? named : elsewhere).Add(sample);
    opened += sample.tcp.opened;
  }
  ExpectEqual(Totals(), pending, "pending");
  // The handshake was named when the request was, elsewhere.
  EXPECT_EQ(named.tx_packets, 2);
  EXPECT_EQ(named.rx_packets, 1);
  EXPECT_GT(elsewhere.rx_bytes, 10007);
  EXPECT_GE(opened, 1u);
}

TEST_P(UplinksTest, ServicesOfTheLanAndTheProxyHaveTheirOwn) {
  const Links links(lab_->gateway);
  const Address own = At(GetParam(), 3, 1);
  const Address loopback(v4() ? "127.0.0.1" : "::1");
  Child service(meter_->cgroup(), lab_->gateway, [&](Child::Parent& parent) {
    const int listener = OpenSocket(own.family(), SOCK_STREAM);
    const int port = Bind(listener, own);
    Check(listen(listener, 1), "listen");
    const int proxy = OpenSocket(own.family(), SOCK_STREAM);
    Check(Bind(proxy, loopback, 8443), "bind");
    Check(listen(proxy, 1), "listen");
    parent.Send(port);
    const int fd = Accept(listener);
    ReceiveExactly(fd, 3001);
    const int through = OpenSocket(own.family(), SOCK_STREAM);
    Connect(through, loopback, 8443);
    SendAll(through, 3001);
    close(through);
    ReceiveUntilEnd(Accept(proxy));
    SendAll(fd, 9001);
    Check(shutdown(fd, SHUT_WR), "shutdown");
    ReceiveUntilEnd(fd);
  });
  const int port = service.Receive<int>();
  RunChild(nullptr, lab_->lan, [&] {
    const int fd = Connected(own, port);
    // Data that race with the end of the handshake pass the ingress hook twice
    // (req_stolen in tcp_v4_rcv()). QEMU gives each CPU 100 ms before the next.
    usleep(120000);
    SendAll(fd, 3001);
    ReceiveUntilEnd(fd);
  });
  service.Join();
  AwaitQuiet(lab_->gateway);
  Totals expected = links.Of("lan0");
  // Before 6.12 no hook sees a SYN-ACK over IPv6: SynAckSent().
  if (GetParam() == Family::kIpv6 && !KernelAtLeast(6, 12)) {
    expected.tx_packets -= 1;
    expected.tx_bytes -= 80;
  }
  ExpectEqual(Local("lan"), expected, "lan");
  ExpectEqual(Totals(), links.Of("sat0"), "satellite");
  EXPECT_GT(meter_->Total(Path::kProxy).tx_payload, 3000);
  for (const Sample& sample : meter_->Samples()) {
    if (sample.path != Path::kProxy) continue;
    EXPECT_EQ(sample.uplink, "");
  }
}

TEST_P(UplinksTest, AnInterfaceCountsFromItsFirstPacketAndAsItIsCalled) {
  const int network = 5;
  lab_->Cable("wwan7", &lab_->internet, "u7", network);
  GatewayLab::Settle();
  const LinkCounters before = lab_->gateway.Counters("wwan7");
  const auto send = [&](int datagrams) {
    RunChild(meter_->cgroup(), lab_->gateway, [&] {
      const Address to = At(GetParam(), network, 2);
      const int udp = OpenSocket(to.family(), SOCK_DGRAM);
      for (int i = 0; i < datagrams; ++i) {
        SendTo(udp, std::string(100, 'x'), to, 9);
      }
    });
  };
  send(3);
  EXPECT_EQ(Local("satellite").tx_payload, 300);
  EXPECT_EQ(Local("satellite").tx_bytes + 3 * kEthernet,
            static_cast<int64_t>(lab_->gateway.Counters("wwan7").tx_bytes -
                                 before.tx_bytes));
  Ip(lab_->gateway, {"link", "set", "wwan7", "down"});
  Ip(lab_->gateway, {"link", "set", "wwan7", "name", "spare7"});
  Ip(lab_->gateway, {"link", "set", "spare7", "up"});
  if (GetParam() == Family::kIpv6) {  // they went when it was down
    lab_->gateway.AddAddress("spare7", At(GetParam(), network, 1));
  }
  lab_->gateway.AddNeighbour("spare7", At(GetParam(), network, 2),
                             MacAddress(2 * network + 1));
  send(5);
  EXPECT_EQ(Local("satellite").tx_payload, 300);
  EXPECT_EQ(Local("other").tx_payload, 500);
  Ip(lab_->gateway, {"link", "delete", "spare7"});
}

TEST_P(UplinksTest, SocketsOfAnotherNamespaceHaveNone) {
  const Links links(lab_->gateway);
  Talk(meter_->cgroup(), lab_->lan, [](int) {});
  const Totals none = Local("");
  ExpectNothingLocal({"satellite", "lan", "other"});
  // It was forwarded, as all that the LAN has.
  ExpectEqual(none, links.Of("sat0"), "sat0");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
