// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/gateway.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

const char* const kLinks[] = {"sat0", "lte0", "lan0"};

}  // namespace

GatewayLab::GatewayLab() {
  for (const NetNamespace* all : {&lan, &gateway, &internet}) {
    for (const char* version : {"1", "2"}) {
      all->Sysctl(std::string("ipv6/conf/default/mldv") + version +
                      "_unsolicited_report_interval",
                  "1");
    }
  }
  gateway.Sysctl("ipv4/ip_forward", "1");
  gateway.Sysctl("ipv6/conf/all/forwarding", "1");
  Cable("sat0", &internet, "u0", 1);
  Cable("lte0", &internet, "u1", 2);
  Cable("lan0", &lan, "l0", 3);
  for (Family family : {Family::kIpv4, Family::kIpv6}) {
    const int all = family == Family::kIpv4 ? 32 : 128;
    gateway.AddAddress("lo", At(family, kServices, 1), all);
    internet.AddAddress("lo", At(family, kServer, 1), all);
    lan.AddDefaultRoute(At(family, 3, 1));
    Out(family, Way::kSatellite);
    Back(family, Way::kSatellite);
  }
  Settle();
}

void GatewayLab::Cable(const std::string& link, NetNamespace* peer,
                       const std::string& peer_link, int network) {
  Join({&gateway, link, MacAddress(2 * network), BothAddresses(78, network, 1)},
       {peer, peer_link, MacAddress(2 * network + 1),
        BothAddresses(78, network, 2)});
  gateway.SetRealPackets(link);
  peer->SetRealPackets(peer_link);
}

void GatewayLab::Out(Family family, Way way) {
  Ip(gateway, {"route", "replace", At(family, kServer, 1).text(), "via",
               At(family, NetworkOf(way), 2).text(), "src",
               At(family, kServices, 1).text()});
}

void GatewayLab::Back(Family family, Way way) {
  const std::string via = At(family, NetworkOf(way), 1).text();
  Ip(internet,
     {"route", "replace", At(family, kServices, 1).text(), "via", via});
  Ip(internet,
     {"route", "replace",
      At(family, 3, 0).text() + (family == Family::kIpv4 ? "/24" : "/64"),
      "via", via});
}

void AwaitQuiet(const NetNamespace& gateway) {
  std::map<std::string, LinkCounters> last;
  for (int quiet = 0; quiet < 6; ++quiet) {
    usleep(20000);
    for (const char* link : kLinks) {
      const LinkCounters now = gateway.Counters(link);
      if (last.count(link) == 0 || !(now == last[link])) quiet = 0;
      last[link] = now;
    }
  }
}

Links::Links(const NetNamespace& where) : where_(where) {
  for (const char* link : kLinks) {
    before_[link] = where.Counters(link);
  }
}

Totals Links::Of(const std::string& link, int64_t rx_header) const {
  const LinkCounters now = where_.Counters(link), &old = before_.at(link);
  Totals totals;
  totals.tx_packets = static_cast<int64_t>(now.tx_packets - old.tx_packets);
  totals.rx_packets = static_cast<int64_t>(now.rx_packets - old.rx_packets);
  totals.tx_bytes = static_cast<int64_t>(now.tx_bytes - old.tx_bytes) -
                    kEthernet * totals.tx_packets;
  totals.rx_bytes = static_cast<int64_t>(now.rx_bytes - old.rx_bytes) -
                    rx_header * totals.rx_packets;
  return totals;
}

void ExpectEqual(const Totals& a, const Totals& b, const std::string& what) {
  EXPECT_EQ(a.tx_bytes, b.tx_bytes) << what;
  EXPECT_EQ(a.rx_bytes, b.rx_bytes) << what;
  EXPECT_EQ(a.tx_packets, b.tx_packets) << what;
  EXPECT_EQ(a.rx_packets, b.rx_packets) << what;
}

}  // namespace internal
}  // namespace netmeter
