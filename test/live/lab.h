// SPDX-License-Identifier: BSD-3-Clause
// The laboratory: a client and a server with two routers between them, and
// meters on cgroups. measurement.h compares the two.
//
//   client c0 ── a0 router A a1 ──[wire]── b0 router B b1 ── s0 server
//
// The link a1──b0 has no offloads at either end, so that each packet is real
// there: what the client sends as one GSO packet leaves a1 as its segments,
// and what the server sends as one leaves b0 as its segments. The counters of
// this link are the reference in both directions, and a test may turn the
// offloads of the two ends on and off. A bad wire is between a1 and b0. What
// the client sends passes a1 before the wire loses it; what the client receives
// passes a1 after that. b0 is the same for the server.

#ifndef NETMETER_TEST_LIVE_LAB_H_
#define NETMETER_TEST_LIVE_LAB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/testing/net_namespace.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"
#include "test/live/child.h"
#include "test/live/traffic.h"
#include "test/live/wire.h"

namespace netmeter {
namespace internal {

struct LinkSetup {
  bool offload = true;         // TSO, GSO and checksums of the client
  bool server_offload = true;  // single packets leave GRO nothing to merge
  bool gso_packets = false;    // TCP builds them even without offloads
  bool gro = false;            // of both ends
  bool checksums = false;      // by the device, even without offloads
  uint32_t mtu = 1500;

  bool operator==(const LinkSetup& o) const {
    return offload == o.offload && server_offload == o.server_offload &&
           gso_packets == o.gso_packets && gro == o.gro &&
           checksums == o.checksums && mtu == o.mtu;
  }
};

// An interface on which every packet is real.
struct Reference {
  const NetNamespace* where;
  std::string link;
  bool sent_is_outgoing;  // what the measured side sends leaves by it
};

class Lab {
 public:
  explicit Lab(bool with_wire);

  void Configure(const LinkSetup& setup);  // quick if nothing changes

  static Address Client(Family family);
  // The server has four addresses.
  static Address Server(Family family, int number = 0);
  // Router A's on the link to the client.
  static Address Gateway(Family family);

  Ends Between(const Cgroup* client_cgroup, const Cgroup* server_cgroup) const;

  Reference ClientReference() const { return {&router_a, "a1", true}; }
  Reference ServerReference() const { return {&router_b, "b0", true}; }
  // The link of the client itself, real only without its offloads.
  Reference ClientLink() const { return {&router_a, "a0", false}; }

  // Whether GRO can be on. Before 5.13 veth has GRO only while an XDP program
  // is attached, and then it refuses large frames.
  static bool HasGro(uint32_t mtu) {
    return KernelAtLeast(5, 13) || mtu < 3000;
  }

  NetNamespace client, router_a, router_b, server;
  std::unique_ptr<NetNamespace> middle;  // of the wire
  std::unique_ptr<Wire> wire;            // or nullptr

 private:
  void Apply(const LinkSetup& setup);

  LinkSetup setup_;
  UniqueFd xdp_[2];  // at c0 and s0, for GRO before 5.13
};

struct Totals {
  int64_t tx_bytes = 0, rx_bytes = 0;
  int64_t tx_packets = 0, rx_packets = 0;
  int64_t tx_payload = 0, rx_payload = 0, tx_retransmit = 0;

  void Add(const Sample& sample, int sign = 1);
};
Totals operator-(const Totals& a, const Totals& b);

// A cgroup with a meter of its own: loads in the constructor, unloads in the
// destructor.
class MeteredCgroup {
 public:
  explicit MeteredCgroup(const std::string& name,
                         const std::string& config = "");
  // For a cgroup that exists already, and has sockets or another meter.
  MeteredCgroup(std::shared_ptr<Cgroup> cgroup, const std::string& name,
                const std::string& config = "");
  MeteredCgroup(const MeteredCgroup&) = delete;
  MeteredCgroup& operator=(const MeteredCgroup&) = delete;
  ~MeteredCgroup();

  // `netmeter-loader load`, as the constructor did, or with another
  // configuration: an upgrade.
  void Load(const std::string& config);
  void Load() { Load(config_); }

  // `netmeter-loader evict` of series and names that no process has now.
  // Returns what the loader printed.
  std::string Evict();

  const Cgroup* cgroup() const { return cgroup_.get(); }
  const std::string& pin_dir() const { return pin_dir_; }
  nm_stats ReadStats() const;
  Meter& meter() const { return *meter_; }
  Health ReadHealth() const;

  // All series, or since CountFromNow() those that counted anything, with what they
  // counted since. The totals below follow.
  std::vector<Sample> Samples() const;
  void CountFromNow() { before_ = ReadHost(); }
  Totals Total(Path path = Path::kDirect) const;
  // The sum over the series of one name, to one destination or, with
  // nullptr, to all.
  Totals TotalOf(Kind kind, const std::string& name,
                 const char* destination = nullptr) const;
  Totals TotalOf(Transport transport) const;

  static std::string loader;  // the program

 private:
  std::vector<Sample> ReadHost() const;

  std::shared_ptr<Cgroup> cgroup_;
  std::string pin_dir_;
  std::string config_;
  std::unique_ptr<Meter> meter_;
  std::vector<Sample> before_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_LAB_H_
