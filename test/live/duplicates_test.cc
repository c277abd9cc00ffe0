// SPDX-License-Identifier: BSD-3-Clause
// A packet that several sockets receive counts once: raw sockets, multicast,
// broadcast. Each test runs with one and with three receivers, which belong to
// services of their own.

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/world.h"

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29  // linux/in6.h, from 4.20 on
#endif

namespace netmeter {
namespace internal {
namespace {

constexpr int kCount = 10;     // packets
constexpr int kBytes = 300;    // payload of each
constexpr int kSegments = 20;  // of a GSO packet
constexpr int kNobody = 253;   // a protocol for experiments, RFC 3692

// A process with one socket, in the client's network and its cgroup. It reads
// whatever comes, or nothing at all.
class Receiver {
 public:
  Receiver(const NetNamespace& network, const std::string& service, bool reads,
           const std::function<int()>& open)
      : child_(World::ClientMeter().cgroup(), network,
               [&](Child::Parent& parent) {
                 Loop(parent, service, reads, open);
               }) {
    port_ = child_.Receive<int>();
  }

  int port() const { return port_; }

  // Ends it once its socket has received `expected` bytes, whose last packets may be on
  // their way, or after a time-out; returns how much that was.
  int64_t Finish(int64_t expected) {
    child_.Send(expected);
    const auto bytes = child_.Receive<int64_t>();
    child_.Join();
    return bytes;
  }

 private:
  static void Loop(Child::Parent& parent, const std::string& service,
                   bool reads, const std::function<int()>& open) {
    Register(service);
    const int fd = open();
    parent.Send(PortOf(fd));
    int64_t bytes = 0;
    std::vector<char> buffer(1 << 16);
    const auto drain = [&] {
      for (ssize_t got; (got = recv(fd, buffer.data(), buffer.size(),
                                    MSG_DONTWAIT | MSG_TRUNC)) > 0;)
        bytes += got;
    };
    pollfd ready[] = {{parent.fd(), POLLIN, 0}, {reads ? fd : -1, POLLIN, 0}};
    while (Check(poll(ready, 2, -1), "poll"), ready[0].revents == 0) drain();
    const auto expected = parent.Receive<int64_t>();
    pollfd more = {fd, POLLIN, 0};
    do drain();
    while (bytes < expected && poll(&more, 1, kTimeoutMs) > 0);
    parent.Send(bytes);
  }

  Child child_;
  int port_;
};

class DuplicatesTest
    : public LiveTest,
      public testing::WithParamInterface<std::tuple<Family, int>> {
 protected:
  static Family family() { return std::get<0>(GetParam()); }
  static int count() { return std::get<1>(GetParam()); }
  static bool v4() { return family() == Family::kIpv4; }
  static int af() { return v4() ? AF_INET : AF_INET6; }

  static std::string ServiceOf(size_t receiver) {
    return "duplicates-" + std::to_string(receiver);
  }
  static int64_t ReceivedBy(size_t receiver) {
    return World::ClientMeter()
        .TotalOf(Kind::kService, ServiceOf(receiver))
        .rx_bytes;
  }

  // Receivers, each of a service of its own.
  void Open(const std::function<int()>& open, bool reads = true) {
    for (int i = 0; i < count(); ++i)
      receivers_.push_back(std::make_unique<Receiver>(
          lab().client, ServiceOf(receivers_.size()), reads, open));
  }
  void OpenRaw(int protocol, bool reads = true) {
    Open([=] { return OpenSocket(af(), SOCK_RAW, protocol); }, reads);
  }

  // Every receiver had all of it, so that there were duplicates; and it counts for
  // one of them.
  void ExpectDuplicatesOf(int64_t bytes, const Measurement& measurement) {
    for (const auto& receiver : receivers_)
      EXPECT_GE(receiver->Finish(bytes), bytes);
    int owners = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < receivers_.size(); ++i) {
      const int64_t mine = ReceivedBy(i) - before_[i];
      owners += mine != 0;
      sum += mine;
    }
    EXPECT_EQ(owners, 1);
    EXPECT_EQ(sum, measurement.seen().rx_bytes);
  }

  // The datagrams of one sender.
  void ExpectCountedOnce(Measurement* measurement) {
    measurement->ExpectExact(0, kCount * kBytes);
    ExpectDuplicatesOf(kCount * kBytes, *measurement);
  }

  // What the services have so far.
  void Begin() {
    before_.clear();
    for (size_t i = 0; i < receivers_.size(); ++i)
      before_.push_back(ReceivedBy(i));
  }

  void FinishReceivers() {
    for (const auto& receiver : receivers_) EXPECT_GT(receiver->Finish(1), 0);
  }

  // A TCP connection beside raw sockets of its protocol.
  void ExpectExactBesideRaw(bool reads, uint64_t download) {
    MeteredCgroup& meter = World::ClientMeter();
    TcpPlan plan(Lab::Server(family()), 50000, download);
    OpenRaw(IPPROTO_TCP, reads);
    Measurement measurement(meter, lab().ClientReference());
    RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
    measurement.ExpectExact(plan.upload, plan.download);
    FinishReceivers();
  }

  // A datagram socket that is a member of `group` on the client's link.
  static int OpenMember(const Address& group, int port) {
    const int fd = OpenSocket(group.family(), SOCK_DGRAM);
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20);
    Bind(fd, Address(v4() ? "0.0.0.0" : "::"), port);
    JoinGroup(fd, group, "c0");
    return fd;
  }

  // Router A sends datagrams by the link to the client. All of them have the same bytes,
  // except for the number of a segment.
  static void SendFromRouter(const Address& to, int port, int segments = 1) {
    RunChild(nullptr, lab().router_a, [&] {
      const int fd = OpenSocket(to.family(), SOCK_DGRAM);
      SetOption(fd, SOL_SOCKET, SO_BROADCAST, 1);
      SendToGroupsBy(fd, af(), "a0");
      if (segments > 1) SetOption(fd, IPPROTO_UDP, UDP_SEGMENT, kBytes);
      std::string data(segments * kBytes, 'x');
      for (int i = 0; i < segments; ++i)
        data[i * kBytes] = static_cast<char>('0' + i);
      for (int i = 0; i < kCount; ++i) SendTo(fd, data, to, port);
    });
  }

  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<int64_t> before_;
};

INSTANTIATE_TEST_SUITE_P(Over, DuplicatesTest,
                         testing::Combine(testing::Values(Family::kIpv4,
                                                          Family::kIpv6),
                                          testing::Values(1, 3)),
                         [](const auto& info) {
                           return FamilyName(std::get<0>(info.param)) + "For" +
                                  std::to_string(std::get<1>(info.param));
                         });

// The bug: a raw socket of protocol TCP counted every segment again.
TEST_P(DuplicatesTest, RawSocketsAddNothingToTcp) {
  ExpectExactBesideRaw(/*reads=*/true, 400000);
}

// User space that speaks UDP itself: no socket of the kernel's waits for these.
TEST_P(DuplicatesTest, RawSocketsAloneCountUdpOnce) {
  OpenRaw(IPPROTO_UDP);
  Begin();
  Measurement measurement(World::ClientMeter(), lab().ClientLink());
  SendFromRouter(Lab::Client(family()), 9);
  measurement.Finish([](const Packet& packet) -> Remainder {
    return packet.protocol == 17 ? Remainder() : Whole("icmp-error", packet);
  });
  measurement.ExpectBalance();
  EXPECT_EQ(measurement.seen().rx_packets, kCount);
  ExpectDuplicatesOf(kCount * kBytes, measurement);
}

// Tests TCP: SYNs to a port without a listener. The kernel answers each with a RST of its
// own.
TEST_P(DuplicatesTest, RawSocketsAloneCountTcpOnce) {
  OpenRaw(IPPROTO_TCP);
  Begin();
  Measurement measurement(World::ClientMeter(), lab().ClientLink());
  RunChild(nullptr, lab().router_a, [&] {
    for (int i = 0; i < kCount; ++i) {
      BeRefused(OpenSocket(af(), SOCK_STREAM), Lab::Client(family()), 9);
    }
  });
  measurement.Finish([](const Packet& packet) -> Remainder {
    return packet.rst() ? Whole("reset", packet) : Remainder();
  });
  measurement.ExpectBalance();
  EXPECT_EQ(measurement.seen().rx_packets, kCount);
  EXPECT_EQ(measurement.RemainderPackets("reset"), kCount);
  ExpectDuplicatesOf(kCount * 20, measurement);
}

// The bug: three ping programs counted each echo reply three times.
TEST_P(DuplicatesTest, EchoRepliesCountOnce) {
  MeteredCgroup& meter = World::ClientMeter();
  OpenRaw(v4() ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6});
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenPing(Lab::Server(family()));
    for (int i = 0; i < kCount; ++i) Ping(fd, 200, i / 2);  // some are the same
  });
  measurement.ExpectExact(kCount * 200, kCount * 200);
  FinishReceivers();
}

TEST_P(DuplicatesTest, OtherProtocolsCountOnce) {
  OpenRaw(kNobody);
  Begin();
  Measurement measurement(World::ClientMeter(), lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    const int fd = OpenSocket(af(), SOCK_RAW, kNobody);
    for (int i = 0; i < kCount; ++i)
      SendTo(fd, std::string(kBytes, 'x'), Lab::Client(family()), 0);
  });
  ExpectCountedOnce(&measurement);
}

// The bug: a multicast counted once for each of its receivers.
TEST_P(DuplicatesTest, MulticastCountsOnce) {
  const Address group(v4() ? "239.77.0.3" : "ff05::79");
  Open([=] { return OpenMember(group, 5353); });
  OpenRaw(IPPROTO_UDP);
  Begin();
  Measurement measurement(World::ClientMeter(), lab().ClientLink());
  SendFromRouter(group, 5353);
  ExpectCountedOnce(&measurement);
}

// The bug: if a UDP socket had the port but was no member of the group, it received
// nothing, and all duplicates for raw sockets counted for no service.
TEST_P(DuplicatesTest, RawSocketsAloneCountMulticastOnce) {
  const Address group(v4() ? "239.77.0.6" : "ff05::7c");
  Receiver bystander(lab().client, "duplicates-bystander", true, [=] {
    const int fd = OpenSocket(af(), SOCK_DGRAM);
    Bind(fd, Address(v4() ? "0.0.0.0" : "::"), 5357);
    if (v4())
      SetOption(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    else
      SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    return fd;
  });
  Open([=] {
    const int fd = OpenSocket(af(), SOCK_RAW, IPPROTO_UDP);
    JoinGroup(fd, group, "c0");
    return fd;
  });
  Begin();
  Measurement measurement(World::ClientMeter(), lab().ClientLink());
  SendFromRouter(group, 5357);
  ExpectCountedOnce(&measurement);
  EXPECT_EQ(bystander.Finish(0), 0);
}

// A GSO packet: each receiver gets all its segments before the next does.
TEST_P(DuplicatesTest, SegmentsOfOneMulticastCountOnce) {
  const Address group(v4() ? "239.77.0.4" : "ff05::7a");
  Open([=] { return OpenMember(group, 5354); });
  LinkSetup setup;
  setup.offload = false;
  lab().Configure(setup);
  lab().router_a.SetFeatures("a0", kOffloads, true);
  const Totals before = World::ClientMeter().Total();
  SendFromRouter(group, 5354, kSegments);
  constexpr int64_t kAll = kSegments * kCount * kBytes;
  for (const auto& receiver : receivers_)
    EXPECT_EQ(receiver->Finish(kAll), kAll);
  lab().router_a.SetFeatures("a0", kOffloads, false);
  const Totals counted = World::ClientMeter().Total() - before;
  EXPECT_EQ(counted.rx_packets, kSegments * kCount);
  EXPECT_EQ(counted.rx_payload, kSegments * kCount * kBytes);
}

// IPv6 has none.
class Ipv4DuplicatesTest : public DuplicatesTest {};
INSTANTIATE_TEST_SUITE_P(Over, Ipv4DuplicatesTest,
                         testing::Combine(testing::Values(Family::kIpv4),
                                          testing::Values(1, 3)),
                         [](const auto& info) {
                           return "IPv4For" +
                                  std::to_string(std::get<1>(info.param));
                         });

// The bug: what comes by tun or WireGuard has no link address of a group, and a
// broadcast that a router sends on comes in a frame for one host. Each receiver
// counted it.
TEST_P(Ipv4DuplicatesTest, BroadcastInAFrameForOneHostCountsOnce) {
  NetNamespace outer, inner;
  Join({&inner,
        "c0",
        MacAddress(41),
        {Address("10.79.0.2"), Address("10.79.1.2")}},
       {&outer, "o0", MacAddress(42), {Address("10.79.0.1")}});
  outer.AddRoute(Address("10.79.1.0"), Address("10.79.0.2"));
  for (int i = 0; i < count(); ++i) {
    receivers_.push_back(
        std::make_unique<Receiver>(inner, ServiceOf(i), true, [] {
          const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
          SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
          Bind(fd, Address("0.0.0.0"), 5358);
          return fd;
        }));
  }
  Begin();
  Measurement measurement(World::ClientMeter(), {&outer, "o0", false});
  RunChild(nullptr, outer, [&] {
    const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
    SetOption(fd, SOL_SOCKET, SO_BROADCAST, 1);
    for (int i = 0; i < kCount; ++i)
      SendTo(fd, std::string(kBytes, 'x'), Address("10.79.1.255"), 5358);
  });
  ExpectCountedOnce(&measurement);
}

// A router or a bridge passes the same bytes to several network namespaces, whose links
// have the same number: each link carries one packet.
TEST_P(DuplicatesTest, TheSameBytesInTwoNamespacesAreTwoPackets) {
  const Address group(v4() ? "239.77.0.6" : "ff05::7c");
  const Address from(v4() ? "10.78.0.1" : "fd78::1");
  const Address to(v4() ? "10.78.0.2" : "fd78::2");
  NetNamespace outer, inner[2];
  const std::string links[] = {"o0", "o1"};
  std::vector<std::unique_ptr<Receiver>> receivers;
  for (int i = 0; i < 2; ++i) {
    Join({&inner[i], "c0", MacAddress(31 + i), {to}},
         {&outer, links[i], MacAddress(33 + i), {from}});
    for (int j = 0; j < count(); ++j)
      receivers.push_back(
          std::make_unique<Receiver>(inner[i], ServiceOf(i), true,
                                     [=] { return OpenMember(group, 5357); }));
  }
  const Totals before = World::ClientMeter().Total();
  RunChild(nullptr, outer, [&] {
    RunOnOneCpu();
    const int fd = OpenSocket(af(), SOCK_DGRAM);
    for (int i = 0; i < kCount; ++i) {
      SendToGroupsBy(fd, af(), links[i % 2]);
      SendTo(fd, std::string(kBytes, 'x'), group, 5357);
    }
  });
  for (const auto& receiver : receivers)
    EXPECT_EQ(receiver->Finish(kCount / 2 * kBytes), kCount / 2 * kBytes);
  const Totals counted = World::ClientMeter().Total() - before;
  EXPECT_EQ(counted.rx_packets, kCount);
  EXPECT_EQ(counted.rx_payload, kCount * kBytes);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
