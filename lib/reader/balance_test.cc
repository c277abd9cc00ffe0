// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Interface MakeInterface(uint32_t index, const char* name, uint64_t tx_bytes,
                        uint64_t tx_packets) {
  Interface interface;
  interface.index = index;
  interface.name = name;
  interface.counts = {tx_bytes, 2 * tx_bytes, tx_packets, 2 * tx_packets};
  interface.header = {14, 14};
  return interface;
}

InterfaceEntry MakeEntry(uint32_t index, uint32_t uplink, const char* name,
                         uint64_t tx_bytes, uint64_t tx_packets) {
  InterfaceEntry entry = {};
  entry.first = {index, static_cast<nm_u16>(uplink), 0};
  std::strcpy(entry.second.name, name);
  entry.second.begin = {tx_bytes, 2 * tx_bytes, tx_packets, 2 * tx_packets};
  return entry;
}

std::vector<std::string> NamesOf(const Uplink& uplink) {
  std::vector<std::string> names;
  for (const UplinkInterface& one : uplink.interfaces) {
    if (one.index != 0) names.push_back(one.name);
  }
  return names;
}

Sample MakeSample(const char* uplink, uint64_t bytes, uint64_t packets) {
  Sample sample;
  sample.uplink = uplink;
  sample.tx_bytes = sample.rx_bytes = bytes;
  sample.tx_packets = sample.rx_packets = packets;
  return sample;
}

BalanceInput Input() {
  BalanceInput input;
  input.names = {{1, "satellite"}, {15, "other"}};
  input.uplinks = {{1, "satellite", true, false}, {15, "other", false, true}};
  input.patterns = {{"satellite", {"sat0", "wwan*"}}};
  input.entries = {MakeEntry(2, 1, "sat0", 1000, 10)};
  input.interfaces = {MakeInterface(1, "lo", 77, 7),
                      MakeInterface(2, "sat0", 5000, 20)};
  input.samples = {MakeSample("satellite", 1000, 4), MakeSample("", 500, 1)};
  return input;
}

TEST(Balance, ClosesSinceTheBase) {
  const std::vector<Uplink> all = BalanceUplinks(Input());
  ASSERT_EQ(all.size(), 1u);  // nothing is in `other`
  const Uplink& satellite = all[0];
  EXPECT_EQ(satellite.unknown, "");
  EXPECT_THAT(NamesOf(satellite), ElementsAre("sat0"));
  EXPECT_EQ(satellite.tx.interface_bytes, 4000u);
  EXPECT_EQ(satellite.tx.interface_packets, 10u);
  EXPECT_EQ(satellite.tx.local_bytes, 1000u);
  EXPECT_EQ(satellite.tx.layer2_header_bytes, 4 * 14u);
  EXPECT_EQ(satellite.tx.unnamed_bytes, 4000u - 1000 - 4 * 14);
  EXPECT_EQ(satellite.tx.unnamed_packets, 6u);
  EXPECT_EQ(satellite.rx.unnamed_bytes, 8000u - 1000 - 4 * 14);
}

TEST(Balance, WhatIsForwardedIsARowWhereItIsMeasured) {
  BalanceInput input = Input();
  ForwardedReading traffic;
  traffic.pairs = {
      {{3, 2, NM_FORWARDED_INDEX(NM_UPLINK_OTHER, 1)}, {600, 2}},  // left by it
      {{2, 3, NM_FORWARDED_INDEX(1, NM_UPLINK_OTHER)}, {700, 3}},  // came by it
      {{0, 2, NM_FORWARDED_INDEX(NM_UPLINK_NONE, 1)}, {50, 1}},  // a multicast
  };
  input.forwarded = NameForwarded(traffic, input);
  const Uplink satellite = BalanceUplinks(input)[0];
  EXPECT_EQ(satellite.tx.forwarded_bytes, 650u);
  EXPECT_EQ(satellite.tx.forwarded_packets, 3u);
  EXPECT_EQ(satellite.forwarded.size(), 1u);  // ifindex 3 has no name
  EXPECT_EQ(satellite.forwarded[0].interface, "forwarded");
  EXPECT_EQ(satellite.rx.forwarded_bytes, 700u);
  EXPECT_EQ(satellite.tx.layer2_header_bytes, (4 + 3) * 14u);
  EXPECT_EQ(satellite.tx.unnamed_bytes, 4000u - 1000 - 650 - 7 * 14);
  EXPECT_EQ(satellite.tx.unnamed_packets, 10u - 4 - 3);
  EXPECT_EQ(satellite.rx.unnamed_packets, 20u - 4 - 3);
  // More than the interface had: it counts GSO packets.
  input.forwarded[{"satellite", "forwarded", ""}].value[2] = 1000;
  EXPECT_THAT(BalanceUplinks(input)[0].unknown, HasSubstr("GSO packets"));
}

// The bug: a hash map's order decided which name a renamed interface had. When a load
// changed it, its whole total left one name and came to another.
TEST(NameForwarded, HasOneNameForARenamedInterfaceAndTheRestOfItsClients) {
  ForwardedReading traffic;
  traffic.pairs = {{{3, 2, NM_FORWARDED_INDEX(NM_UPLINK_OTHER, 1)}, {600, 2}},
                   {{2, 3, NM_FORWARDED_INDEX(1, NM_UPLINK_OTHER)}, {700, 3}}};
  nm_client_key client = {};
  client.address[10] = client.address[11] = 0xff;
  client.address[15] = 1;
  client.interface = 3;
  client.uplink = 1;
  traffic.clients = {{client, {500, 300, 1, 1}}};
  BalanceInput input = Input();
  input.entries = {MakeEntry(3, 4, "br0", 0, 0),
                   MakeEntry(3, 15, "tap7", 0, 0)};
  for (int order = 0; order < 2; ++order) {
    const ForwardedSamples samples = NameForwarded(traffic, input);
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_EQ(samples.at({"satellite", "br0", "0.0.0.1"}).bytes(), 800);
    EXPECT_EQ(samples.at({"satellite", "br0", ""}).tx_bytes(), 100);
    EXPECT_EQ(samples.at({"satellite", "br0", ""}).rx_bytes(), 400);
    EXPECT_EQ(samples.at({"other", "sat0", ""}).bytes(), 1300);
    std::swap(input.entries[0], input.entries[1]);
  }
}

TEST(Balance, WhatWasForwardedBeforeItWasCountedIsSaid) {
  BalanceInput input = Input();
  input.entries[0].second.began_ns = input.forwarded_since_ns = 7;
  EXPECT_FALSE(BalanceUplinks(input)[0].forwarded_began_later);
  input.forwarded_since_ns = 8;
  EXPECT_TRUE(BalanceUplinks(input)[0].forwarded_began_later);
}

TEST(Balance, AnInterfaceThatCameLaterCountsFromZero) {
  BalanceInput input = Input();
  input.interfaces.push_back(MakeInterface(9, "wwan1", 300, 3));
  const Uplink satellite = BalanceUplinks(input)[0];
  EXPECT_THAT(NamesOf(satellite), ElementsAre("sat0", "wwan1"));
  EXPECT_EQ(satellite.tx.interface_bytes, 4300u);
  EXPECT_EQ(satellite.unknown, "");
}

// With `satellite: [sat0*]` each packet of the VLAN sat0.100 counted twice.
TEST(Balance, AnInterfaceOnAnotherOfItsUplinkCountsNothing) {
  BalanceInput input = Input();
  input.patterns["satellite"] = {"sat0*"};
  input.interfaces.push_back(MakeInterface(9, "sat0.100", 300, 3));
  input.interfaces.back().lower = 2;
  for (int i = 0; i < 2; ++i) {
    const Uplink satellite = BalanceUplinks(input)[0];
    EXPECT_THAT(NamesOf(satellite), ElementsAre("sat0"));
    EXPECT_EQ(satellite.tx.interface_bytes, 4000u);
    ASSERT_EQ(satellite.interfaces.size(), 2u);
    EXPECT_EQ(satellite.interfaces[1].not_counted,
              "its packets count as those of sat0");
    input.entries.push_back(MakeEntry(9, 1, "sat0.100", 0, 0));
  }
}

// Two calls printed the same interfaces in another order.
TEST(Balance, InterfacesAreInOrder) {
  BalanceInput input = Input();
  input.interfaces.push_back(MakeInterface(7, "wwan3", 300, 3));
  input.interfaces.push_back(MakeInterface(9, "wwan1", 300, 3));
  input.entries.insert(input.entries.begin(), MakeEntry(7, 1, "wwan3", 300, 3));
  EXPECT_THAT(NamesOf(BalanceUplinks(input)[0]),
              ElementsAre("sat0", "wwan1", "wwan3"));
}

TEST(Balance, AnInterfaceThatLeftTheUplinkAtALoadCountsUntilThen) {
  BalanceInput input = Input();
  InterfaceEntry ended = MakeEntry(3, 1, "eth7", 100, 1);
  ended.second.ended_ns = 1;
  SetHeader({14, 14}, &ended.second);
  ended.second.end = {600, 900, 5, 9};
  input.entries.push_back(ended);
  const Uplink satellite = BalanceUplinks(input)[0];
  EXPECT_EQ(satellite.tx.interface_bytes, 4500u);
  EXPECT_EQ(satellite.rx.interface_bytes, 8700u);
  EXPECT_EQ(satellite.unknown, "");
}

// A load with another list of uplinks ends the entries of this one: its layer-2 headers
// became 0, and stood in the unnamed traffic.
TEST(Balance, AnUplinkThatIsNoLongerInTheConfigurationKeepsItsLinkHeaders) {
  BalanceInput input = Input();
  const Uplink before = BalanceUplinks(input)[0];
  ASSERT_GT(before.tx.layer2_header_bytes, 0u);
  for (InterfaceEntry& entry : input.entries) {
    if (entry.first.uplink != 1) continue;
    for (const Interface& interface : input.interfaces) {
      if (interface.index != entry.first.ifindex) continue;
      entry.second.ended_ns = 1;
      SetHeader(interface.header, &entry.second);
      entry.second.end = interface.counts;
    }
  }
  input.patterns.clear();
  const auto expect_same = [&] {
    const Uplink after = BalanceUplinks(input)[0];
    EXPECT_EQ(after.tx.layer2_header_bytes, before.tx.layer2_header_bytes);
    EXPECT_EQ(after.tx.unnamed_bytes, before.tx.unnamed_bytes);
    EXPECT_EQ(after.rx.unnamed_bytes, before.rx.unnamed_bytes);
    EXPECT_EQ(after.unknown, before.unknown);
  };
  expect_same();
  // The interface leaves the host, too.
  input.interfaces.clear();
  expect_same();
}

TEST(Balance, WhatCannotBeKnownIsNotGuessed) {
  BalanceInput gone = Input();
  gone.entries.push_back(MakeEntry(4, 1, "wwan0", 0, 0));
  EXPECT_THAT(BalanceUplinks(gone)[0].unknown, HasSubstr("wwan0 has gone"));
  EXPECT_EQ(BalanceUplinks(gone)[0].tx.unnamed_bytes, 0u);
  BalanceInput renamed = Input();
  renamed.interfaces[1].name = "sat9";
  EXPECT_THAT(BalanceUplinks(renamed)[0].unknown,
              HasSubstr("interface 2 was sat0 and is sat9 now: renamed, or "
                        "another one with its number"));
  EXPECT_THAT(NamesOf(BalanceUplinks(renamed)[0]), ElementsAre("sat0"));
  EXPECT_TRUE(BalanceUplinks(renamed)[0].interfaces[0].has_left);
  BalanceInput twice = Input();
  twice.entries.push_back(MakeEntry(2, 2, "sat0", 3000, 15));
  EXPECT_THAT(BalanceUplinks(twice)[0].unknown,
              HasSubstr("sat0 counted for two uplinks"));
  // The next load has ended one. The bug: what the interface counted meanwhile was
  // unnamed traffic of one of them.
  twice.entries[1].second.ended_ns = 20;
  EXPECT_EQ(BalanceUplinks(twice)[0].unknown, "");
  twice.entries[0].second.interrupted = 1;
  EXPECT_THAT(BalanceUplinks(twice)[0].unknown,
              HasSubstr("sat0 counted for two uplinks"));
  BalanceInput again = Input();
  again.interfaces[1].counts = {};
  EXPECT_THAT(BalanceUplinks(again)[0].unknown, HasSubstr("begun to count"));
  BalanceInput merged = Input();
  merged.samples[0].rx_packets = 1000;
  EXPECT_THAT(BalanceUplinks(merged)[0].unknown, HasSubstr("GSO packets"));
  BalanceInput link = Input();
  link.interfaces[1].header.rx = kUnknownHeader;
  EXPECT_THAT(BalanceUplinks(link)[0].unknown, HasSubstr("layer-2 headers"));
}

TEST(Balance, PatternsComeBackFromTheirKeys) {
  for (const char* pattern : {"sat0", "wwan*", "*", "fifteen_bytes_x"}) {
    EXPECT_EQ(PatternOf(UplinkKey(pattern)), pattern);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
