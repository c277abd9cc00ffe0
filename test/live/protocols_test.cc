// SPDX-License-Identifier: BSD-3-Clause
// Transports that are modules of the kernel: SCTP, DCCP, and L2TP over IP. The host may
// have none of them; the virtual machines load what Debian's kernels have.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

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
  // Opens a connection, which stays: sends pieces of these sizes, receives 50,000 bytes.
  static void SctpExchange(const Address& to, int port, int pieces,
                           uint64_t bytes) {
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    Connect(fd, to, port);
    for (int i = 0; i < pieces; ++i) SendAll(fd, bytes);
    ReceiveExactly(fd, 50000);
  }

  static int SctpListener(const std::string& service, const Address& address,
                          int port) {
    Register(service);
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    SetOption(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    Bind(fd, address, port);
    Check(listen(fd, 16), "listen");
    return fd;
  }

  // Listens there; then accepts a connection at each word of the test, receives 1,000
  // bytes and sends the number in the word, until that is 0.
  static void SctpServer(Child::Parent& parent, const std::string& service,
                         const Address& address, int port, uint64_t bytes) {
    const int fd = SctpListener(service, address, port);
    parent.Send(0);
    while (parent.Receive<int>() != 0) {
      const int accepted = Accept(fd);
      ReceiveExactly(accepted, 1000);
      SendAll(accepted, bytes);
      parent.Send(0);
    }
  }

  // Opens a connection at each word of the test, and sends 1,000 bytes; told 0, it
  // receives what all of them send.
  static void SctpClient(Child::Parent& parent, const Address& to, int port,
                         uint64_t bytes) {
    std::vector<int> connections;
    while (parent.Receive<int>() != 0) {
      connections.push_back(OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP));
      Connect(connections.back(), to, port);
      SendAll(connections.back(), 1000);
      parent.Send(0);
    }
    for (int fd : connections) ReceiveExactly(fd, bytes);
    HoldUntilMeasured(parent);
  }

  static void Tell(Child& child) {
    child.Send(1);
    child.Receive<int>();
  }

  // Two servers with one address and port, in two network namespaces: each has two
  // associations, and the one that is opened first is accepted after the other's began.
  static void ExpectTwoServersApart(const Cgroup* cgroup_one,
                                    const Cgroup* cgroup_two) {
    constexpr int kPort = 4000;
    constexpr uint64_t kOne = 50000, kTwo = 20000;
    MeteredCgroup& meter = World::ClientMeter();
    const Address here = Lab::Client(GetParam());
    const Address peer = Lab::Gateway(GetParam());
    NetNamespace servers[2], clients[2];
    for (int i = 0; i < 2; ++i) {
      Join({&servers[i], "v0", MacAddress(1), {here}},
           {&clients[i], "v1", MacAddress(2), {peer}});
    }
    const Totals one_before = meter.TotalOf(Kind::kService, "sctp-one");
    const Totals two_before = meter.TotalOf(Kind::kService, "sctp-two");
    const Totals all_before = meter.TotalOf(Transport::kSctp);
    Child one(cgroup_one, servers[0], [&](Child::Parent& parent) {
      SctpServer(parent, "sctp-one", here, kPort, kOne);
    });
    Child two(cgroup_two, servers[1], [&](Child::Parent& parent) {
      SctpServer(parent, "sctp-two", here, kPort, kTwo);
    });
    one.Receive<int>();
    two.Receive<int>();
    Child to_one(nullptr, clients[0], [&](Child::Parent& parent) {
      SctpClient(parent, here, kPort, kOne);
    });
    Child to_two(nullptr, clients[1], [&](Child::Parent& parent) {
      SctpClient(parent, here, kPort, kTwo);
    });
    for (Child* child : {&to_one, &to_two, &one, &two, /* and the other way */
                         &to_two, &to_one, &two, &one}) {
      Tell(*child);
    }
    for (Child* child : {&to_one, &to_two}) {
      child->Send(0);
      child->Receive<int>();
    }
    const int64_t sent_by_one =
        meter.TotalOf(Kind::kService, "sctp-one").tx_payload -
        one_before.tx_payload;
    const int64_t sent_by_two =
        meter.TotalOf(Kind::kService, "sctp-two").tx_payload -
        two_before.tx_payload;
    const int64_t sent =
        meter.TotalOf(Transport::kSctp).tx_payload - all_before.tx_payload;
    EXPECT_EQ(sent_by_one + sent_by_two, sent);
    EXPECT_GE(sent, int64_t{2 * (kOne + kTwo)});
    EXPECT_GE(sent_by_one, int64_t{2 * kOne});
    EXPECT_GE(sent_by_two, int64_t{2 * kTwo});
  }

  static void HoldUntilMeasured(Child::Parent& parent) {
    usleep(300000);  // acknowledgements are delayed
    parent.Send(0);
    parent.Receive<int>();
  }
};
NM_FOR_BOTH_FAMILIES(ProtocolsTest);

// The bug: if an accepted connection was closed before it had a packet, up to Linux 6.18,
// its last packets took an entry of the socket table, which was never freed.
TEST_P(ProtocolsTest, WhatAnSctpServerClosesAtOnceLeavesNoEntry) {
  if (!KernelHas(af(), SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  MeteredCgroup& meter = World::ClientMeter();
  constexpr int kConnections = 30;
  const auto entries = [&] {
    const nm_stats stats = meter.ReadStats();
    return static_cast<int64_t>(stats.sockets_claimed - stats.sockets_freed);
  };
  const int64_t before = entries();
  Child server(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    const int port = Bind(fd, Lab::Client(GetParam()));
    Check(listen(fd, 1), "listen");
    parent.Send(port);
    for (int i = 0; i < kConnections; ++i) close(Accept(fd));
    close(fd);
  });
  const int port = server.Receive<int>();
  RunChild(nullptr, lab().server, [&] {
    for (int i = 0; i < kConnections; ++i) {
      const UniqueFd fd(OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP));
      Connect(fd.get(), Lab::Client(GetParam()), port);
      WaitReadable(fd.get());
    }
  });
  server.Join();
  EXPECT_LE(entries(), before);
}

// Up to Linux 6.18 accept(2) of SCTP makes a socket that no hook sees: what a server
// sent was `unattributed`.
TEST_P(ProtocolsTest, WhatAnSctpServerAcceptsIsItsOwn) {
  if (!KernelHas(af(), SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  constexpr int kConnections = 3;
  MeteredCgroup& meter = World::ClientMeter();
  Child server(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    Register("sctp-server");
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    errno = Control(fd, NM_TAG, "core");
    if (errno != 0) DieWithErrno("NM_TAG");
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
  Measurement measurement(meter, lab().ClientReference());
  Child client(nullptr, lab().server, [&](Child::Parent& parent) {
    for (int i = 0; i < kConnections; ++i) {
      SctpExchange(Lab::Client(GetParam()), port, /*pieces=*/1, 1000);
    }
    HoldUntilMeasured(parent);
  });
  client.Receive<int>();
  measurement.Finish();
  measurement.ExpectBalance();
  const Totals own =
      meter.TotalOf(Kind::kService, "sctp-server", "core") - before;
  const Totals all = meter.TotalOf(Transport::kSctp) - all_before;
  EXPECT_GE(own.tx_payload, kConnections * 50000);
  EXPECT_EQ(own.tx_bytes, all.tx_bytes);
  EXPECT_EQ(own.rx_bytes, all.rx_bytes);
}

// The note about a listener's owner had no network namespace: any user could listen at a
// service's address and port in a namespace of its own, and each got the other's name.
TEST_P(ProtocolsTest, SctpServersInTwoNetworksAreTwo) {
  if (!KernelHas(af(), SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  const Cgroup* const cgroup = World::ClientMeter().cgroup();
  ExpectTwoServersApart(cgroup, cgroup);
}

// If the namespace is unknown, the cgroup decides.
TEST_P(ProtocolsTest, SctpServersInTwoNetworksAndCgroupsAreTwo) {
  if (!KernelHas(af(), SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  World::ClientMeter();
  const Cgroup one("client/one"), two("client/two");
  ExpectTwoServersApart(&one, &two);
}

// A note about a listener outlived it. An eviction gave the id of its name to another
// name, which a connection that the listener had accepted before then got.
TEST_P(ProtocolsTest, AnEvictedNameOfAnSctpListenerIsNobodysNext) {
  if (!KernelHas(af(), SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  constexpr uint64_t kBytes = 10000;
  constexpr int kNames = 64;
  MeteredCgroup meter("sctp-gone", "max_names: 64\ndestinations: []\n");
  const Address here = Lab::Client(GetParam());
  Child server(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    errno = Control(fd, NM_SERVICE, "sctp-gone");
    if (errno != 0) DieWithErrno("NM_SERVICE");
    const int port = Bind(fd, here);
    Check(listen(fd, 1), "listen");
    parent.Send(port);
    const int accepted = Accept(fd);
    close(fd);
    parent.Send(0);
    parent.Receive<int>();
    SendAll(accepted, kBytes);
    parent.Send(0);
    parent.Receive<int>();
  });
  const int port = server.Receive<int>();
  Child client(nullptr, lab().server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af(), SOCK_STREAM, IPPROTO_SCTP);
    // Each further address of the client would get a heartbeat within seconds. That is a
    // packet of the accepted socket, which then has the name, and a slow machine's
    // eviction comes later.
    Bind(fd, Lab::Server(GetParam()));
    Connect(fd, here, port);
    parent.Send(0);
    ReceiveExactly(fd, kBytes);
    HoldUntilMeasured(parent);
  });
  client.Receive<int>();
  server.Receive<int>();
  // A closed socket holds its name for a moment. Since Linux 6.19 the accepted socket has
  // the name of its own.
  const auto is_known = [&] {
    for (const Sample& sample : meter.Samples()) {
      if (sample.name == "sctp-gone") return true;
    }
    return false;
  };
  std::string evicted = meter.Evict();
  if (!KernelAtLeast(6, 19)) {
    // The children wait for 30 seconds.
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(15);
    while (is_known() && std::chrono::steady_clock::now() < end) {
      usleep(100000);
      evicted += meter.Evict();
    }
    EXPECT_FALSE(is_known()) << evicted;
  }
  Child next(meter.cgroup(), lab().client, [&](Child::Parent&) {
    const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
    for (int i = 0; i < kNames; ++i) {
      Control(fd, NM_TAG, "next" + std::to_string(i));
    }
  });
  next.Join();
  const int64_t before = meter.TotalOf(Transport::kSctp).tx_payload;
  server.Send(0);
  server.Receive<int>();
  client.Receive<int>();
  EXPECT_GE(meter.TotalOf(Transport::kSctp).tx_payload - before,
            int64_t{kBytes});
  for (const Sample& sample : meter.Samples()) {
    EXPECT_NE(sample.name.compare(0, 4, "next"), 0) << sample.name;
  }
}

// The kernel runs the hook twice for a packet to such a socket, which any user may
// open: each counted as two.
TEST_P(ProtocolsTest, L2tpOverIpCountsOnce) {
  if (!KernelHas(af(), SOCK_DGRAM, kL2tp, v4() ? "l2tp_ip" : "l2tp_ip6"))
    return;
  constexpr int kPackets = 10;
  constexpr uint32_t kConnection = 77;
  MeteredCgroup& meter = World::ClientMeter();
  Child receiver(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
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
  Measurement measurement(meter, lab().ClientReference());
  RunChild(nullptr, lab().server, [&] {
    // RFC 3931, 4.1.1.2: session 0, a control message, and whose it is.
    std::string packet("\0\0\0\0\xc8\x03\0\x64\0\0\0\x4d", 12);
    packet.resize(104);
    const int fd = OpenSocket(af(), SOCK_RAW, kL2tp);
    for (int i = 0; i < kPackets; ++i) {
      SendTo(fd, packet, Lab::Client(GetParam()), 0);
    }
  });
  receiver.Receive<int>();
  receiver.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  const Totals counted = meter.TotalOf(Kind::kService, "l2tp") - before;
  EXPECT_EQ(counted.rx_packets, kPackets);
  EXPECT_EQ(counted.rx_bytes, kPackets * (104 + (v4() ? 20 : 40)));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
