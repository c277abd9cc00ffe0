// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/filter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

class FilterTest : public testing::Test {
 protected:
  FilterTest() {
    SetRemote(AF_INET, "192.0.2.129");
    socket_.local_port = 40000;
    socket_.remote_port = 443;
    owner_.service = "subscriberdb";
    owner_.destination = "streamer";
    row_.socket = &socket_;
    row_.owner = &owner_;
    row_.holders = &holders_;
  }

  void SetRemote(int family, const char* address) {
    socket_.family = static_cast<uint8_t>(family);
    inet_pton(family, address, socket_.remote_address.data());
  }
  bool MatchesAddress(const std::string& prefix) {
    SocketFilter filter;
    EXPECT_TRUE(AddAddress(prefix, &filter).ok()) << prefix;
    return filter.Matches(row_);
  }

  DiagSocket socket_;
  SocketOwner owner_;
  Holders holders_;
  SocketRow row_;
};

TEST_F(FilterTest, AnEmptyOneLetsAllThrough) {
  EXPECT_TRUE(SocketFilter().Matches(row_));
}

TEST_F(FilterTest, PrefixesMatchBitByBitAndMappedAddressesAsIpv4) {
  EXPECT_TRUE(MatchesAddress("192.0.2.129"));
  EXPECT_TRUE(MatchesAddress("192.0.2.128/25"));
  EXPECT_FALSE(MatchesAddress("192.0.2.0/25"));
  EXPECT_TRUE(MatchesAddress("0.0.0.0/0"));
  EXPECT_TRUE(MatchesAddress("::/0"));
  EXPECT_FALSE(MatchesAddress("2001:db8::/32"));
  SetRemote(AF_INET6, "::ffff:192.0.2.129");
  EXPECT_TRUE(MatchesAddress("192.0.2.128/25"));
  SetRemote(AF_INET6, "2001:db8::1");
  EXPECT_TRUE(MatchesAddress("2001:db8::/33"));
  EXPECT_FALSE(MatchesAddress("2001:db8:8000::/33"));
  EXPECT_FALSE(MatchesAddress("192.0.2.129"));
}

TEST_F(FilterTest, WhatIsNoPrefixIsRefused) {
  for (const char* text : {"", "1.2.3", "1.2.3.4/33", "1.2.3.4/", "::/129",
                           "1.2.3.4/-1", "host", "1.2.3.4/8/8"}) {
    SocketFilter filter;
    EXPECT_FALSE(AddAddress(text, &filter).ok()) << text;
    EXPECT_TRUE(filter.addresses.empty());
  }
}

TEST_F(FilterTest, PortsAreOfEitherEndAndNamesAreWhole) {
  SocketFilter filter;
  filter.ports = {443};
  EXPECT_TRUE(filter.Matches(row_));
  filter.ports = {80, 40000};
  EXPECT_TRUE(filter.Matches(row_));
  filter.services = {"subscriber"};
  EXPECT_FALSE(filter.Matches(row_));
  filter.services = {"mme", "subscriberdb"};
  EXPECT_TRUE(filter.Matches(row_));
  filter.destinations = {"metricsd"};
  EXPECT_FALSE(filter.Matches(row_));
  filter.destinations.clear();
  filter.uplinks = {""};
  EXPECT_TRUE(filter.Matches(row_));
  filter.uplinks = {"satellite"};
  EXPECT_FALSE(filter.Matches(row_));
  owner_.uplink = "satellite";
  EXPECT_TRUE(filter.Matches(row_));
}

TEST_F(FilterTest, StatesBecomeTheKernelsBits) {
  SocketFilter filter;
  EXPECT_TRUE(AddState("established", &filter).ok());
  EXPECT_TRUE(AddState("time-wait", &filter).ok());
  EXPECT_EQ(filter.states, (1u << 1) | (1u << 6));
  EXPECT_FALSE(AddState("estab", &filter).ok());
  EXPECT_EQ(filter.states, (1u << 1) | (1u << 6));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
