// SPDX-License-Identifier: BSD-3-Clause
// The documented remainder: what a link sees and no hook does, or the other
// way round. One test for each kind, which the sniffer counts by name; all
// else balances.

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "test/live/egress_hook.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

class RemainderTest : public FamilyTest {
 protected:
};
NM_FOR_BOTH_FAMILIES(RemainderTest);

TEST_P(RemainderTest, TimeWaitTrafficIsSeenByTheLinkOnly) {
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan(Server(), 100000, 50000);
  plan.first_to_close = FirstToClose::kClientAtOnce;
  Measurement measurement(meter, lab().ClientReference());
  RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  bool peer_closed = false;
  measurement.Finish([&](const Packet& packet) -> Remainder {
    if (!packet.outgoing && packet.fin()) peer_closed = true;
    return peer_closed ? Whole("time-wait", packet) : Remainder();
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(plan.upload, plan.download);
  // FIN and ACK; more if the FIN is sent again.
  EXPECT_GE(measurement.RemainderPackets("time-wait"), 2);
}

TEST_P(RemainderTest, SynAcksOverIpv6AreSeenOnEgressFromKernel612) {
  MeteredCgroup& meter = World::ServerMeter();
  TcpPlan plan(Server(), 1000, 1000);
  plan.connections = 5;
  Measurement measurement(meter, lab().ServerReference());
  RunTcp(lab().Between(nullptr, meter.cgroup()), plan);
  measurement.ExpectExact(5000, 5000, SynAckSent);
  const int64_t unseen = measurement.RemainderPackets("syn-ack");
  if (v4() || KernelAtLeast(6, 12)) {
    EXPECT_EQ(unseen, 0);
  } else {
    EXPECT_GE(unseen, 5);
  }
}

TEST_P(RemainderTest, PacketsForNoSocketAreSeenByTheLinkOnly) {
  MeteredCgroup& meter = World::ClientMeter();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    const Address client = Lab::Client(GetParam());
    // A closed UDP port; then a closed TCP port.
    const int udp = OpenSocket(client.family(), SOCK_DGRAM);
    for (int i = 0; i < 3; ++i) SendTo(udp, "nobody there", client, 9);
    const int tcp = OpenSocket(client.family(), SOCK_STREAM);
    BeRefused(tcp, client, 9);
    // Echo requests, which the kernel answers.
    const int ping = OpenPing(client);
    for (int i = 0; i < 4; ++i) Ping(ping, 20);
  });
  measurement.Finish([](const Packet& packet) -> Remainder {
    if (packet.rst()) return Whole("reset", packet);
    if (packet.protocol == 17 || packet.tcp())
      return Whole("no-socket", packet);
    const bool echo = packet.icmp_type == 8 || packet.icmp_type == 0 ||
                      packet.icmp_type == 128 || packet.icmp_type == 129;
    return Whole(echo ? "ping" : "icmp-error", packet);
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, 0);
  EXPECT_EQ(measurement.seen().tx_packets + measurement.seen().rx_packets, 0);
  // The SYN may be sent again; each one is refused.
  const int64_t resets = measurement.RemainderPackets("reset");
  EXPECT_GE(resets, 1);
  EXPECT_EQ(measurement.RemainderPackets("no-socket"), 3 + resets);
  EXPECT_EQ(measurement.RemainderPackets("ping"), 8);
  EXPECT_GE(measurement.RemainderPackets("icmp-error"), 1);
}

TEST_P(RemainderTest, ArpAndNeighbourDiscoveryAreSeenByTheLinkOnly) {
  MeteredCgroup& meter = World::ClientMeter();
  LinkSetup setup;
  setup.offload = false;
  lab().Configure(setup);
  const Address gateway = Lab::Gateway(GetParam());
  lab().client.DeleteNeighbour("c0", gateway);
  TcpPlan plan(Server(), 30000, 30000);
  Measurement measurement(meter, lab().ClientLink());
  RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  measurement.Finish();
  lab().client.AddNeighbour("c0", gateway, MacAddress(2));
  measurement.ExpectBalance();
  measurement.ExpectPayload(plan.upload, plan.download);
  EXPECT_GE(measurement.RemainderPackets(v4() ? "arp" : "nd"), 2);
}

// In a child: says that its socket is there, and receives these bytes.
void ReceiveDatagram(Child::Parent& parent, const Address& at, int port,
                     size_t bytes) {
  const int fd = OpenSocket(at.family(), SOCK_DGRAM);
  Bind(fd, at, port);
  parent.Send(0);
  ReceiveExactly(fd, bytes);
}

// `prepare` is for the client's socket. All datagrams become fragments.
void ExpectRepeatedHeaders(const std::function<void(int)>& prepare) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  UdpPlan plan(Lab::Server(testing::WithParamInterface<Family>::GetParam()),
               {20, 4000}, {10, 6000});
  plan.prepare = prepare;
  Measurement measurement(meter, lab.ClientReference());
  RunUdp(lab.Between(meter.cgroup(), nullptr), plan);
  const bool v4 = plan.server.family() == AF_INET;
  measurement.Finish([v4](const Packet& packet) -> Remainder {
    if (!packet.fragment) return {};
    // The headers of the first fragment are the datagram's, except for IPv6's fragment
    // header.
    if (packet.fragment_offset == 0) return {"fragments", v4 ? 0 : 8, 0};
    return {"fragments", packet.ip_header, 1};
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(20 * 4000, 10 * 6000);
  EXPECT_EQ(measurement.seen().tx_packets, 20);
  EXPECT_EQ(measurement.seen().rx_packets, 10);
  EXPECT_EQ(measurement.RemainderPackets("fragments"), 20 * 2 + 10 * 4);
}

TEST_P(RemainderTest, FragmentsRepeatTheIpHeader) {
  ExpectRepeatedHeaders(nullptr);
}

// Routers read these options, so each fragment has them: a router alert over IPv4,
// hop-by-hop options over IPv6.
TEST_P(RemainderTest, FragmentsRepeatOptionsForRouters) {
  ExpectRepeatedHeaders([](int fd) {
    if (v4()) {
      SetOption(fd, IPPROTO_IP, IP_OPTIONS, std::string("\x94\4\0\0", 4));
    } else {
      SetOption(fd, IPPROTO_IPV6, IPV6_HOPOPTS,
                std::string("\0\0\1\4\0\0\0\0", 8));
    }
  });
}

// A copy has no socket. nft's `dup to` makes it by the same code as TEE.
TEST_P(RemainderTest, CopiesOfNetfilterAreSeenByTheLinkOnly) {
  constexpr int kDatagrams = 10, kBytes = 300;
  MeteredCgroup& meter = World::ClientMeter();
  const Address to = Server();
  const auto change_rule = [&](const std::string& how) {
    IpTables(lab().client, GetParam(),
             {"-t", "mangle", how, "OUTPUT", "-p", "udp", "-j", "TEE",
              "--gateway", Lab::Gateway(GetParam()).text()});
  };
  change_rule("-A");
  Child receiver(nullptr, lab().server, [&](Child::Parent& parent) {
    ReceiveDatagram(parent, to, 9100, 2 * kDatagrams * kBytes);
  });
  receiver.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenSocket(to.family(), SOCK_DGRAM);
    for (int i = 0; i < kDatagrams; ++i)
      SendTo(fd, std::string(kBytes, 'x'), to, 9100);
  });
  receiver.Join();
  int datagrams = 0;
  measurement.Finish([&](const Packet& packet) -> Remainder {
    return packet.outgoing && ++datagrams % 2 == 0 ? Whole("copy", packet)
                                                   : Remainder();
  });
  change_rule("-D");
  measurement.ExpectBalance();
  measurement.ExpectPayload(kDatagrams * kBytes, 0);
  EXPECT_EQ(measurement.RemainderPackets("copy"), kDatagrams);
}

TEST_P(RemainderTest, SynAcksWithCookiesAreSeenByTheLinkOnly) {
  // They are sent without a socket (tcp_make_synack(), TCP_SYNACK_COOKIE).
  MeteredCgroup& meter = World::ServerMeter();
  lab().server.Sysctl("ipv4/tcp_syncookies", "2");  // IPv6's, too
  TcpPlan plan(Server(), 1000, 2000);
  plan.connections = 3;
  Measurement measurement(meter, lab().ServerReference());
  RunTcp(lab().Between(nullptr, meter.cgroup()), plan);
  lab().server.Sysctl("ipv4/tcp_syncookies", "1");
  measurement.Finish([](const Packet& packet) -> Remainder {
    const bool syn_ack = packet.outgoing && packet.syn() && packet.ack();
    return syn_ack ? Whole("syn-cookie", packet) : Remainder();
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(6000, 3000);
  EXPECT_GE(measurement.RemainderPackets("syn-cookie"), 3);
}

TEST_P(RemainderTest, IcmpErrorsAreSeenByTheLinkOnly) {
  // Also those that answer our own packets: the socket gets an errno.
  MeteredCgroup& meter = World::ClientMeter();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client, [&] {
    const Address server = Server();
    const int fd = Connected(server, 9, SOCK_DGRAM);
    Check(send(fd, "nobody there", 12, 0), "send");
    WaitReadable(fd);
    char byte;
    if (recv(fd, &byte, 1, 0) >= 0 || errno != ECONNREFUSED)
      DieWithErrno("recv");
  });
  measurement.Finish([](const Packet& packet) -> Remainder {
    return packet.protocol == 17 ? Remainder() : Whole("icmp-error", packet);
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(12, 0);
  EXPECT_EQ(measurement.RemainderPackets("icmp-error"), 1);
}

// From one address of the server; what another sends afterwards comes to the socket.
TEST_P(RemainderTest, WhatARuleDropsOnTheWayInIsSeenByTheLinkOnly) {
  constexpr int kDropped = 5, kBytes = 50, kRight = 100;  // kRight: bytes
  constexpr int kPort = 9100;
  const Address unwanted = Server(1);
  const auto change_rule = [&](const std::string& how) {
    IpTables(lab().client, GetParam(),
             {how, "INPUT", "-s", unwanted.text(), "-j", "DROP"});
  };
  change_rule("-A");
  MeteredCgroup& meter = World::ClientMeter();
  const Address to = Lab::Client(GetParam());
  Child receiver(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    ReceiveDatagram(parent, to, kPort, kRight);
  });
  receiver.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    const int fd = OpenSocket(to.family(), SOCK_DGRAM);
    Bind(fd, unwanted);
    for (int i = 0; i < kDropped; ++i)
      SendTo(fd, std::string(kBytes, 'x'), to, kPort);
    SendTo(OpenSocket(to.family(), SOCK_DGRAM), std::string(kRight, 'x'), to,
           kPort);
  });
  receiver.Join();
  measurement.Finish([](const Packet& packet) -> Remainder {
    return packet.payload == kBytes ? Whole("dropped-on-input", packet)
                                    : Remainder();
  });
  change_rule("-D");
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, kRight);
  EXPECT_EQ(measurement.RemainderPackets("dropped-on-input"), kDropped);
}

// Beside a datagram that is right, to one socket. The kernel looks at the checksum of
// a longer one when it is read.
TEST_P(RemainderTest, UdpWithAWrongChecksumIsSeenByTheLinkOnly) {
  constexpr int kWrong = 3, kZero = 2, kRight = 100;  // kRight: bytes
  constexpr int kPort = 9100;
  LinkSetup setup;
  setup.offload = false;  // or links of older kernels say that it is right
  lab().Configure(setup);
  MeteredCgroup& meter = World::ClientMeter();
  const Address to = Lab::Client(GetParam());
  Child receiver(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    ReceiveDatagram(parent, to, kPort, kRight);
  });
  receiver.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    const int raw = OpenSocket(to.family(), SOCK_RAW, IPPROTO_UDP);
    const auto send_raw = [&](size_t payload, uint16_t checksum) {
      std::string datagram(8 + payload, '\0');
      const uint16_t header[] = {htons(9), htons(kPort),
                                 htons(static_cast<uint16_t>(8 + payload)),
                                 checksum};
      memcpy(&datagram[0], header, sizeof(header));
      SendTo(raw, datagram, to, 0);
    };
    for (int i = 0; i < kWrong; ++i) send_raw(68, htons(0x1234));
    // IPv4 has checksum 0 for none.
    for (int i = 0; i < kZero && !v4(); ++i) send_raw(500, 0);
    SendTo(OpenSocket(to.family(), SOCK_DGRAM), std::string(kRight, 'x'), to,
           kPort);
  });
  receiver.Join();
  measurement.Finish([](const Packet& packet) -> Remainder {
    return packet.payload == kRight ? Remainder() : Whole("checksum", packet);
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, kRight);
  EXPECT_EQ(measurement.RemainderPackets("checksum"),
            v4() ? kWrong : kWrong + kZero);
}

// Their checksum is wrong: a kernel that speaks SCTP drops them without an answer.
TEST_P(RemainderTest, SctpForARawSocketIsSeenByTheLinkOnly) {
  constexpr int kPackets = 4, kBytes = 60;
  MeteredCgroup& meter = World::ClientMeter();
  const Address to = Lab::Client(GetParam());
  Child receiver(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(to.family(), SOCK_RAW, IPPROTO_SCTP);
    parent.Send(0);
    char buffer[128];
    for (int i = 0; i < kPackets; ++i) {
      WaitReadable(fd);
      Check(recv(fd, buffer, sizeof(buffer), 0), "recv");
    }
  });
  receiver.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    const int fd = OpenSocket(to.family(), SOCK_RAW, IPPROTO_SCTP);
    for (int i = 0; i < kPackets; ++i)
      SendTo(fd, std::string(kBytes, '\1'), to, 0);
  });
  receiver.Join();
  measurement.Finish([](const Packet& packet) -> Remainder {
    return Whole(packet.protocol == IPPROTO_SCTP ? "sctp-raw" : "other",
                 packet);
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, 0);
  EXPECT_EQ(measurement.RemainderPackets("sctp-raw"), kPackets);
  EXPECT_EQ(measurement.RemainderPackets("other"), 0);
}

TEST_P(RemainderTest, MulticastSentWithLoopbackIsCountedOnce) {
  // The sender is a member: the kernel makes a copy for this host, which no
  // link carries.
  MeteredCgroup& meter = World::ClientMeter();
  const Address group(v4() ? "239.77.0.2" : "ff05::78");
  Measurement measurement(meter, lab().ClientLink());
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenSocket(group.family(), SOCK_DGRAM);
    const int port = Bind(fd, Any());
    JoinGroup(fd, group, "c0");
    SendToGroupsBy(fd, group.family(), "c0");
    for (int i = 0; i < 10; ++i) SendTo(fd, std::string(300, 'x'), group, port);
    ReceiveExactly(fd, 10 * 300);
  });
  measurement.ExpectExact(10 * 300, 0);
}

// Drops one packet in eight, at random.
UniqueFd AttachDroppingProgram(const Cgroup& cgroup) {
  const bpf_insn program[] = {
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_prandom_u32},
      {BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 7},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return AttachToEgress(cgroup, program, sizeof(program) / sizeof(program[0]));
}

// Sends 400 KiB while something on this host, after the hook, drops packets. On a busy
// guest only two packets may be under way, and none is dropped: then it sends again.
void ExpectExactPayloadUnderLocalDrops() {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan(Lab::Server(testing::WithParamInterface<Family>::GetParam()),
               400 << 10, 10000);
  // IP, and TCP with a time stamp.
  EgressCounter counter(*meter.cgroup(),
                        plan.server.family() == AF_INET ? 52 : 72);
  const Reference reference = lab.ClientReference();
  const auto on_link = [&reference] {
    const LinkCounters now = reference.where->Counters(reference.link);
    return static_cast<int64_t>(reference.sent_is_outgoing ? now.tx_packets
                                                           : now.rx_packets);
  };
  Measurement measurement(meter, reference);
  const int64_t before = on_link();
  int64_t runs = 0;
  do {
    RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
  } while (++runs < 10 && on_link() - before >= counter.Read().tx_packets);
  measurement.Finish();
  const Totals left = counter.Read();
  Totals dropped;
  dropped.tx_bytes = measurement.link().tx_bytes - left.tx_bytes;
  dropped.tx_packets = measurement.link().tx_packets - left.tx_packets;
  EXPECT_LT(dropped.tx_bytes, 0) << "nothing was dropped: this proves nothing";
  EXPECT_LT(dropped.tx_packets, 0);
  measurement.Explain("dropped-here", dropped);
  measurement.ExpectBalance();
  measurement.ExpectPayloadOnly(runs * plan.upload, runs * plan.download);
  // What was seen but payload is headers, of 40 to 80 bytes each.
  const Totals& seen = measurement.seen();
  EXPECT_GT(seen.tx_retransmit, 0);
  const int64_t headers = seen.tx_bytes - seen.tx_payload - seen.tx_retransmit;
  EXPECT_GE(headers, 40 * seen.tx_packets);
  EXPECT_LE(headers, 100 * seen.tx_packets);
}

TEST_P(RemainderTest, DropsInTheSendersOwnQdiscLeaveThePayloadExact) {
  RunThere(lab().client, {"tc", "qdisc", "add", "dev", "c0", "root", "tbf",
                          "rate", "80mbit", "burst", "10000", "limit", "8000"});
  ExpectExactPayloadUnderLocalDrops();
  RunThere(lab().client, {"tc", "qdisc", "delete", "dev", "c0", "root"});
}

TEST_P(RemainderTest, DropsByAnotherCgroupProgramLeaveThePayloadExact) {
  LinkSetup setup;
  setup.offload = false;  // many packets, so that some are dropped for sure
  lab().Configure(setup);
  // The link ends with its descriptor.
  const UniqueFd link = AttachDroppingProgram(*World::ClientMeter().cgroup());
  ExpectExactPayloadUnderLocalDrops();
}

// Not even if the kernel's own sockets are in the cgroup of the meter, as they are in a
// network namespace that a process of the cgroup has made.
TEST_P(RemainderTest, ResetsOfOnesOwnNamespaceAreSeenByTheLinkOnly) {
  MeteredCgroup& meter = World::ClientMeter();
  const auto unattributed = [&] {
    Totals tcp;
    for (const Sample& sample : meter.Samples())
      if (sample.kind == Kind::kUnattributed &&
          sample.transport == Transport::kTcp)
        tcp.Add(sample);
    return tcp.tx_bytes;
  };
  const int64_t before = unattributed();
  RunChild(meter.cgroup(), lab().client, [&] {
    NetNamespace inner, outer;
    const Address here = HostAddress(GetParam(), 78, 1, 1);
    const Address there = HostAddress(GetParam(), 78, 1, 2);
    Join({&inner, "i0", MacAddress(23), {here}},
         {&outer, "o0", MacAddress(24), {there}});
    outer.Run([&] {
      const int fd = OpenSocket(here.family(), SOCK_STREAM);
      BeRefused(fd, here, 9);
    });
  });
  EXPECT_EQ(unattributed() - before, 0);
}

class Ipv6RemainderTest : public RemainderTest {};
INSTANTIATE_TEST_SUITE_P(Over, Ipv6RemainderTest,
                         testing::Values(Family::kIpv6),
                         [](const auto&) { return "IPv6"; });

// The kernel's own sockets in a network namespace belong to the cgroup of the process
// that made the namespace. Here that is the measured one: neighbour discovery then passes
// a hook, and has no owner. (In all other tests it passes none.)
TEST_P(Ipv6RemainderTest, NeighbourDiscoveryOfOnesOwnNamespaceIsUnattributed) {
  MeteredCgroup& meter = World::ClientMeter();
  const auto unattributed = [&] {
    return meter.TotalOf(Kind::kUnattributed, "unattributed").tx_packets;
  };
  const int64_t before = unattributed();
  RunChild(meter.cgroup(), lab().client, [&] {
    NetNamespace inner, outer;
    // Without addresses: the two have to discover each other.
    Join({&inner, "i0", MacAddress(21), {}},
         {&outer, "o0", MacAddress(22), {}});
    const Address there("fd78::2");
    inner.AddAddress("i0", Address("fd78::1"));
    outer.AddAddress("o0", there);
    inner.Enter();
    const int ping = OpenSocket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);
    Connect(ping, there, 0);
    std::string request(8 + 32, '\0');
    request[0] = static_cast<char>(128);
    // Until the new link is up.
    for (int i = 0; i < 100; ++i) {
      SendText(ping, request);
      pollfd ready = {ping, POLLIN, 0};
      if (poll(&ready, 1, 200) > 0) return;
    }
    DieWithErrno("no answer");
  });
  EXPECT_GE(unattributed() - before, 1);
  // Multicast listener reports go on until the kernel has removed the
  // namespaces; the next test shall see none.
  int64_t last = unattributed();
  for (int quiet = 0, i = 0; quiet < 10 && i < 100; ++i) {
    usleep(100000);
    quiet = unattributed() == last ? quiet + 1 : 0;
    last = unattributed();
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
