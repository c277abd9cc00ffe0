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
    lab().Configure(setup_);
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
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan;
  plan.server = Lab::Server(family_);
  plan.upload = 2 * kMebibyte + 7;
  plan.one_cpu = false;
  Sniffer own_link(lab().client, "c0");
  Measurement measurement(meter, lab().ClientReference());
  const TcpResult result = RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  measurement.ExpectExact(plan.upload, 0);
  ExpectTcpInfo(measurement.seen(), result.client);
  EXPECT_EQ(result.client.tcp_bytes_acked, plan.upload + 1);  // and SYN
  EXPECT_EQ(result.server.received, plan.upload);
  EXPECT_EQ(Super(&own_link, true, setup_.mtu), setup_.offload);
}

TEST_P(LinkTest, TcpDownloadBalancesToTheByte) {
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan(Lab::Server(family_), 100, 2 * kMebibyte + 7);
  plan.one_cpu = false;
  Sniffer own_link(lab().client, "c0");
  Measurement measurement(meter, lab().ClientReference());
  const TcpResult result = RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  measurement.ExpectExact(plan.upload, plan.download);
  ExpectTcpInfo(measurement.seen(), result.client);
  EXPECT_EQ(result.client.tcp_bytes_received, plan.download + 1);  // and FIN
  EXPECT_EQ(result.client.received, plan.download);
  EXPECT_EQ(Super(&own_link, false, setup_.mtu),
            setup_.gro && Lab::HasGro(setup_.mtu));
}

// Two meters, one at each end of a clean link, say the same.
TEST_P(LinkTest, MetersOfBothEndsAgree) {
  MeteredCgroup& client = World::ClientMeter();
  MeteredCgroup& server = World::ServerMeter();
  setup_.server_offload = setup_.offload;
  lab().Configure(setup_);
  TcpPlan plan(Lab::Server(family_), kMebibyte / 2 + 1, kMebibyte / 2 + 2);
  plan.one_cpu = false;
  plan.connections = 2;
  Measurement at_client(client, lab().ClientReference());
  Measurement at_server(server, lab().ServerReference());
  const TcpResult result =
      RunTcp(lab().Between(client.cgroup(), server.cgroup()), plan);
  at_client.ExpectExact(2 * plan.upload, 2 * plan.download);
  at_server.ExpectExact(2 * plan.download, 2 * plan.upload, SynAckSent);
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
  MeteredCgroup& meter = World::ClientMeter();
  LinkSetup setup;
  setup.offload = setup.server_offload = std::get<1>(GetParam());
  setup.mtu = setup.offload ? 1500 : 9000;
  setup.checksums = true;  // UDP GSO fails (EIO) without, on old kernels
  lab().Configure(setup);
  UdpPlan plan;
  plan.server = Lab::Server(std::get<0>(GetParam()));
  plan.upload_size = plan.download_size = setup.mtu == 1500 ? 1200 : 8000;
  plan.segments = setup.mtu == 1500 ? 40 : 7;
  plan.upload_count = plan.segments * 10 + 3;  // the last is not full
  plan.download_count = plan.segments * 5 + 1;
  Measurement measurement(meter, lab().ClientReference());
  const UdpResult result = RunUdp(lab().Between(meter.cgroup(), nullptr), plan);
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
  // Runs a plan of datagrams, and expects every byte of it to be seen.
  UdpResult RunAndExpect(const UdpPlan& plan) {
    MeteredCgroup& meter = World::ClientMeter();
    Measurement measurement(meter, lab().ClientReference());
    const UdpResult result =
        RunUdp(lab().Between(meter.cgroup(), nullptr), plan);
    measurement.ExpectExact(plan.upload_count * plan.upload_size,
                            plan.download_count * plan.download_size);
    EXPECT_EQ(measurement.seen().tx_packets, plan.upload_count);
    EXPECT_EQ(measurement.seen().rx_packets, plan.download_count);
    return result;
  }

  TcpResult RunAndExpect(const TcpPlan& plan) {
    MeteredCgroup& meter = World::ClientMeter();
    Measurement measurement(meter, lab().ClientReference());
    const TcpResult result =
        RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
    measurement.ExpectExact(plan.upload * plan.connections,
                            plan.download * plan.connections);
    ExpectTcpInfo(measurement.seen(), result.client);
    return result;
  }
};
NM_FOR_BOTH_FAMILIES(BalanceTest);

TEST_P(BalanceTest, UdpGroReceiveCountsEachDatagram) {
  LinkSetup setup;
  setup.gro = true;
  lab().Configure(setup);
  // With GRO a veth has a ring for 256 packets (VETH_RING_SIZE), and drops what finds
  // it full: a slow machine lost some of 400 datagrams.
  UdpPlan plan(Server(), {200, 1200}, {200, 1200});
  plan.segments = 40;
  plan.gro = true;
  const UdpResult result = RunAndExpect(plan);
  if (Lab::HasGro(setup.mtu)) {
    EXPECT_LT(result.client.receive_calls, 200u) << "UDP_GRO did not happen";
  }
}

TEST_P(BalanceTest, UnconnectedUdpToSeveralDestinationsBalances) {
  MeteredCgroup& meter = World::ClientMeter();
  const auto sink = StartSink();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenSocket(af(), SOCK_DGRAM);
    for (int i = 0; i < 400; ++i)
      SendTo(fd, std::string(100 + i, 'x'), Server(i % 4), kSinkPort);
  });
  measurement.ExpectExact(400 * 100 + 399 * 400 / 2, 0);
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
  lab().Configure(setup);
  TcpPlan plan(Server(), kMebibyte, kMebibyte);
  plan.prepare = [](int fd) { SetOptions(GetParam(), fd); };
  RunAndExpect(plan);
}

TEST_P(BalanceTest, UdpWithIpOptionsOrExtensionHeadersBalances) {
  UdpPlan plan(Server(), {300, 500}, {200, 500});
  plan.prepare = [](int fd) { SetOptions(GetParam(), fd); };
  RunAndExpect(plan);
}

TEST_P(BalanceTest, PingSocketBalances) {
  MeteredCgroup& meter = World::ClientMeter();
  const Totals icmp_before = meter.TotalOf(Transport::kIcmp);
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenPing(Server());
    for (int i = 0; i < 20; ++i) Ping(fd, 100);
  });
  measurement.ExpectExact(20 * 100, 20 * 100);
  EXPECT_EQ(meter.TotalOf(Transport::kIcmp).tx_packets - icmp_before.tx_packets,
            20);
}

TEST_P(BalanceTest, RawSocketOfAnotherProtocolBalances) {
  MeteredCgroup& meter = World::ClientMeter();
  const Totals before = meter.TotalOf(Transport::kOther);
  UdpPlan plan;
  plan.server = Server();
  plan.protocol = 253;  // for experiments, RFC 3692
  plan.upload_count = 30;
  plan.upload_size = 700;
  plan.download_count = 20;
  plan.download_size = 300;
  RunAndExpect(plan);
  const Totals counted = meter.TotalOf(Transport::kOther) - before;
  EXPECT_EQ(counted.tx_packets, 30);
  EXPECT_EQ(counted.rx_packets, 20);
}

TEST_P(BalanceTest, RefusedConnectBalances) {
  MeteredCgroup& meter = World::ClientMeter();
  Measurement measurement(meter, lab().ClientReference());
  RunChild(meter.cgroup(), lab().client,
           [] { BeRefused(OpenSocket(af(), SOCK_STREAM), Server(), 9); });
  measurement.ExpectExact(0, 0);
  EXPECT_GE(measurement.seen().tx_packets, 1);
  EXPECT_GE(measurement.seen().rx_packets, 1);
}

TEST_P(BalanceTest, ManyConnectionsAtOnceBalance) {
  TcpPlan plan(Server(), 20001, 10003);
  plan.connections = 50;
  plan.one_cpu = false;
  RunAndExpect(plan);
}

TEST_P(BalanceTest, LoopbackIsNotCounted) {
  MeteredCgroup& meter = World::ClientMeter();
  const Ends ends = {meter.cgroup(), &lab().client, meter.cgroup(),
                     &lab().client};
  const int64_t proxy_before = meter.Total(Path::kProxy).tx_bytes;
  for (const Address& address : {Loopback(), Lab::Client(GetParam())}) {
    TcpPlan plan(address, 100000, 100000);
    Measurement measurement(meter, lab().ClientReference());
    RunTcp(ends, plan);
    measurement.ExpectExact(0, 0);
    EXPECT_EQ(measurement.seen().tx_packets, 0);
  }
  EXPECT_EQ(meter.Total(Path::kProxy).tx_bytes, proxy_before);
}

TEST_P(BalanceTest, LoopbackProxyPortIsCountedAsPathProxy) {
  MeteredCgroup& meter = World::ClientMeter();
  const Ends ends = {meter.cgroup(), &lab().client, meter.cgroup(),
                     &lab().client};
  lab().client.SetMtu("lo", 1500);
  lab().client.SetFeatures("lo", {"segmentation", "tx-gso"}, false);
  TcpPlan plan(Loopback(), kMebibyte, kMebibyte / 2);
  plan.port = 8443;
  const Totals direct_before = meter.Total(Path::kDirect);
  const Totals before = meter.Total(Path::kProxy);
  Sniffer sniffer(lab().client, "lo");
  const LinkCounters link_before = lab().client.Counters("lo");
  RunTcp(ends, plan);
  usleep(50000);
  const LinkCounters link = lab().client.Counters("lo");
  const Totals counted = meter.Total(Path::kProxy) - before;
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
  EXPECT_EQ(counted.tx_bytes, tx);
  EXPECT_EQ(counted.tx_packets, tx_packets);
  EXPECT_EQ(counted.rx_bytes, rx);
  EXPECT_EQ(counted.rx_packets, rx_packets);
  EXPECT_EQ(counted.tx_payload, payload);
  EXPECT_EQ(counted.rx_payload, payload);
  EXPECT_EQ(meter.Total(Path::kDirect).tx_bytes, direct_before.tx_bytes);
}

class MappedAddressTest : public BalanceTest {};
INSTANTIATE_TEST_SUITE_P(Over, MappedAddressTest,
                         testing::Values(Family::kIpv4),
                         [](const auto&) { return "IPv4"; });

TEST_P(MappedAddressTest, TcpBalancesToTheByte) {
  TcpPlan plan(Lab::Server(Family::kIpv4).Mapped(), kMebibyte, kMebibyte);
  RunAndExpect(plan);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
