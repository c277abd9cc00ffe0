// SPDX-License-Identifier: BSD-3-Clause
// A gateway with two uplinks and a LAN, and what its interfaces counted.
//
//   LAN l0 ── lan0 gateway sat0 ── u0 internet
//                          lte0 ── u1
//
// The links have no offloads, so that each packet is real. Nobody asks for
// addresses of the link layer. The services and the server have addresses of no
// link, so that a route decides alone where packets pass.

#ifndef NETMETER_TEST_LIVE_GATEWAY_H_
#define NETMETER_TEST_LIVE_GATEWAY_H_

#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>

#include "lib/testing/net_namespace.h"
#include "test/live/lab.h"

namespace netmeter {
namespace internal {

constexpr int64_t kEthernet = 14;
constexpr int kServices = 100, kServer = 200;  // networks of one address

inline Address At(Family family, int network, int host) {
  return HostAddress(family, 78, network, host);
}

enum class Way { kSatellite, kMobile };

struct GatewayLab {
  NetNamespace lan, gateway, internet;

  GatewayLab();

  // The kernel tells its multicast groups when a link is new (MLD).
  static void Settle() { usleep(500000); }

  void Cable(const std::string& link, NetNamespace* peer,
             const std::string& peer_link, int network);

  // What leaves the gateway, and what comes back to it.
  void Out(Family family, Way way);
  void Back(Family family, Way way);
  static int NetworkOf(Way way) { return way == Way::kSatellite ? 1 : 2; }
};

// Until no link of the gateway has had a packet for 120 ms: acknowledgements are late.
void AwaitQuiet(const NetNamespace& gateway);

// What the interfaces of the gateway counted since, as the meter counts it.
class Links {
 public:
  explicit Links(const NetNamespace& where);

  // Without layer-2 headers.
  Totals Of(const std::string& link, int64_t rx_header = kEthernet) const;

 private:
  const NetNamespace& where_;
  std::map<std::string, LinkCounters> before_;
};

// Bytes and packets.
void ExpectEqual(const Totals& a, const Totals& b, const std::string& what);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_GATEWAY_H_
