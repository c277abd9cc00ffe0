// SPDX-License-Identifier: BSD-3-Clause
// The laboratories and meters that all live tests share. Each is made when a
// test first uses it and then kept, because a load takes seconds in an emulated
// guest. A test therefore finds counters that are not zero, and measures
// differences.

#ifndef NETMETER_TEST_LIVE_WORLD_H_
#define NETMETER_TEST_LIVE_WORLD_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "test/live/lab.h"
#include "test/live/measurement.h"

namespace netmeter {
namespace internal {

class World {
 public:
  static Lab& CleanLab();
  static Lab& WiredLab();  // with a bad wire
  static MeteredCgroup& ClientMeter();
  static MeteredCgroup& ServerMeter();
  // One with this configuration, which counts from now.
  static MeteredCgroup& MeterWith(const std::string& config);
  static void Close();

  // Takes the laboratories away, so that the next test makes new ones. Nothing
  // that a failed test left in them then disturbs the next.
  static void ForgetLabs();
};

inline Lab& lab() { return World::CleanLab(); }

// A child at one end of the clean lab, in the cgroup of the meter there.
inline Child AtClient(const std::function<void(Child::Parent&)>& body) {
  return Child(World::ClientMeter().cgroup(), lab().client, body);
}
inline Child AtServer(const std::function<void(Child::Parent&)>& body) {
  return Child(World::ServerMeter().cgroup(), lab().server, body);
}
inline void RunAtClient(const std::function<void()>& body) {
  RunChild(World::ClientMeter().cgroup(), lab().client, body);
}

// A child at the server, without a meter, that takes datagrams of both families at this
// port and forgets them.
constexpr int kSinkPort = 9000;
std::unique_ptr<Child> StartSink();

// Ends the process when a test takes too long; the janitor cleans up. Each test finds
// the clean lab as it was made.
class LiveTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

// For measurements at the server's side. Before 6.12 no egress hook sees a SYN-ACK over
// IPv6: the kernel called ip6_xmit() with the listener while the packet belonged to the
// request socket, and skipped the hook because the two differ. IPv4 passes the packet's
// own socket.
Remainder SynAckSent(const Packet& packet);

// Runs a program there.
void RunThere(const NetNamespace& where,
              const std::vector<std::string>& command);
// ip(8). The first returns its output if it failed, or nothing.
std::string TryIp(const NetNamespace& where,
                  std::vector<std::string> arguments);
void Ip(const NetNamespace& where, std::vector<std::string> arguments);
// ip6tables(8) for addresses of IPv6.
void IpTables(const NetNamespace& where, Family family,
              std::vector<std::string> arguments);

// Whether this kernel has the protocol. It must if the module was copied into the virtual
// machine (matrix.sh).
bool KernelHas(int family, int type, int protocol, const std::string& module);

inline std::string FamilyName(Family family) {
  return family == Family::kIpv4 ? "IPv4" : "IPv6";
}

class FamilyTest : public LiveTest, public testing::WithParamInterface<Family> {
 protected:
  static bool v4() { return GetParam() == Family::kIpv4; }
  static int af() { return v4() ? AF_INET : AF_INET6; }
  static Address Server(int number = 0) {
    return Lab::Server(GetParam(), number);
  }
  static Address Any() { return Address(v4() ? "0.0.0.0" : "::"); }
  static Address Loopback() { return Address(v4() ? "127.0.0.1" : "::1"); }
};

#define NM_FOR_BOTH_FAMILIES(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Over, suite,                                     \
                           testing::Values(Family::kIpv4, Family::kIpv6),   \
                           [](const testing::TestParamInfo<Family>& info) { \
                             return FamilyName(info.param);                 \
                           })

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_WORLD_H_
