// SPDX-License-Identifier: BSD-3-Clause
#include "lib/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/metrics/exposition.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const std::vector<Family>& families) {
  return ToText(families, TextFormat::kPrometheus);
}

std::vector<std::string> Names(const std::vector<Family>& families) {
  std::vector<std::string> names;
  for (const auto& family : families) names.push_back(family.name);
  return names;
}

Sample MakeSample(Kind kind, const std::string& name,
                  const std::string& destination, Transport transport,
                  Path path) {
  Sample sample;
  sample.kind = kind;
  sample.name = name;
  sample.destination = destination;
  sample.transport = transport;
  sample.path = path;
  sample.tx_bytes = 1000;
  sample.rx_bytes = 2000;
  sample.tx_packets = 10;
  sample.rx_packets = 20;
  sample.tx_payload_bytes = 600;
  sample.rx_payload_bytes = 1200;
  sample.tx_retransmit_bytes = 7;
  return sample;
}

std::vector<Sample> MixedSamples() {
  return {
      MakeSample(Kind::kService, "mme", "streamer", Transport::kTcp,
                 Path::kDirect),
      MakeSample(Kind::kService, "mme", "streamer", Transport::kUdp,
                 Path::kProxy),
      MakeSample(Kind::kBinary, "curl", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kBinary, "curl", "", Transport::kTcp, Path::kProxy),
      MakeSample(Kind::kUnattributed, "unattributed", "", Transport::kIcmp,
                 Path::kDirect),
      MakeSample(Kind::kOverflow, "overflow", "", Transport::kOther,
                 Path::kDirect),
  };
}

TEST(Families, OfHostAreExactlyTheseInThisOrder) {
  EXPECT_THAT(
      Names(FamiliesOfHost(MixedSamples(), Health())),
      ElementsAre("netmeter_up", "magma_bytes_sent_total",
                  "magma_bytes_received_total", "linux_bytes_sent_total",
                  "linux_bytes_received_total", "netmeter_wire_bytes_total",
                  "netmeter_wire_packets_total",
                  "netmeter_tcp_retransmitted_bytes_total", "netmeter_series",
                  "netmeter_series_limit", "netmeter_lost_total"));
}

TEST(Families, OfServiceAreExactlyTheseInThisOrder) {
  const std::vector<Sample> samples = {MakeSample(
      Kind::kService, "mme", "streamer", Transport::kTcp, Path::kDirect)};
  EXPECT_THAT(
      Names(FamiliesOfService(samples)),
      ElementsAre("netmeter_up", "magma_bytes_sent_total",
                  "magma_bytes_received_total", "netmeter_wire_bytes_total",
                  "netmeter_wire_packets_total",
                  "netmeter_tcp_retransmitted_bytes_total"));
}

TEST(Families, WithoutSeriesAreLeftOut) {
  EXPECT_THAT(Names(FamiliesOfService({})), ElementsAre("netmeter_up"));
}

TEST(Families, OfAnErrorAreUpAlone) {
  EXPECT_EQ(Text(FamiliesOfError()),
            "# HELP netmeter_up Whether the maps can be read: 1, or 0 if not "
            "loaded or refused.\n"
            "# TYPE netmeter_up gauge\n"
            "netmeter_up 0\n");
}

TEST(Families, ServicesSumBothPathsAndAllTransports) {
  const std::string text = Text(FamiliesOfHost(MixedSamples(), Health()));
  EXPECT_THAT(text, HasSubstr("magma_bytes_sent_total{service_name=\"mme\","
                              "dest_service=\"streamer\"} 1200\n"));
  EXPECT_THAT(text, HasSubstr("magma_bytes_received_total{service_name=\"mme\","
                              "dest_service=\"streamer\"} 2400\n"));
}

TEST(Families, BinariesHaveTheDirectPathOnly) {
  const std::string text = Text(FamiliesOfHost(MixedSamples(), Health()));
  EXPECT_THAT(text,
              HasSubstr("linux_bytes_sent_total{binary_name=\"curl\"} 600\n"));
  EXPECT_THAT(
      text,
      HasSubstr("linux_bytes_received_total{binary_name=\"curl\"} 1200\n"));
  EXPECT_THAT(text, Not(HasSubstr("binary_name=\"unattributed\"")));
  EXPECT_THAT(text, Not(HasSubstr("service_name=\"overflow\"")));
}

TEST(Families, WireHasEverySeriesInBothDirections) {
  const std::string text = Text(FamiliesOfHost(MixedSamples(), Health()));
  EXPECT_THAT(text, HasSubstr("netmeter_wire_bytes_total{kind=\"service\","
                              "name=\"mme\",destination=\"streamer\","
                              "transport=\"udp\",path=\"proxy\","
                              "direction=\"tx\"} 1000\n"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_wire_packets_total{kind=\"unattributed\","
                        "name=\"unattributed\",destination=\"\","
                        "transport=\"icmp\",path=\"direct\","
                        "direction=\"rx\"} 20\n"));
}

TEST(Families, RetransmissionsAreThoseOfTcp) {
  const std::string text = Text(FamiliesOfHost(MixedSamples(), Health()));
  EXPECT_THAT(text, HasSubstr("netmeter_tcp_retransmitted_bytes_total{"
                              "kind=\"service\",name=\"mme\","
                              "destination=\"streamer\"} 7\n"));
  // Both paths of curl have equal labels here.
  EXPECT_THAT(text, HasSubstr("netmeter_tcp_retransmitted_bytes_total{"
                              "kind=\"binary\",name=\"curl\","
                              "destination=\"\"} 14\n"));
  EXPECT_THAT(text, Not(HasSubstr("netmeter_tcp_retransmitted_bytes_total{"
                                  "kind=\"unattributed\"")));
}

TEST(Families, ConnectionsAreSummedOverPathsAndRoundTripsAreAHistogram) {
  Sample direct = MakeSample(Kind::kService, "mme", "streamer",
                             Transport::kTcp, Path::kDirect);
  direct.tcp.known = true;
  direct.tcp.opened = 5;
  direct.tcp.accepted = 4;
  direct.tcp.closed = 3;
  direct.tcp.failed = 2;
  direct.tcp.rtt_us = 1234500;
  direct.tcp.rtt_buckets = {{1, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  Sample proxy = direct;
  proxy.path = Path::kProxy;
  proxy.tcp.rtt_us = 0;
  proxy.tcp.rtt_buckets = {};
  const Sample unknown =
      MakeSample(Kind::kService, "x", "", Transport::kTcp, Path::kDirect);
  const auto families = FamiliesOfService({direct, proxy, unknown});
  EXPECT_THAT(
      Names(families),
      ElementsAre("netmeter_up", "magma_bytes_sent_total",
                  "magma_bytes_received_total", "netmeter_wire_bytes_total",
                  "netmeter_wire_packets_total",
                  "netmeter_tcp_retransmitted_bytes_total",
                  "netmeter_tcp_connections_opened_total",
                  "netmeter_tcp_connections_accepted_total",
                  "netmeter_tcp_connections_closed_total",
                  "netmeter_tcp_connections_failed_total",
                  "netmeter_tcp_rtt_seconds"));
  const std::string text = Text(families);
  const std::string labels =
      "kind=\"service\",name=\"mme\",destination=\"streamer\"";
  EXPECT_THAT(text, HasSubstr("opened_total{" + labels + "} 10\n"));
  EXPECT_THAT(text, HasSubstr("accepted_total{" + labels + "} 8\n"));
  EXPECT_THAT(text, HasSubstr("closed_total{" + labels + "} 6\n"));
  EXPECT_THAT(text, HasSubstr("failed_total{" + labels + "} 4\n"));
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE netmeter_tcp_rtt_seconds histogram\n"
                "netmeter_tcp_rtt_seconds_bucket{" + labels + ",le=\"0.001\"} 1\n"
                "netmeter_tcp_rtt_seconds_bucket{" + labels + ",le=\"0.005\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("netmeter_tcp_rtt_seconds_bucket{" + labels + ",le=\"1.5\"} 1\n"
                "netmeter_tcp_rtt_seconds_bucket{" + labels + ",le=\"+Inf\"} 3\n"
                "netmeter_tcp_rtt_seconds_sum{" + labels + "} 1.2345\n"
                "netmeter_tcp_rtt_seconds_count{" + labels + "} 3\n"));
  EXPECT_THAT(text, Not(HasSubstr("opened_total{kind=\"service\",name=\"x\"")));
}

TEST(Families, NeverHaveALabelCalledService) {
  for (const auto& family : FamiliesOfHost(MixedSamples(), Health())) {
    for (const Metric& metric : family.metrics) {
      for (const Label& label : metric.labels) {
        EXPECT_STRNE(label.name, "service");
      }
    }
  }
}

TEST(Families, HealthIsWhatTheMeterSays) {
  Health health;
  health.series = 3;
  health.max_series = 4096;
  health.series_full_packets = 11;
  health.names_full = 12;
  health.names_capped = 16;
  health.series_capped_packets = 17;
  health.processes_full = 13;
  health.storage_failed_packets = 14;
  health.header_error_packets = 15;
  const std::string text = Text(FamiliesOfHost({}, health));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_up 1\n"));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_series 3\n"));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_series_limit 4075\n"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"series_full\"} 11"));
  EXPECT_THAT(text, HasSubstr("netmeter_lost_total{reason=\"names_full\"} 12"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"names_capped\"} 16"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"series_capped\"} 17"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"processes_full\"} 13"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"storage_failed\"} 14"));
  EXPECT_THAT(text,
              HasSubstr("netmeter_lost_total{reason=\"header_error\"} 15"));
}

TEST(Families, LabelsAreValidUtf8AndEqualOnesAreSummed) {
  std::vector<Sample> samples = {
      MakeSample(Kind::kService, "a\xff", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kService, "a\\xff", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kService, "caf\xc3\xa9", "", Transport::kTcp,
                 Path::kDirect),
  };
  const std::string text = Text(FamiliesOfService(samples));
  EXPECT_THAT(text, HasSubstr("magma_bytes_sent_total{service_name="
                              "\"a\\\\xff\",dest_service=\"\"} 1200\n"));
  EXPECT_THAT(text, HasSubstr("service_name=\"caf\xc3\xa9\""));
}

TEST(Families, TextsNeedNoEscapingAndCountersAreCalledTotal) {
  for (const Family& family : FamiliesOfHost(MixedSamples(), Health())) {
    const std::string name = family.name;
    const bool total =
        name.size() > 6 && name.compare(name.size() - 6, 6, "_total") == 0;
    EXPECT_EQ(total, family.type == Family::Type::kCounter) << name;
    for (const char* c = family.help; *c != 0; ++c) {
      EXPECT_TRUE(*c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\') << name;
    }
  }
}

TEST(Families, UnregisteredAreWhatNoServicePublishes) {
  std::vector<Sample> samples = MixedSamples();
  samples[0].registered = true;
  samples[1].registered = true;
  samples = Unregistered(samples);
  ASSERT_EQ(samples.size(), 4u);
  for (const Sample& sample : samples) EXPECT_NE(sample.name, "mme");
}

// A series is registered from the first packet of a socket that was opened
// after Register(). Of a service that sent UDP before and TCP after it, only
// TCP was left out: magma_bytes_sent_total, a sum over both, went back.
TEST(Families, ARegisteredServiceIsLeftOutWithAllItsSeries) {
  const std::vector<Sample> samples = {
      MakeSample(Kind::kService, "mme", "streamer", Transport::kUdp,
                 Path::kDirect),
      MakeSample(Kind::kPending, "mme", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kBinary, "mme", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kService, "state", "streamer", Transport::kUdp,
                 Path::kDirect),
      MakeSample(Kind::kService, "mme", "streamer", Transport::kTcp,
                 Path::kDirect),
  };
  EXPECT_EQ(Unregistered(samples).size(), samples.size());
  for (const size_t registered : {0, 1, 4}) {
    std::vector<Sample> left = samples;
    left[registered].registered = true;
    left = Unregistered(left);
    ASSERT_EQ(left.size(), 2u) << registered;
    EXPECT_EQ(left[0].kind, Kind::kBinary);
    EXPECT_EQ(left[1].name, "state");
    const std::string text = Text(FamiliesOfHost(left, Health()));
    for (const char* label : {"service_name=\"mme\"", "pending_bytes"}) {
      EXPECT_THAT(text, Not(HasSubstr(label)));
    }
    EXPECT_THAT(text, Not(HasSubstr("kind=\"service\",name=\"mme\"")));
    EXPECT_THAT(text, HasSubstr("linux_bytes_sent_total{binary_name=\"mme\"}"));
  }
}

TEST(Families, OfNoMeterAreAnError) {
  EXPECT_THAT(Names(Collect(nullptr, FamilyScope::kHost)),
              ElementsAre("netmeter_up"));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
