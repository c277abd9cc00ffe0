// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/destinations.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

namespace netmeter {
namespace internal {
namespace {

DestinationRule Rule(uint16_t first, uint16_t last, uint8_t protocol) {
  DestinationRule rule;
  rule.name = "r";
  rule.port_first = first;
  rule.port_last = last;
  rule.protocol = protocol;
  return rule;
}

// Whether the kernel part looks at the rules for a packet of UDP, as
// rules_may_match() of bpf/destination.bpf.h.
bool Looks(const std::vector<DestinationRule>& rules, uint32_t port) {
  const PortRange range = PortsBeyondTcp(rules);
  return port - range.first < range.count;
}

TEST(PortsBeyondTcp, AreThoseOfTheRules) {
  EXPECT_FALSE(Looks({}, 0));
  EXPECT_FALSE(Looks({}, 53));
  EXPECT_FALSE(Looks({Rule(443, 443, IPPROTO_TCP)}, 443));

  const std::vector<DestinationRule> dns = {Rule(53, 53, 0)};
  EXPECT_FALSE(Looks(dns, 52));
  EXPECT_TRUE(Looks(dns, 53));
  EXPECT_FALSE(Looks(dns, 54));
  EXPECT_FALSE(Looks(dns, 0));

  const std::vector<DestinationRule> two = {Rule(53, 53, IPPROTO_UDP),
                                            Rule(1000, 2000, IPPROTO_SCTP)};
  for (uint32_t port : {53, 100, 2000}) EXPECT_TRUE(Looks(two, port)) << port;
  for (uint32_t port : {0, 52, 2001}) EXPECT_FALSE(Looks(two, port)) << port;

  const std::vector<DestinationRule> any = {Rule(0, 65535, 0)};
  for (uint32_t port : {0, 65535}) EXPECT_TRUE(Looks(any, port)) << port;
}

DestinationRule Network(uint32_t address, uint32_t mask) {
  DestinationRule rule = Rule(0, 65535, 0);
  rule.address[3] = address;
  rule.mask[3] = mask;
  return rule;
}

TEST(Covers, IsWhereNothingIsLeftForTheLaterRule) {
  const DestinationRule all = Rule(0, 65535, 0);
  EXPECT_TRUE(Covers(all, all));
  EXPECT_TRUE(Covers(all, Rule(53, 53, IPPROTO_UDP)));
  EXPECT_FALSE(Covers(Rule(53, 53, IPPROTO_UDP), all));
  EXPECT_TRUE(Covers(Rule(50, 60, IPPROTO_UDP), Rule(50, 60, IPPROTO_UDP)));
  EXPECT_FALSE(Covers(Rule(50, 60, 0), Rule(49, 60, 0)));
  EXPECT_FALSE(Covers(Rule(50, 60, 0), Rule(50, 61, 0)));
  EXPECT_FALSE(Covers(Rule(50, 60, IPPROTO_TCP), Rule(50, 60, IPPROTO_UDP)));

  const DestinationRule ten = Network(0x0a000000, 0xff000000);
  EXPECT_TRUE(Covers(ten, ten));
  EXPECT_TRUE(Covers(all, ten));
  EXPECT_FALSE(Covers(ten, all));
  EXPECT_TRUE(Covers(ten, Network(0x0a010000, 0xffff0000)));
  EXPECT_FALSE(Covers(ten, Network(0x0b010000, 0xffff0000)));

  // nm_match_rules() ends with the first that matches, whether that one yields or not.
  DestinationRule overrides = all;
  overrides.overrides_names = true;
  EXPECT_TRUE(Covers(all, overrides));
  EXPECT_TRUE(Covers(overrides, all));
}

TEST(DestinationKinds, AreBits) {
  EXPECT_EQ(BitsOfKinds({}), 0u);
  EXPECT_EQ(BitsOfKinds({"unit", "service"}),
            1u << NM_KIND_UNIT | 1u << NM_KIND_SERVICE);
  EXPECT_EQ(BitsOfKinds(AllDestinationKinds()),
            1u << NM_KIND_SERVICE | 1u << NM_KIND_BINARY | 1u << NM_KIND_UNIT |
                1u << NM_KIND_CONTAINER);
}

TEST(DestinationKinds, AreChecked) {
  EXPECT_TRUE(CheckDestinationKinds({}).ok());
  EXPECT_TRUE(CheckDestinationKinds(AllDestinationKinds()).ok());
  EXPECT_EQ(CheckDestinationKinds({"binary", "pending"}).message(),
            "destinations_of: 'pending': expected service, binary, unit, "
            "container");
  EXPECT_EQ(CheckDestinationKinds({"unit", "unit"}).message(),
            "destinations_of: 'unit' is there twice");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
