// SPDX-License-Identifier: BSD-3-Clause
// TCP that does not look like TCP at its sender's hook: a route or a policy has wrapped
// it before. Its bytes are those of the outer packets, with transport `other`; received
// payload in order is still TCP payload.

#include <sys/socket.h>

#include <string>
#include <tuple>
#include <vector>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// What the client sends to the server goes through a segment at router B (RFC
// 8986, End.DT6); what comes back does not.
class SegmentRoutingTest : public LiveTest {
 protected:
  void SetUp() override {
    LiveTest::SetUp();
    Ip(lab().router_a,
       {"-6", "route", "add", "fd77:9::/64", "via", "fd77:2::2"});
    Ip(lab().router_b,
       {"-6", "route", "add", "fd77:9::1/128", "encap", "seg6local", "action",
        "End.DT6", "table", "254", "dev", "b0"});
    Ip(lab().client,
       {"-6", "route", "add", "fd77:3::/64", "encap", "seg6", "mode", "encap",
        "segs", "fd77:9::1", "via", "fd77:1::1", "dev", "c0"});
  }
  // No later test meets these routes.
  void TearDown() override {
    World::ForgetLabs();
    LiveTest::TearDown();
  }

  void RunAndExpect(const TcpPlan& plan) {
    MeteredCgroup& meter = World::ClientMeter();
    const Totals tcp = meter.TotalOf(Transport::kTcp);
    Measurement measurement(meter, lab().ClientReference());
    RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
    measurement.Finish();
    measurement.ExpectBalance();
    const Totals now = meter.TotalOf(Transport::kTcp);
    EXPECT_EQ(now.rx_payload - tcp.rx_payload, plan.download);
    EXPECT_EQ(now.tx_bytes, tcp.tx_bytes);  // all of it is `other`
    EXPECT_TRUE(measurement.Any([](const Packet& packet) {
      return packet.outgoing && packet.protocol == 41;
    })) << "nothing was encapsulated: this test proves nothing";
  }
};

// The bug: a GSO packet weighed its inner headers only once, and payload
// received was 0.
TEST_F(SegmentRoutingTest, GsoPacketsCountEverySegment) {
  TcpPlan plan(Lab::Server(Family::kIpv6), 1000000, 300000);
  RunAndExpect(plan);
}

// ESP between client and server, both ways; the parameter is the mode.
class IpsecTest
    : public LiveTest,
      public testing::WithParamInterface<std::tuple<Family, const char*>> {
 protected:
  void TearDown() override {
    World::ForgetLabs();
    LiveTest::TearDown();
  }

  static std::string Text(bool client) {
    const bool v4 = std::get<0>(GetParam()) == Family::kIpv4;
    if (client) return v4 ? "10.77.1.2" : "fd77:1::2";
    return v4 ? "10.77.3.2" : "fd77:3::2";
  }

  // False: this kernel has no ESP.
  static bool Protect() {
    const std::string mode = std::get<1>(GetParam());
    for (const NetNamespace* end : {&lab().client, &lab().server}) {
      for (bool to_server : {true, false}) {
        const std::string from = Text(to_server), to = Text(!to_server);
        const std::string error =
            TryIp(*end, {"xfrm", "state", "add", "src", from, "dst", to,
                         "proto", "esp", "spi", to_server ? "0x101" : "0x102",
                         "mode", mode, "auth", "hmac(sha1)",
                         "0x000102030405060708090a0b0c0d0e0f10111213", "enc",
                         "cbc(aes)", "0x000102030405060708090a0b0c0d0e0f"});
        if (!error.empty()) {
          Measurement::NotOnThisKernel(error);
          return false;
        }
        const bool out = to_server == (end == &lab().client);
        Ip(*end, {"xfrm", "policy", "add", "src", from, "dst", to, "dir",
                  out ? "out" : "in", "tmpl", "src", from, "dst", to, "proto",
                  "esp", "mode", mode});
      }
    }
    return true;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Over, IpsecTest,
    testing::Combine(testing::Values(Family::kIpv4, Family::kIpv6),
                     testing::Values("transport", "tunnel")),
    [](const auto& info) {
      return FamilyName(std::get<0>(info.param)) + "In" +
             std::get<1>(info.param);
    });

// The bug: our acknowledgements are ESP at the hook, and payload received was 0.
// test/kernels/expectations says which kernels have IPsec.
TEST_P(IpsecTest, ReceivedPayloadIsExact) {
  if (!Protect()) return;
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan(Lab::Server(std::get<0>(GetParam())), 100000, 300000);
  plan.connections = 2;
  // A duplicate, which slow machines send, would add a block to the header of
  // its acknowledgement.
  lab().client.Sysctl("ipv4/tcp_sack", "0");
  lab().server.Sysctl("ipv4/tcp_sack", "0");
  const Totals tcp = meter.TotalOf(Transport::kTcp);
  Measurement measurement(meter, lab().ClientReference());
  const TcpResult result = RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  measurement.Finish();
  const Totals now = meter.TotalOf(Transport::kTcp);
  EXPECT_EQ(now.rx_payload - tcp.rx_payload, 2 * 300000);
  EXPECT_EQ(now.tx_bytes, tcp.tx_bytes);  // all of it is `other`
  // Received packets count without ESP: IP, TCP with a time stamp, payload; two
  // SYN-ACKs have 8 bytes of options more.
  const int64_t header = plan.server.family() == AF_INET ? 52 : 72;
  Totals esp;
  esp.rx_bytes = measurement.link().rx_bytes -
                 header * measurement.link().rx_packets - 2 * 8 -
                 static_cast<int64_t>(result.server.tcp_bytes_sent);
  measurement.Explain("esp", esp);
  EXPECT_GT(esp.rx_bytes, 0);
  measurement.ExpectBalance();
  EXPECT_FALSE(measurement.Any([](const Packet& packet) {
    return packet.tcp();
  })) << "something was not protected";
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
