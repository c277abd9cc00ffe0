// SPDX-License-Identifier: BSD-3-Clause
// The balance closes: what the series of a meter sum up to is what the link
// carried, to the byte, in each direction, for every kind of traffic; and the
// payload is what the application sent and received.

#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

// What TCP_INFO says of the measured end, beside what the meter says.
void ExpectTcpInfo(const Totals& seen, const TcpReport& report) {
  EXPECT_EQ(seen.tx_payload + seen.tx_retransmit,
            static_cast<int64_t>(report.tcp_bytes_sent));
  EXPECT_EQ(seen.tx_retransmit, static_cast<int64_t>(report.tcp_bytes_retrans));
}

// Family, offloads, GRO, MTU.
using LinkParameters = std::tuple<Family, bool, bool, int>;

class LinkTest : public LiveTest,
                 public testing::WithParamInterface<LinkParameters> {
 protected:
  void SetUp() override {
    LiveTest::SetUp();
    std::tie(family_, setup_.offload, setup_.gro, setup_.mtu) = GetParam();
    World::CleanLab().Configure(setup_);
  }

  // Whether a GSO packet passed the client's own interface: what the
  // parameters are about did happen.
  static bool Super(Sniffer* sniffer, bool outgoing, uint32_t mtu) {
    const auto& packets = sniffer->Stop();
    return std::any_of(packets.begin(), packets.end(), [&](const Packet& p) {
      return p.outgoing == outgoing && p.bytes > mtu;
    });
  }

  Family family_;
  LinkSetup setup_;
};

std::string LinkName(const testing::TestParamInfo<LinkParameters>& info) {
  return FamilyName(std::get<0>(info.param)) +
         (std::get<1>(info.param) ? "_OffloadOn" : "_OffloadOff") +
         (std::get<2>(info.param) ? "_GroOn" : "_GroOff") + "_Mtu" +
         std::to_string(std::get<3>(info.param));
}

// Each pair of settings, over each family.
std::vector<LinkParameters> Links() {
  std::vector<LinkParameters> links;
  for (const Family family : {Family::kIpv4, Family::kIpv6}) {
    links.emplace_back(family, true, true, 1500);
    links.emplace_back(family, true, false, 9000);
    links.emplace_back(family, false, true, 9000);
    links.emplace_back(family, false, false, 1500);
  }
  return links;
}

INSTANTIATE_TEST_SUITE_P(Over, LinkTest, testing::ValuesIn(Links()), LinkName);

TEST_P(LinkTest, TcpUploadBalancesToTheByte) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan;
  plan.server = Lab::Server(family_);
  plan.upload = 2 * kMebibyte + 7;
  plan.one_cpu = false;
  Sniffer own_link(lab.client, "c0");
  Measurement measurement(meter, lab.ClientReference());
  const TcpResult result = RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(plan.upload, 0);
  ExpectTcpInfo(measurement.seen(), result.client);
  EXPECT_EQ(result.client.tcp_bytes_acked, plan.upload + 1);  // and SYN
  EXPECT_EQ(result.server.received, plan.upload);
  EXPECT_EQ(Super(&own_link, true, setup_.mtu), setup_.offload);
}

TEST_P(LinkTest, TcpDownloadBalancesToTheByte) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan;
  plan.server = Lab::Server(family_);
  plan.upload = 100;
  plan.download = 2 * kMebibyte + 7;
  plan.one_cpu = false;
  Sniffer own_link(lab.client, "c0");
  Measurement measurement(meter, lab.ClientReference());
  const TcpResult result = RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(plan.upload, plan.download);
  ExpectTcpInfo(measurement.seen(), result.client);
  EXPECT_EQ(result.client.tcp_bytes_received, plan.download + 1);  // and FIN
  EXPECT_EQ(result.client.received, plan.download);
  EXPECT_EQ(Super(&own_link, false, setup_.mtu),
            setup_.gro && Lab::HasGro(setup_.mtu));
}

// Two meters, one at each end of a clean link, say the same.
TEST_P(LinkTest, MetersOfBothEndsAgree) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& client = World::ClientMeter();
  MeteredCgroup& server = World::ServerMeter();
  setup_.server_offload = setup_.offload;
  lab.Configure(setup_);
  TcpPlan plan;
  plan.server = Lab::Server(family_);
  plan.upload = kMebibyte / 2 + 1;
  plan.download = kMebibyte / 2 + 2;
  plan.one_cpu = false;
  plan.connections = 2;
  Measurement at_client(client, lab.ClientReference());
  Measurement at_server(server, lab.ServerReference());
  const TcpResult result =
      RunTcp(lab.Between(client.cgroup(), server.cgroup()), plan);
  at_client.Finish();
  at_server.Finish(SynAckSent);
  at_client.ExpectBalance();
  at_client.ExpectPayload(2 * plan.upload, 2 * plan.download);
  at_server.ExpectBalance();
  at_server.ExpectPayload(2 * plan.download, 2 * plan.upload);
  ExpectTcpInfo(at_server.seen(), result.server);
  const int64_t syn_acks = at_server.RemainderPackets("syn-ack");
  EXPECT_EQ(syn_acks, family_ == Family::kIpv4 || KernelAtLeast(6, 12) ? 0 : 2);
  // What comes to a TIME_WAIT socket, or to none, and what answers it, is the
  // other's alone. So is a second pass of a packet through the hook.
  const auto late = [](const Measurement& end) {
    Totals sum;
    for (const char* name : {"time-wait", "late", "second-pass"}) {
      const auto found = end.remainder().find(name);
      if (found != end.remainder().end()) sum = Sum(sum, found->second);
    }
    return sum;
  };
  EXPECT_EQ(at_client.seen().tx_bytes + late(at_client).tx_bytes,
            at_server.seen().rx_bytes + late(at_server).rx_bytes);
  EXPECT_EQ(at_client.seen().tx_packets + late(at_client).tx_packets,
            at_server.seen().rx_packets + late(at_server).rx_packets);
  EXPECT_EQ(
      at_client.seen().rx_packets + late(at_client).rx_packets,
      at_server.seen().tx_packets + late(at_server).tx_packets + syn_acks);
}

// Family, and whether the link segments.
class SegmentedDatagramTest
    : public LiveTest,
      public testing::WithParamInterface<std::tuple<Family, bool>> {};

INSTANTIATE_TEST_SUITE_P(Over, SegmentedDatagramTest,
                         testing::Combine(testing::Values(Family::kIpv4,
                                                          Family::kIpv6),
                                          testing::Bool()),
                         [](const auto& info) {
                           return FamilyName(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_OffloadOn"
                                                           : "_OffloadOff");
                         });

TEST_P(SegmentedDatagramTest, UdpGsoBalancesToTheByte) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  LinkSetup setup;
  setup.offload = setup.server_offload = std::get<1>(GetParam());
  setup.mtu = setup.offload ? 1500 : 9000;
  setup.checksums = true;  // UDP GSO fails (EIO) without, on old kernels
  lab.Configure(setup);
  UdpPlan plan;
  plan.server = Lab::Server(std::get<0>(GetParam()));
  plan.upload_size = plan.download_size = setup.mtu == 1500 ? 1200 : 8000;
  plan.segments = setup.mtu == 1500 ? 40 : 7;
  plan.upload_count = plan.segments * 10 + 3;  // the last is not full
  plan.download_count = plan.segments * 5 + 1;
  Measurement measurement(meter, lab.ClientReference());
  const UdpResult result = RunUdp(lab.Between(meter.cgroup(), nullptr), plan);
  measurement.Finish();
  measurement.ExpectBalance();
  const int64_t sent = plan.upload_count * plan.upload_size;
  const int64_t received = plan.download_count * plan.download_size;
  measurement.ExpectPayload(sent, received);
  EXPECT_EQ(measurement.seen().tx_packets, plan.upload_count);
  EXPECT_EQ(measurement.seen().rx_packets, plan.download_count);
  EXPECT_EQ(result.server.bytes_received, static_cast<uint64_t>(sent));
}

class BalanceTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }

  // Runs a plan of datagrams, and expects every byte of it to be seen.
  UdpResult RunAndExpect(const UdpPlan& plan) {
    Lab& lab = World::CleanLab();
    MeteredCgroup& meter = World::ClientMeter();
    Measurement measurement(meter, lab.ClientReference());
    const UdpResult result = RunUdp(lab.Between(meter.cgroup(), nullptr), plan);
    measurement.Finish();
    measurement.ExpectBalance();
    measurement.ExpectPayload(plan.upload_count * plan.upload_size,
                              plan.download_count * plan.download_size);
    EXPECT_EQ(measurement.seen().tx_packets, plan.upload_count);
    EXPECT_EQ(measurement.seen().rx_packets, plan.download_count);
    return result;
  }

  TcpResult RunAndExpect(const TcpPlan& plan) {
    Lab& lab = World::CleanLab();
    MeteredCgroup& meter = World::ClientMeter();
    Measurement measurement(meter, lab.ClientReference());
    const TcpResult result = RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
    measurement.Finish();
    measurement.ExpectBalance();
    measurement.ExpectPayload(plan.upload * plan.connections,
                              plan.download * plan.connections);
    ExpectTcpInfo(measurement.seen(), result.client);
    return result;
  }
};
NM_FOR_BOTH_FAMILIES(BalanceTest);

TEST_P(BalanceTest, UdpGroReceiveCountsEachDatagram) {
  LinkSetup setup;
  setup.gro = true;
  World::CleanLab().Configure(setup);
  UdpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.upload_count = 200;
  plan.download_count = 400;
  plan.upload_size = plan.download_size = 1200;
  plan.segments = 40;
  plan.gro = true;
  const UdpResult result = RunAndExpect(plan);
  if (Lab::HasGro(setup.mtu)) {
    EXPECT_LT(result.client.receive_calls, 400u) << "UDP_GRO did not happen";
  }
}

TEST_P(BalanceTest, UnconnectedUdpToSeveralDestinationsBalances) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  Child sink(nullptr, lab.server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(Lab::Server(GetParam()).family(), SOCK_DGRAM);
    SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20);
    parent.Send(
        Bind(fd, Address(GetParam() == Family::kIpv4 ? "0.0.0.0" : "::")));
    pause();
  });
  const int port = sink.Receive<int>();
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent&) {
    const int fd = OpenSocket(Lab::Server(GetParam()).family(), SOCK_DGRAM);
    for (int i = 0; i < 400; ++i)
      SendTo(fd, std::string(100 + i, 'x'), Lab::Server(GetParam(), i % 4),
             port);
  });
  client.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(400 * 100 + 399 * 400 / 2, 0);
  EXPECT_EQ(measurement.seen().tx_packets, 400);
}

// 8 bytes of options: IPv6 destination options with padding, or IPv4 ones of
// three no-operations, an end, and the same again.
std::string Options(Family family) {
  return family == Family::kIpv4 ? std::string("\1\1\1\1\1\1\1\0", 8)
                                 : std::string("\0\0\1\4\0\0\0\0", 8);
}

void SetOptions(Family family, int fd) {
  if (family == Family::kIpv4)
    SetOption(fd, IPPROTO_IP, IP_OPTIONS, Options(family));
  else
    SetOption(fd, IPPROTO_IPV6, IPV6_DSTOPTS, Options(family));
}

TEST_P(BalanceTest, TcpWithIpOptionsOrExtensionHeadersBalances) {
  // A router that forwards an IPv6 GSO packet takes the extension header for
  // TCP's, and finds some packets too big (skb_gso_validate_network_len): the
  // ends cut them, after the hook.
  LinkSetup setup;
  setup.offload = setup.server_offload = false;
  setup.gso_packets = true;
  World::CleanLab().Configure(setup);
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.upload = kMebibyte;
  plan.download = kMebibyte;
  plan.prepare = [](int fd) { SetOptions(GetParam(), fd); };
  RunAndExpect(plan);
}

TEST_P(BalanceTest, UdpWithIpOptionsOrExtensionHeadersBalances) {
  UdpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.upload_count = 300;
  plan.download_count = 200;
  plan.upload_size = plan.download_size = 500;
  plan.prepare = [](int fd) { SetOptions(GetParam(), fd); };
  RunAndExpect(plan);
}

TEST_P(BalanceTest, PingSocketBalances) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  const bool v4 = GetParam() == Family::kIpv4;
  const Totals icmp_before = meter.TotalOf(Transport::kIcmp);
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent&) {
    const Address server = Lab::Server(GetParam());
    const int fd = OpenSocket(server.family(), SOCK_DGRAM,
                              v4 ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6});
    Connect(fd, server, 0);
    std::string request(8 + 100, '\0');
    request[0] = v4 ? ICMP_ECHO : static_cast<char>(ICMPV6_ECHO_REQUEST);
    for (int i = 0; i < 20; ++i) {
      SendTo(fd, request, server, 0);
      WaitReadable(fd);
      char reply[256];
      Check(recv(fd, reply, sizeof(reply), 0), "recv");
    }
  });
  client.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(20 * 100, 20 * 100);
  EXPECT_EQ(meter.TotalOf(Transport::kIcmp).tx_packets - icmp_before.tx_packets,
            20);
}

TEST_P(BalanceTest, RawSocketOfAnotherProtocolBalances) {
  MeteredCgroup& meter = World::ClientMeter();
  const Totals before = meter.TotalOf(Transport::kOther);
  UdpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.protocol = 253;  // for experiments, RFC 3692
  plan.upload_count = 30;
  plan.upload_size = 700;
  plan.download_count = 20;
  plan.download_size = 300;
  RunAndExpect(plan);
  const Totals after = meter.TotalOf(Transport::kOther);
  EXPECT_EQ(after.tx_packets - before.tx_packets, 30);
  EXPECT_EQ(after.rx_packets - before.rx_packets, 20);
}

TEST_P(BalanceTest, RefusedConnectBalances) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  Measurement measurement(meter, lab.ClientReference());
  Child client(meter.cgroup(), lab.client, [&](Child::Parent& parent) {
    const Address server = Lab::Server(GetParam());
    sockaddr_storage to = server.WithPort(9);
    const int fd = OpenSocket(server.family(), SOCK_STREAM);
    const int result =
        connect(fd, reinterpret_cast<sockaddr*>(&to), Address::Length(to));
    parent.Send(result == 0 ? 0 : errno);
  });
  EXPECT_EQ(client.Receive<int>(), ECONNREFUSED);
  client.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, 0);
  EXPECT_GE(measurement.seen().tx_packets, 1);
  EXPECT_GE(measurement.seen().rx_packets, 1);
}

TEST_P(BalanceTest, ManyConnectionsAtOnceBalance) {
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 50;
  plan.one_cpu = false;
  plan.upload = 20001;
  plan.download = 10003;
  RunAndExpect(plan);
}

TEST_P(BalanceTest, LoopbackIsNotCounted) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  const Ends ends = {meter.cgroup(), &lab.client, meter.cgroup(), &lab.client};
  const bool v4 = GetParam() == Family::kIpv4;
  const int64_t proxy_before = meter.Total(Path::kProxy).tx_bytes;
  for (const Address& address :
       {Address(v4 ? "127.0.0.1" : "::1"), Lab::Client(GetParam())}) {
    TcpPlan plan;
    plan.server = address;
    plan.upload = plan.download = 100000;
    Measurement measurement(meter, lab.ClientReference());
    RunTcp(ends, plan);
    measurement.Finish();
    measurement.ExpectBalance();
    measurement.ExpectPayload(0, 0);
    EXPECT_EQ(measurement.seen().tx_packets, 0);
  }
  EXPECT_EQ(meter.Total(Path::kProxy).tx_bytes, proxy_before);
}

TEST_P(BalanceTest, LoopbackProxyPortIsCountedAsPathProxy) {
  Lab& lab = World::CleanLab();
  MeteredCgroup& meter = World::ClientMeter();
  const Ends ends = {meter.cgroup(), &lab.client, meter.cgroup(), &lab.client};
  lab.client.SetMtu("lo", 1500);
  lab.client.SetFeatures("lo", {"segmentation", "tx-gso"}, false);
  TcpPlan plan;
  plan.server = Address(GetParam() == Family::kIpv4 ? "127.0.0.1" : "::1");
  plan.port = 8443;
  plan.upload = kMebibyte;
  plan.download = kMebibyte / 2;
  const Totals direct_before = meter.Total(Path::kDirect);
  const Totals before = meter.Total(Path::kProxy);
  Sniffer sniffer(lab.client, "lo");
  const LinkCounters link_before = lab.client.Counters("lo");
  RunTcp(ends, plan);
  usleep(50000);
  const LinkCounters link = lab.client.Counters("lo");
  const Totals after = meter.Total(Path::kProxy);
  // lo's counters hold no layer-2 header, and each packet is sent and received.
  int64_t tx = link.tx_bytes - link_before.tx_bytes;
  int64_t tx_packets = link.tx_packets - link_before.tx_packets;
  const int64_t rx = tx, rx_packets = tx_packets;
  for (const Packet& packet : sniffer.Stop()) {
    const Remainder remainder = SynAckSent(packet);
    tx -= remainder.bytes;
    tx_packets -= remainder.packets;
  }
  const int64_t payload = plan.upload + plan.download;
  EXPECT_EQ(after.tx_bytes - before.tx_bytes, tx);
  EXPECT_EQ(after.tx_packets - before.tx_packets, tx_packets);
  EXPECT_EQ(after.rx_bytes - before.rx_bytes, rx);
  EXPECT_EQ(after.rx_packets - before.rx_packets, rx_packets);
  EXPECT_EQ(after.tx_payload - before.tx_payload, payload);
  EXPECT_EQ(after.rx_payload - before.rx_payload, payload);
  EXPECT_EQ(meter.Total(Path::kDirect).tx_bytes, direct_before.tx_bytes);
}

class MappedAddressTest : public BalanceTest {};
INSTANTIATE_TEST_SUITE_P(Over, MappedAddressTest,
                         testing::Values(Family::kIpv4),
                         [](const auto&) { return "IPv4"; });

TEST_P(MappedAddressTest, TcpBalancesToTheByte) {
  TcpPlan plan;
  plan.server = Lab::Server(Family::kIpv4).Mapped();
  plan.upload = kMebibyte;
  plan.download = kMebibyte;
  RunAndExpect(plan);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
