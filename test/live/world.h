// SPDX-License-Identifier: BSD-3-Clause
// What the tests share, made when first used: loading takes seconds in an
// emulated guest. Every test measures differences.

#ifndef NETMETER_TEST_LIVE_WORLD_H_
#define NETMETER_TEST_LIVE_WORLD_H_

#include <gtest/gtest.h>

#include "test/live/lab.h"

namespace netmeter {
namespace internal {

class World {
 public:
  static Lab& CleanLab();
  static Lab& WiredLab();  // with a bad wire
  static MeteredCgroup& ClientMeter();
  static MeteredCgroup& ServerMeter();
  static void Close();

  // New laboratories from now on: nothing of a failed test disturbs the next.
  static void ForgetLabs();
};

// Ends the process when a test takes too long; the janitor cleans up.
class LiveTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

// For measurements at the server's side: before 6.12 no hook sees a SYN-ACK
// on IPv6's egress. (ip6_xmit() is called with the listener, while the packet
// belongs to the request socket, and a difference skipped the hook until
// then; IPv4 hands on the packet's own socket.)
Remainder SynAckSent(const Packet& packet);

inline std::string FamilyName(Family family) {
  return family == Family::kIpv4 ? "IPv4" : "IPv6";
}

class FamilyTest : public LiveTest,
                   public testing::WithParamInterface<Family> {};

#define NM_FOR_BOTH_FAMILIES(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Over, suite,                                     \
                           testing::Values(Family::kIpv4, Family::kIpv6),   \
                           [](const testing::TestParamInfo<Family>& info) { \
                             return FamilyName(info.param);                 \
                           })

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_WORLD_H_
