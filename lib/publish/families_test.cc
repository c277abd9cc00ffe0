// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/clock.h"
#include "lib/publish/exposition.h"
#include "lib/testing/families.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::Contains;
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

uint64_t Sum(const std::vector<Family>& families, const std::string& name) {
  uint64_t sum = 0;
  for (const Family& family : families) {
    if (family.name != name) continue;
    for (const Metric& metric : family.metrics) sum += metric.value;
  }
  return sum;
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

TEST(Families, AnUplinkIsALabelWhereAnySeriesHasOne) {
  Sample by_satellite = MakeSample(Kind::kService, "mme", "streamer",
                                   Transport::kTcp, Path::kDirect);
  Sample by_none = by_satellite, pending = by_satellite;
  by_satellite.uplink = "satellite";
  by_satellite.tx_bytes = 5;
  pending.kind = Kind::kPending;
  pending.uplink = "satellite";
  const std::vector<Family> families =
      FamiliesOfHost({by_none, by_satellite, pending}, Health());
  const std::string text = Text(families);
  EXPECT_THAT(text, HasSubstr("netmeter_wire_bytes_total{kind=\"service\","
                              "name=\"mme\",destination=\"streamer\","
                              "transport=\"tcp\",uplink=\"satellite\","
                              "direction=\"tx\"} 5\n"));
  // All metrics of a family have the same labels: to Prometheus an empty label is absent.
  EXPECT_THAT(
      text,
      HasSubstr("transport=\"tcp\",uplink=\"\",direction=\"tx\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("netmeter_pending_bytes{name=\"mme\","
                              "uplink=\"satellite\",direction=\"tx\"} 1000"));
  // Payload and connections belong to the service on both paths.
  EXPECT_THAT(text, HasSubstr("magma_bytes_sent_total{service_name=\"mme\","
                              "dest_service=\"streamer\"} 1200\n"));
}

Uplink MakeUplink(const std::string& name) {
  UplinkInterface card;
  card.name = "sat0";
  card.index = 2;
  card.tx_bytes = 9000;
  card.rx_bytes = 700;
  card.tx_packets = 9;
  card.rx_packets = 7;
  card.tx_header_bytes = card.rx_header_bytes = 14;
  Uplink uplink;
  uplink.name = name;
  uplink.interfaces = {card};
  uplink.forwarded = {{"br0", "10.0.0.2", 1000, 100, 1, 1},
                      {"br0", "", 7000, 500, 7, 5},
                      {"lan0", "", 0, 40, 0, 1}};
  return uplink;
}

std::string TextOfUplinks(const std::vector<Uplink>& uplinks,
                          const PublishOptions& options) {
  return Text(FamiliesOf({}, Health(), options, 0, uplinks));
}

// The lines of these two families.
std::string TextOfUplinks(const std::vector<Uplink>& uplinks) {
  return Text(FamiliesOfUplinks(uplinks, OptionsOf(Scope::kHost)));
}

TEST(Families, AnInterfaceHasItsBytesLessHeadersAndForwardedTrafficNoClients) {
  const std::string page = TextOfUplinks({MakeUplink("satellite")});
  const std::string link =
      "\nnetmeter_uplink_bytes_total{uplink=\"satellite\",interface=\"sat0\",";
  EXPECT_THAT(page,
              HasSubstr(absl::StrCat(" counter", link, "direction=\"rx\"} 602",
                                     link, "direction=\"tx\"} 8874\n")));
  const std::string other =
      "\nnetmeter_forwarded_bytes_total{uplink=\"satellite\",interface=";
  EXPECT_THAT(page, HasSubstr(absl::StrCat(
                        " counter", other, "\"br0\",direction=\"rx\"} 600",
                        other, "\"br0\",direction=\"tx\"} 8000", other,
                        "\"lan0\",direction=\"rx\"} 40", other,
                        "\"lan0\",direction=\"tx\"} 0\n")));
}

TEST(Families, UplinksAreThoseOfTheHostThatTheConfigurationNames) {
  for (const Scope scope : {Scope::kHost, Scope::kUnregistered}) {
    const auto names = Names(FamiliesOf({}, Health(), OptionsOf(scope), 0,
                                        {MakeUplink("satellite")}));
    EXPECT_THAT(names, Contains("netmeter_uplink_bytes_total"));
    EXPECT_THAT(names, Contains("netmeter_forwarded_bytes_total"));
  }
  EXPECT_THAT(
      TextOfUplinks({MakeUplink("satellite")}, OptionsOf(Scope::kService)),
      Not(HasSubstr("sat0")));
  EXPECT_THAT(TextOfUplinks({MakeUplink("satellite")},
                            OptionsOf(Scope::kHost, "kernsnoopd")),
              Not(HasSubstr("sat0")));
  // A bridge and its ports have the same packets.
  const std::string other = TextOfUplinks({MakeUplink("other")});
  EXPECT_THAT(other, Not(HasSubstr("netmeter_uplink_bytes_total")));
  EXPECT_THAT(other,
              HasSubstr("netmeter_forwarded_bytes_total{uplink=\"other\""));
}

// Prometheus takes a counter that went down for a new one, and counts all of it again.
TEST(Families, TheCounterOfAnInterfaceNeverGoesDown) {
  const std::string before = TextOfUplinks({MakeUplink("satellite")});
  Uplink uplink = MakeUplink("satellite");
  UplinkInterface& card = uplink.interfaces[0];
  // `ethtool -K sat0 gro on`: the header's size was 14, and is unknown.
  card.rx_header_bytes = -1;
  EXPECT_EQ(TextOfUplinks({uplink}), before);
  // A load moved it to another uplink.
  card.has_left = true;
  EXPECT_EQ(TextOfUplinks({uplink}), before);
}

TEST(Families, InterfacesOfOneNameAreSummedAndPatternsAreNone) {
  Uplink uplink = MakeUplink("satellite");
  uplink.interfaces.push_back(uplink.interfaces[0]);
  uplink.interfaces[1].index = 5;
  uplink.interfaces.emplace_back();
  uplink.interfaces.back().name = "wwan*";
  uplink.interfaces.back().not_counted = "no such interface";
  const std::string page = TextOfUplinks({uplink});
  EXPECT_THAT(page, HasSubstr("direction=\"tx\"} 17748\n"));
  EXPECT_THAT(page, Not(HasSubstr("wwan")));
}

TEST(Families, OfHostAreExactlyTheseInThisOrder) {
  EXPECT_THAT(
      Names(FamiliesOfHost(MixedSamples(), HealthOfZeros())),
      ElementsAre(
          "netmeter_up", "netmeter_build_info", "netmeter_start_time_seconds",
          "magma_bytes_sent_total", "magma_bytes_received_total",
          "linux_bytes_sent_total", "linux_bytes_received_total",
          "netmeter_wire_bytes_total", "netmeter_wire_packets_total",
          "netmeter_proxy_bytes_total", "netmeter_proxy_packets_total",
          "netmeter_tcp_retransmit_bytes_total", "netmeter_series",
          "netmeter_series_limit", "netmeter_misattributed_packets_total",
          "netmeter_misattributed_names_total",
          "netmeter_misattributed_processes_total",
          "netmeter_misattributed_sockets_total"));
}

TEST(Families, OfServiceAreExactlyTheseInThisOrder) {
  const std::vector<Sample> samples = {MakeSample(
      Kind::kService, "mme", "streamer", Transport::kTcp, Path::kDirect)};
  EXPECT_THAT(
      Names(FamiliesOfService(samples)),
      ElementsAre("netmeter_up", "netmeter_build_info",
                  "netmeter_start_time_seconds", "magma_bytes_sent_total",
                  "magma_bytes_received_total", "netmeter_wire_bytes_total",
                  "netmeter_wire_packets_total",
                  "netmeter_tcp_retransmit_bytes_total"));
}

TEST(Families, WithoutSeriesAreLeftOut) {
  EXPECT_THAT(Names(FamiliesOfService({})),
              ElementsAre("netmeter_up", "netmeter_build_info",
                          "netmeter_start_time_seconds"));
}

TEST(Families, OfAnErrorAreUpAlone) {
  EXPECT_EQ(Text(FamiliesOfError()),
            "# HELP netmeter_up Whether the maps can be read: 1, or 0 if not "
            "loaded or refused.\n"
            "# TYPE netmeter_up gauge\n"
            "netmeter_up 0\n");
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

// The bug: the sum was meaningless, because traffic that a service sent through the proxy
// was in it again as the proxy's traffic. A label told them apart, and a user who forgot
// it paid twice.
TEST(Families, WireIsWhatLinksCarriedAndNothingElse) {
  std::vector<Sample> samples = MixedSamples();
  samples.push_back(
      MakeSample(Kind::kPending, "mme", "", Transport::kTcp, Path::kDirect));
  samples.push_back(
      MakeSample(Kind::kPending, "mme", "", Transport::kTcp, Path::kProxy));
  // On its first appearance it would look like new traffic.
  samples.push_back(MakeSample(Kind::kEvicted, "service", "", Transport::kTcp,
                               Path::kDirect));
  samples.push_back(
      MakeSample(Kind::kEvicted, "binary", "", Transport::kTcp, Path::kProxy));
  uint64_t bytes[2] = {}, packets[2] = {}, pending[2] = {}, evicted[2] = {};
  for (const Sample& sample : samples) {
    const int path = static_cast<int>(sample.path);
    const uint64_t sum = sample.tx_bytes + sample.rx_bytes;
    if (sample.kind == Kind::kPending) {
      pending[path] += sum;
    } else if (sample.kind == Kind::kEvicted) {
      evicted[path] += sum;
    } else {
      bytes[path] += sum;
      packets[path] += sample.tx_packets + sample.rx_packets;
    }
  }
  const std::vector<Family> families = FamiliesOfHost(samples, Health());
  EXPECT_EQ(Sum(families, "netmeter_wire_bytes_total"), bytes[0]);
  EXPECT_EQ(Sum(families, "netmeter_wire_packets_total"), packets[0]);
  EXPECT_EQ(Sum(families, "netmeter_pending_bytes"), pending[0]);
  EXPECT_EQ(Sum(families, "netmeter_proxy_bytes_total"), bytes[1]);
  EXPECT_EQ(Sum(families, "netmeter_proxy_packets_total"), packets[1]);
  EXPECT_EQ(Sum(families, "netmeter_proxy_pending_bytes"), pending[1]);
  EXPECT_EQ(Sum(families, "netmeter_evicted_bytes_total"), evicted[0]);
  EXPECT_EQ(Sum(families, "netmeter_proxy_evicted_bytes_total"), evicted[1]);
  for (const uint64_t sum :
       {bytes[0], bytes[1], pending[0], pending[1], evicted[0], evicted[1]}) {
    EXPECT_GT(sum, 0u);
  }
  EXPECT_THAT(ToText(families, TextFormat::kPrometheus),
              HasSubstr("netmeter_proxy_evicted_bytes_total{kind=\"binary\","
                        "direction=\"tx\"} "));
}

TEST(Families, RetransmissionsAreThoseOfTcp) {
  const std::string text = Text(FamiliesOfHost(MixedSamples(), Health()));
  EXPECT_THAT(text, HasSubstr("netmeter_tcp_retransmit_bytes_total{"
                              "kind=\"service\",name=\"mme\","
                              "destination=\"streamer\"} 7\n"));
  // Both paths of curl have equal labels here.
  EXPECT_THAT(text, HasSubstr("netmeter_tcp_retransmit_bytes_total{"
                              "kind=\"binary\",name=\"curl\","
                              "destination=\"\"} 14\n"));
  EXPECT_THAT(text, Not(HasSubstr("netmeter_tcp_retransmit_bytes_total{"
                                  "kind=\"unattributed\"")));
}

TEST(Families, ConnectionsAreSummedOverPathsAndRoundTripsAreAHistogram) {
  Sample direct = MakeSample(Kind::kService, "mme", "streamer", Transport::kTcp,
                             Path::kDirect);
  direct.tcp.known = true;
  direct.tcp.opened = 5;
  direct.tcp.accepted = 4;
  direct.tcp.closed = 3;
  direct.tcp.failed = 2;
  direct.tcp.resets_sent = 6;
  direct.tcp.resets_received = 7;
  direct.tcp.timeouts = 8;
  direct.tcp.retransmitted_segments = 9;
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
      ElementsAre(
          "netmeter_up", "netmeter_build_info", "netmeter_start_time_seconds",
          "magma_bytes_sent_total", "magma_bytes_received_total",
          "netmeter_wire_bytes_total", "netmeter_wire_packets_total",
          "netmeter_proxy_bytes_total", "netmeter_proxy_packets_total",
          "netmeter_tcp_retransmit_bytes_total",
          "netmeter_tcp_connections_opened_total",
          "netmeter_tcp_connections_accepted_total",
          "netmeter_tcp_connections_closed_total",
          "netmeter_tcp_connections_failed_total",
          "netmeter_tcp_resets_sent_total",
          "netmeter_tcp_resets_received_total", "netmeter_tcp_timeouts_total",
          "netmeter_tcp_retransmitted_segments_total",
          "netmeter_tcp_rtt_seconds"));
  const std::string text = Text(families);
  const std::string labels =
      "kind=\"service\",name=\"mme\",destination=\"streamer\"";
  EXPECT_THAT(text, HasSubstr("opened_total{" + labels + "} 10\n"));
  EXPECT_THAT(text, HasSubstr("accepted_total{" + labels + "} 8\n"));
  EXPECT_THAT(text, HasSubstr("closed_total{" + labels + "} 6\n"));
  EXPECT_THAT(text, HasSubstr("failed_total{" + labels + "} 4\n"));
  EXPECT_THAT(text, HasSubstr("resets_sent_total{" + labels + "} 12\n"));
  EXPECT_THAT(text, HasSubstr("resets_received_total{" + labels + "} 14\n"));
  EXPECT_THAT(text, HasSubstr("timeouts_total{" + labels + "} 16\n"));
  EXPECT_THAT(text, HasSubstr("segments_total{" + labels + "} 18\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE netmeter_tcp_rtt_seconds histogram\n"
                              "netmeter_tcp_rtt_seconds_bucket{" +
                              labels +
                              ",le=\"0.001\"} 1\n"
                              "netmeter_tcp_rtt_seconds_bucket{" +
                              labels + ",le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("netmeter_tcp_rtt_seconds_bucket{" + labels +
                              ",le=\"1.5\"} 1\n"
                              "netmeter_tcp_rtt_seconds_bucket{" +
                              labels +
                              ",le=\"+Inf\"} 3\n"
                              "netmeter_tcp_rtt_seconds_sum{" +
                              labels +
                              "} 1.2345\n"
                              "netmeter_tcp_rtt_seconds_count{" +
                              labels + "} 3\n"));
  EXPECT_THAT(text, Not(HasSubstr("opened_total{kind=\"service\",name=\"x\"")));
}

// The bug: the start time of a load before the clock was set stayed 30 seconds after
// 1970.
TEST(Families, TheStartIsByTheClockOfNow) {
  // In the middle of a second, so that two reads of the clock give the same one.
  const uint64_t now = ClockNs(CLOCK_REALTIME);
  Health health;
  health.start_time_ns = ClockNs(CLOCK_BOOTTIME) + 500000000 - now % 1000000000;
  EXPECT_THAT(Text(FamiliesOfHost({}, health)),
              HasSubstr(absl::StrCat("\nnetmeter_start_time_seconds ",
                                     now / 1000000000, "\n")));
}

TEST(Families, HealthIsWhatTheMeterSays) {
  Health health;
  health.version = "1.2.3";
  health.abi = "1.1";
  health.kernel = "6.1.0-\xff";
  health.config_hash = "0123456789abcdef";
  health.series = 3;
  health.max_series = 4096;
  health.misattributed = {{"packets", "series_full", 11},
                          {"packets", "series_over_quota", 17},
                          {"packets", "storage_failed", 14},
                          {"packets", "header_errors", 15},
                          {"names", "full", 12},
                          {"names", "over_quota", 16},
                          {"processes", "full", 13},
                          {"sockets", "storage_failed", 18}};
  const std::string text = Text(FamiliesOfHost({}, health));
  for (const char* line :
       {"netmeter_up 1", "netmeter_series 3", "netmeter_series_limit 4075",
        "netmeter_build_info{version=\"1.2.3\",abi=\"1.1\","
        "kernel=\"6.1.0-\\\\xff\"} 1",
        "netmeter_config_info{hash=\"0123456789abcdef\",version=\"1.2.3\"} 1",
        "netmeter_misattributed_packets_total{reason=\"series_full\"} 11",
        "netmeter_misattributed_packets_total{reason=\"series_over_quota\"} 17",
        "netmeter_misattributed_packets_total{reason=\"storage_failed\"} 14",
        "netmeter_misattributed_packets_total{reason=\"header_errors\"} 15",
        "netmeter_misattributed_names_total{reason=\"full\"} 12",
        "netmeter_misattributed_names_total{reason=\"over_quota\"} 16",
        "netmeter_misattributed_processes_total{reason=\"full\"} 13",
        "netmeter_misattributed_sockets_total{reason=\"storage_failed\"} 18"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST(Families, AreThoseThatWereChosen) {
  std::vector<Sample> samples = MixedSamples();
  samples[0].tcp.known = true;
  samples[0].tcp.rtt_us = 5;
  const auto names = [&samples](Scope scope, const char* families) {
    return Names(FamiliesOf(samples, Health(), OptionsOf(scope, families)));
  };
  const char* const rtt = "netmeter_tcp_rtt_seconds";
  EXPECT_THAT(names(Scope::kHost, "default"), Not(Contains(rtt)));
  EXPECT_THAT(names(Scope::kHost, "all"), Contains(rtt));
  EXPECT_EQ(names(Scope::kHost, "all").size(),
            names(Scope::kHost, "default").size() + 5);
  EXPECT_THAT(names(Scope::kHost, "kernsnoopd"),
              ElementsAre("netmeter_up", "magma_bytes_sent_total",
                          "linux_bytes_sent_total"));
  EXPECT_THAT(names(Scope::kService, "kernsnoopd,netmeter_series"),
              ElementsAre("netmeter_up", "magma_bytes_sent_total"));
  EXPECT_THAT(names(Scope::kHost, "netmeter_series"),
              ElementsAre("netmeter_up", "netmeter_series"));
  // The number of omitted services is published whatever families are chosen.
  EXPECT_THAT(names(Scope::kUnregistered, "netmeter_series"),
              ElementsAre("netmeter_up", "netmeter_omitted_services",
                          "netmeter_series"));
}

TEST(Families, ZerosAreLeftOutWhereThatIsWanted) {
  PublishOptions options = OptionsOf(Scope::kHost, "all");
  const std::vector<Family> all =
      FamiliesOf(MixedSamples(), HealthOfZeros(), options);
  options.omit_zeros = true;
  const std::vector<Family> some =
      FamiliesOf(MixedSamples(), HealthOfZeros(), options);
  EXPECT_LT(some.size(), all.size());
  for (const Family& family : some) {
    EXPECT_FALSE(family.metrics.empty());
    for (const Metric& metric : family.metrics) {
      EXPECT_TRUE(metric.value != 0 || family.type != FamilyType::kCounter);
    }
  }
  // A gauge of 0 may have had another value before.
  EXPECT_THAT(Names(some), Contains("netmeter_series"));
  EXPECT_THAT(Names(some),
              Not(Contains("netmeter_misattributed_packets_total")));
}

TEST(Families, CountersHaveNoTotalWhereThatIsWanted) {
  PublishOptions options = OptionsOf(Scope::kHost, "all");
  std::vector<std::string> expected =
      Names(FamiliesOf(MixedSamples(), Health(), options));
  for (std::string& name : expected) {
    name = std::string(absl::StripSuffix(name, "_total"));
  }
  options.names_without_total = true;
  EXPECT_EQ(Names(FamiliesOf(MixedSamples(), Health(), options)), expected);
  EXPECT_THAT(expected, Contains("magma_bytes_sent"));
  // All names are different.
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(std::unique(expected.begin(), expected.end()), expected.end());
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

// A page of metrics may contain any valid UTF-8, but `curl` prints it to a terminal.
TEST(Families, LabelsLetNothingReachATerminal) {
  const std::vector<Sample> samples = {MakeSample(
      Kind::kService, "\x1b[31mred", "a\nb", Transport::kTcp, Path::kDirect)};
  const std::string text = Text(FamiliesOfService(samples));
  EXPECT_THAT(text, HasSubstr("{service_name=\"\\\\x1b[31mred\","
                              "dest_service=\"a\\\\x0ab\"}"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Families, TextsNeedNoEscapingAndCountersAreCalledTotal) {
  for (const Family& family : FamiliesOfHost(MixedSamples(), Health())) {
    const std::string name = family.name;
    const bool total =
        name.size() > 6 && name.compare(name.size() - 6, 6, "_total") == 0;
    EXPECT_EQ(total, family.type == FamilyType::kCounter) << name;
    for (const char* c = family.help; *c != 0; ++c) {
      EXPECT_TRUE(*c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\') << name;
    }
  }
}

// A series is registered from the first packet of a socket that was opened after
// Register(). The bug: if a service sent UDP before and TCP after it, only TCP was left
// out, so magma_bytes_sent_total, a sum over both, decreased.
TEST(Families, ARegisteredServiceIsLeftOutWithAllItsSeries) {
  std::vector<Sample> samples = {
      MakeSample(Kind::kService, "mme", "streamer", Transport::kUdp,
                 Path::kDirect),
      MakeSample(Kind::kPending, "mme", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kBinary, "mme", "", Transport::kTcp, Path::kDirect),
      MakeSample(Kind::kService, "state", "streamer", Transport::kUdp,
                 Path::kDirect),
      MakeSample(Kind::kService, "mme", "streamer", Transport::kTcp,
                 Path::kDirect),
  };
  EXPECT_EQ(OmitRegistered(&samples), 0u);
  EXPECT_EQ(samples.size(), 5u);
  for (const size_t registered : {0, 1, 4}) {
    std::vector<Sample> left = samples;
    left[registered].registered = true;
    left[1].registered = true;  // by ReadScope()
    EXPECT_EQ(OmitRegistered(&left), 1u);
    ASSERT_EQ(left.size(), 2u) << registered;
    EXPECT_EQ(left[0].kind, Kind::kBinary);
    EXPECT_EQ(left[1].name, "state");
    const std::string text = Text(FamiliesOfHost(left, Health()));
    for (const char* label : {"service_name=\"mme\"", "pending_bytes{"}) {
      EXPECT_THAT(text, Not(HasSubstr(label)));
    }
    EXPECT_THAT(text, Not(HasSubstr("kind=\"service\",name=\"mme\"")));
    EXPECT_THAT(text, HasSubstr("linux_bytes_sent_total{binary_name=\"mme\"}"));
  }
}

// The bug: the pending bytes of a program were left out with the service of its name.
TEST(Families, WhatIsPendingIsLeftOutWithItsOwnerOnly) {
  std::vector<Sample> samples = {
      MakeSample(Kind::kService, "sessiond", "", Transport::kTcp,
                 Path::kDirect),
      MakeSample(Kind::kPending, "sessiond", "", Transport::kTcp,
                 Path::kDirect),  // of the program
      MakeSample(Kind::kPending, "sessiond", "", Transport::kTcp,
                 Path::kDirect),
  };
  samples[0].registered = true;
  samples[2].registered = true;  // by ReadScope()
  EXPECT_EQ(OmitRegistered(&samples), 1u);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].kind, Kind::kPending);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
