// SPDX-License-Identifier: BSD-3-Clause
// Transports that are modules of the kernel: SCTP, DCCP, and L2TP over IP. The host may
// have none of them; the virtual machines load what Debian's kernels have.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "netmeter/abi.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// Those of linux/l2tp.h, which does not go with netinet/in.h.
constexpr int kL2tp = 115;  // IPPROTO_L2TP
struct L2tpAddress {
  sa_family_t family;
  uint16_t unused;
  in_addr address;
  uint32_t connection;
  char padding[4];
};
struct L2tpAddress6 {
  sa_family_t family;
  uint16_t unused;
  uint32_t flow;
  in6_addr address;
  uint32_t scope;
  uint32_t connection;
};

class ProtocolsTest : public FamilyTest {
 protected:
  static int af() { return v4() ? AF_INET : AF_INET6; }
  static bool v4() { return GetParam() == Family::kIpv4; }

  // Whether this kernel has the protocol. It must, where the module was copied into
  // the virtual machine (matrix.sh).
  static bool IsHere(int type, int protocol, const std::string& module) {
    const UniqueFd probe(socket(af(), type | SOCK_CLOEXEC, protocol));
    if (probe.ok()) return true;
    Measurement::NotOnThisKernel("socket of " + module + ": " +
                                 std::strerror(errno));
    EXPECT_NE(access(("/mod/" + module + ".ko").c_str(), F_OK), 0)
        << "loaded, but no socket";
    return false;
  }

  // Opens a connection, which stays: sends pieces of so many bytes, receives 50,000.
  static void SctpExchange(const Address& to, int port, int pieces,
                           uint64_t bytes) {
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    Connect(fd, to, port);
    for (int i = 0; i < pieces; ++i) SendAll(fd, bytes);
    ReceiveExactly(fd, 50000);
  }

  static void HoldUntilMeasured(Child::Parent& parent) {
    usleep(300000);  // acknowledgements are delayed
    parent.Send(0);
    parent.Receive<int>();
  }
};
NM_FOR_BOTH_FAMILIES(ProtocolsTest);

TEST_P(ProtocolsTest, SctpBalances) {
  Lab& lab = World::CleanLab();
  const Address server = Lab::Server(GetParam());
  if (!IsHere(SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  MeteredCgroup& meter = World::ClientMeter();
  Child listener(nullptr, lab.server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(server.family(), SOCK_STREAM, IPPROTO_SCTP);
    const int port = Bind(fd, server);
    Check(listen(fd, 1), "listen");
    parent.Send(port);
    const int accepted = Accept(fd);
    ReceiveExactly(accepted, 200 * 500);
    SendAll(accepted, 50000);
    parent.Receive<int>();
  });
  const int port = listener.Receive<int>();
  const Totals before = meter.TotalOf(Transport::kSctp);
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    SctpExchange(server, port, /*pieces=*/200, 500);
    HoldUntilMeasured(parent);
  });
  client.Receive<int>();
  measurement.Finish();
  measurement.ExpectBalance();
  const Totals after = meter.TotalOf(Transport::kSctp);
  EXPECT_EQ(after.tx_bytes - before.tx_bytes, measurement.seen().tx_bytes);
  EXPECT_GE(after.tx_payload - before.tx_payload, 200 * 500);
  EXPECT_GE(after.rx_payload - before.rx_payload, 50000);
}

// Up to Linux 6.18 accept(2) of SCTP makes a socket that no hook sees: what a server
// sent was `unattributed`.
TEST_P(ProtocolsTest, WhatAnSctpServerAcceptsIsItsOwn) {
  if (!IsHere(SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  constexpr int kConnections = 3;
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  Child server(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    Register("sctp-server");
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    errno = Control(fd, NM_TAG, "core");
    if (errno != 0) Die("NM_TAG");
    const int port = Bind(fd, Lab::Client(GetParam()));
    Check(listen(fd, kConnections), "listen");
    parent.Send(port);
    for (int i = 0; i < kConnections; ++i) {
      const int accepted = Accept(fd);
      ReceiveExactly(accepted, 1000);
      SendAll(accepted, 50000);
    }
    parent.Receive<int>();
  });
  const int port = server.Receive<int>();
  const Totals before = meter.TotalOf(Kind::kService, "sctp-server", "core");
  const Totals all_before = meter.TotalOf(Transport::kSctp);
  Measurement measurement(meter, lab.ClientReference());
  Child client(nullptr, lab.server, [&](Child::Parent& parent) {
    for (int i = 0; i < kConnections; ++i) {
      SctpExchange(Lab::Client(GetParam()), port, /*pieces=*/1, 1000);
    }
    HoldUntilMeasured(parent);
  });
  client.Receive<int>();
  measurement.Finish();
  measurement.ExpectBalance();
  const Totals own = meter.TotalOf(Kind::kService, "sctp-server", "core");
  const Totals all = meter.TotalOf(Transport::kSctp);
  EXPECT_GE(own.tx_payload - before.tx_payload, kConnections * 50000);
  EXPECT_EQ(own.tx_bytes - before.tx_bytes, all.tx_bytes - all_before.tx_bytes);
  EXPECT_EQ(own.rx_bytes - before.rx_bytes, all.rx_bytes - all_before.rx_bytes);
}

// The kernel runs the hook twice for a packet to such a socket, which any user may
// open: each counted as two.
TEST_P(ProtocolsTest, L2tpOverIpCountsOnce) {
  if (!IsHere(SOCK_DGRAM, kL2tp, v4() ? "l2tp_ip" : "l2tp_ip6")) return;
  constexpr int kPackets = 10;
  constexpr uint32_t kConnection = 77;
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  Child receiver(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    Register("l2tp");
    const int fd = OpenSocket(af(), SOCK_DGRAM, kL2tp);
    L2tpAddress ipv4 = {};
    ipv4.family = AF_INET;
    ipv4.connection = kConnection;
    L2tpAddress6 ipv6 = {};
    ipv6.family = AF_INET6;
    ipv6.connection = kConnection;
    const auto* const here = v4() ? reinterpret_cast<sockaddr*>(&ipv4)
                                  : reinterpret_cast<sockaddr*>(&ipv6);
    Check(bind(fd, here, v4() ? sizeof(ipv4) : sizeof(ipv6)), "bind");
    parent.Send(0);
    char data[200];
    for (int i = 0; i < kPackets; ++i) {
      WaitReadable(fd);
      Check(recv(fd, data, sizeof(data), 0), "recv");
    }
    parent.Send(0);
  });
  receiver.Receive<int>();
  const Totals before = meter.TotalOf(Kind::kService, "l2tp");
  Measurement measurement(meter, lab.ClientReference());
  Child sender(nullptr, lab.server, [&](Child::Parent&) {
    // RFC 3931, 4.1.1.2: session 0, a control message, and whose it is.
    std::string packet("\0\0\0\0\xc8\x03\0\x64\0\0\0\x4d", 12);
    packet.resize(104);
    const int fd = OpenSocket(af(), SOCK_RAW, kL2tp);
    for (int i = 0; i < kPackets; ++i) {
      SendTo(fd, packet, Lab::Client(GetParam()), 0);
    }
  });
  sender.Join();
  receiver.Receive<int>();
  receiver.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  const Totals after = meter.TotalOf(Kind::kService, "l2tp");
  EXPECT_EQ(after.rx_packets - before.rx_packets, kPackets);
  EXPECT_EQ(after.rx_bytes - before.rx_bytes,
            kPackets * (104 + (v4() ? 20 : 40)));
}

// The same for DCCP over IPv6, to Linux 6.15, which is the last one that has it.
TEST_P(ProtocolsTest, DccpBalances) {
  if (!IsHere(SOCK_DCCP, IPPROTO_DCCP, v4() ? "dccp_ipv4" : "dccp_ipv6")) {
    return;
  }
  constexpr int kLevel = 269, kService = 2;  // SOL_DCCP, DCCP_SOCKOPT_SERVICE
  const Address address = Lab::Server(GetParam());
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  Child server(nullptr, lab.server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af(), SOCK_DCCP, IPPROTO_DCCP);
    SetOption(fd, kLevel, kService, 1);
    const int port = Bind(fd, address);
    Check(listen(fd, 1), "listen");
    parent.Send(port);
    const int accepted = Accept(fd);
    for (int i = 0; i < 10; ++i) {
      SendAll(accepted, 500);
      usleep(20000);
    }
    parent.Receive<int>();
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af(), SOCK_DCCP, IPPROTO_DCCP);
    SetOption(fd, kLevel, kService, 1);
    Connect(fd, address, port);
    char data[500];
    for (int i = 0; i < 10; ++i) {
      WaitReadable(fd);
      Check(recv(fd, data, sizeof(data), 0), "recv");
    }
    HoldUntilMeasured(parent);
  });
  client.Receive<int>();
  measurement.Finish();
  measurement.ExpectBalance();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
