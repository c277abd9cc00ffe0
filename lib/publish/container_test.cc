// SPDX-License-Identifier: BSD-3-Clause
// Decodes with generated code of the true schema: a proto2 reader, like orc8r's.
#include "lib/publish/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/testing/families.h"
#include "netmeter/magma.h"
#include "service303.pb.h"

namespace netmeter {
namespace internal {
namespace {

using io::prometheus::client::MetricFamily;
using magma::orc8r::MetricsContainer;

constexpr int64_t kTime = 1700000000123;

// Folds all series of the host, in all families, into `max_bytes`.
std::vector<Sample> Fold(std::vector<Sample> samples, size_t max_bytes,
                         bool leave_registered_out) {
  const Scope scope =
      leave_registered_out ? Scope::kUnregistered : Scope::kHost;
  size_t omitted_services = 0;
  return internal::Fold(std::move(samples), max_bytes, OptionsOf(scope, "all"),
                        &omitted_services);
}

size_t BytesOf(const std::vector<Sample>& samples) {
  return MetricBytes(FamiliesOfHost(samples, Health()), kTime);
}

MetricsContainer Parse(const std::string& bytes) {
  MetricsContainer container;
  EXPECT_TRUE(container.ParseFromString(bytes));
  return container;
}

Sample MakeSample(Kind kind, const std::string& name,
                  const std::string& destination, uint64_t bytes) {
  Sample sample;
  sample.kind = kind;
  sample.name = name;
  sample.destination = destination;
  sample.transport = Transport::kTcp;
  sample.tx_payload_bytes = bytes;
  sample.tx_bytes = bytes;
  return sample;
}

// `count` TCP series of services. All names have the greatest length, and each series has
// the largest possible numbers.
std::vector<Sample> LongSamples(size_t count, char fill) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    std::string destination = "d" + name;
    name.resize(64, fill);
    destination.resize(64, fill);
    samples.push_back(MakeSample(Kind::kService, name, destination, i + 1));
    samples.back().tcp.known = true;
    samples.back().tcp.rtt_us = 1;
    samples.back().tcp.rtt_buckets[0] = ~uint64_t{0};
  }
  return samples;
}

double Sum(const MetricsContainer& container, const std::string& family) {
  double sum = 0;
  for (const MetricFamily& f : container.family()) {
    if (f.name() != family) continue;
    for (const auto& metric : f.metric()) sum += metric.counter().value();
  }
  return sum;
}

TEST(Container, IsByteForByteWhatAProto2WriterWrites) {
  Family family;
  family.name = "x";
  family.help = "";
  family.metrics = {{{}, 0}};
  // family { name "x", type 0, metric { counter { value 0.0 } } }
  const std::string expected(
      "\x12\x12\x0a\x01x\x18\x00\x22\x0b\x1a\x09\x09\0\0\0\0\0\0\0\0", 20);
  EXPECT_EQ(ToContainer({family}, 0), expected);
  EXPECT_EQ(Parse(expected).SerializeAsString(), expected);
}

// COUNTER is 0, and a new counter is 0.0. A proto3 writer leaves out both, which costs a
// gateway its whole upload.
TEST(Container, HasTypeAndValueAlsoWhereTheyAreZero) {
  const std::vector<Sample> samples = {
      MakeSample(Kind::kService, "mme", "", 0),
      MakeSample(Kind::kBinary, "curl", "", 0)};
  const MetricsContainer container =
      Parse(ToContainer(FamiliesOfHost(samples, HealthOfZeros()), kTime));
  EXPECT_EQ(container.family_size(), 16);
  EXPECT_EQ(container.gatewayid(), "");
  for (const MetricFamily& family : container.family()) {
    EXPECT_TRUE(family.has_name());
    EXPECT_FALSE(family.has_help());  // orc8r drops it
    EXPECT_TRUE(family.has_type()) << family.name();
    ASSERT_GT(family.metric_size(), 0) << family.name();
    for (const auto& metric : family.metric()) {
      if (family.type() == io::prometheus::client::COUNTER) {
        ASSERT_TRUE(metric.has_counter()) << family.name();
        EXPECT_TRUE(metric.counter().has_value()) << family.name();
        EXPECT_FALSE(metric.has_gauge()) << family.name();
      } else {
        EXPECT_EQ(family.type(), io::prometheus::client::GAUGE);
        ASSERT_TRUE(metric.has_gauge()) << family.name();
        EXPECT_TRUE(metric.gauge().has_value()) << family.name();
        EXPECT_FALSE(metric.has_counter()) << family.name();
      }
      EXPECT_EQ(metric.timestamp_ms(), metric.has_gauge() ? kTime : 0);
      for (const auto& label : metric.label()) {
        EXPECT_TRUE(label.has_name());
        EXPECT_TRUE(label.has_value());
      }
    }
  }
}

TEST(Container, RoundTripsAreAHistogram) {
  Sample sample = MakeSample(Kind::kService, "mme", "streamer", 5);
  sample.tcp.known = true;
  sample.tcp.rtt_us = 1500000;
  sample.tcp.rtt_buckets = {{0, 2, 0, 0, 0, 0, 0, 0, 0, 1}};
  const MetricsContainer container =
      Parse(ToContainer(FamiliesOfService({sample}), kTime));
  const MetricFamily& family = container.family(container.family_size() - 1);
  EXPECT_EQ(family.name(), "netmeter_tcp_rtt_seconds");
  EXPECT_EQ(family.type(), io::prometheus::client::HISTOGRAM);
  ASSERT_EQ(family.metric_size(), 1);
  const auto& metric = family.metric(0);
  EXPECT_FALSE(metric.has_counter());
  EXPECT_FALSE(metric.has_gauge());
  EXPECT_FALSE(metric.has_timestamp_ms());
  const auto& histogram = metric.histogram();
  EXPECT_EQ(histogram.sample_count(), 3u);
  EXPECT_EQ(histogram.sample_sum(), 1.5);
  ASSERT_EQ(histogram.bucket_size(), 10);
  EXPECT_TRUE(histogram.bucket(0).has_cumulative_count());
  EXPECT_EQ(histogram.bucket(0).cumulative_count(), 0u);
  EXPECT_EQ(histogram.bucket(0).upper_bound(), 0.001);
  EXPECT_EQ(histogram.bucket(1).cumulative_count(), 2u);
  EXPECT_EQ(histogram.bucket(8).upper_bound(), 1.5);
  EXPECT_EQ(histogram.bucket(9).cumulative_count(), 3u);
  EXPECT_TRUE(std::isinf(histogram.bucket(9).upper_bound()));
}

TEST(Container, HasNoFieldThatTheSchemaDoesNotHave) {
  const std::string bytes = ToContainer(
      FamiliesOfHost({MakeSample(Kind::kService, "mme", "x", 5)}, Health()),
      kTime);
  // Serializing again would put unknown fields last, and others in order.
  EXPECT_EQ(Parse(bytes).SerializeAsString(), bytes);
}

TEST(Container, HasNoLabelThatMagmaAddsItself) {
  const std::set<std::string> taken = {"service", "networkID", "gatewayID",
                                       "scrape_target"};
  const std::vector<Sample> samples = {
      MakeSample(Kind::kService, "mme", "", 1),
      MakeSample(Kind::kBinary, "curl", "", 1)};
  const MetricsContainer container =
      Parse(ToContainer(FamiliesOfHost(samples, Health()), 0));
  for (const MetricFamily& family : container.family()) {
    for (const auto& metric : family.metric()) {
      for (const auto& label : metric.label()) {
        EXPECT_EQ(taken.count(label.name()), 0u) << label.name();
      }
    }
  }
}

TEST(Container, StringsAreValidUtf8WhateverTheNamesAre) {
  const auto families =
      FamiliesOfService({MakeSample(Kind::kService, "a\xff\"\n", "\x80", 1)});
  const MetricsContainer container = Parse(ToContainer(families, 0));
  EXPECT_EQ(container.family(3).metric(0).label(0).value(), "a\\xff\"\\x0a");
  EXPECT_EQ(container.family(3).metric(0).label(1).value(), "\\x80");
}

// Compares with the numbers in magma.h.
TEST(Fold, BeginsWhereTheHeaderSays) {
  for (const size_t length : {16, 64}) {
    for (const Transport transport : {Transport::kTcp, Transport::kUdp}) {
      std::vector<Sample> samples = LongSamples(8000, 'x');
      for (Sample& sample : samples) {
        sample.name.resize(length);
        sample.destination.resize(length);
        sample.transport = transport;
        if (transport != Transport::kTcp) sample.tcp = TcpConnections();
      }
      size_t omitted = 0;
      samples = internal::Fold(samples, MagmaOptions().max_bytes,
                               PublishOptions(), &omitted);
      size_t kept = 0;
      while (kept < samples.size() && samples[kept].name != "overflow") ++kept;
      printf("names of %zu bytes: %zu series of %s by name\n", length, kept,
             TransportName(transport));
      const bool is_tcp = transport == Transport::kTcp;
      const int expected =
          length == 64 ? (is_tcp ? 1770 : 3050) : (is_tcp ? 3400 : 5500);
      EXPECT_NEAR(static_cast<double>(kept), expected, 50);
    }
  }
}

TEST(Fold, KeepsAFullTableBelowFourMebibytesAndItsSums) {
  for (const char fill : {'x', '\xff'}) {
    const std::vector<Sample> all = LongSamples(4096, fill);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Sample> folded = Fold(all, 4000000, false);
    const std::string bytes =
        ToContainer(FamiliesOfHost(folded, Health()), kTime);
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - begin;
    const std::string unfolded =
        ToContainer(FamiliesOfHost(all, Health()), kTime);
    size_t kept = 0;
    while (kept < folded.size() && folded[kept].name != "overflow") ++kept;
    printf(
        "4096 series, 64-byte names%s: %zu bytes in %.1f ms, %zu by name; "
        "unfolded %zu bytes\n",
        fill == 'x' ? "" : " of no UTF-8", bytes.size(), took.count(), kept,
        unfolded.size());
    EXPECT_LE(bytes.size(), 4000000u);
    // Folds only the series that do not fit: each has room for the label of an uplink.
    EXPECT_GE(bytes.size(), 4000000u - 3 * kReservedBytes);
    const MetricsContainer container = Parse(bytes);
    for (const char* family :
         {"magma_bytes_sent_total", "netmeter_wire_bytes_total"}) {
      EXPECT_EQ(Sum(container, family), 4096.0 * 4097 / 2) << family;
      EXPECT_EQ(Sum(Parse(unfolded), family), 4096.0 * 4097 / 2) << family;
    }
  }
}

// All kinds, transports and paths at once: the reserve must suffice for them.
TEST(Fold, HasRoomForEveryFoldedSeries) {
  constexpr Kind kKinds[] = {Kind::kService, Kind::kBinary, Kind::kUnattributed,
                             Kind::kOverflow, Kind::kPending};
  std::vector<Sample> samples = LongSamples(5000, 'x');
  for (int i = 0; i < 5000; ++i) {
    Sample& sample = samples[i];
    sample.kind = kKinds[i % 5];
    sample.transport = static_cast<Transport>(i / 5 % 5);
    sample.path = static_cast<Path>(i / 25 % 2);
    if (sample.kind == Kind::kUnattributed || sample.kind == Kind::kOverflow) {
      sample.name = KindName(sample.kind);
      sample.destination.clear();
    }
  }
  EXPECT_LE(
      ToContainer(FamiliesOfHost(Fold(samples, 0, false), Health()), kTime)
          .size(),
      kLeastMaxBytes);
}

// Otherwise a reader would see a counter decrease. Prometheus takes that for a restart,
// and adds the whole value again.
TEST(Fold, NeverMovesASeriesWhenOthersAppearOrRegister) {
  std::map<std::string, uint64_t> last;
  std::vector<Sample> all = LongSamples(6000, 'x');
  for (size_t count = 500; count <= all.size(); count += 500) {
    all[count / 2].registered = true;
    all[count - 1].registered = true;
    std::map<std::string, uint64_t> now;
    for (const Sample& sample :
         Fold(std::vector<Sample>(all.begin(), all.begin() + count), 4000000,
              true)) {
      now[sample.name] += sample.tx_bytes;
    }
    for (const auto& entry : now) {
      EXPECT_GE(entry.second, last[entry.first]) << entry.first;
      last[entry.first] = entry.second;
    }
  }
  EXPECT_GT(last["overflow"], 0u);
}

// The bug: series without an owner may come late, but are first in the tables for a
// reader that opens the meter again. They changed which series were folded.
TEST(Fold, NeverMovesASeriesForTheReservedOnes) {
  const std::vector<Sample> all = LongSamples(4096, 'x');
  std::vector<Sample> late = all;
  late.push_back(MakeSample(Kind::kUnattributed, "unattributed", "", 1));
  std::vector<Sample> early = all;
  early.insert(early.begin(), late.back());
  const std::vector<Sample> folded = Fold(all, 4000000, false);
  late = Fold(late, 4000000, false);
  early = Fold(early, 4000000, false);
  EXPECT_EQ(late.back().name, "unattributed");
  EXPECT_EQ(early.front().name, "unattributed");
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(late[i].name, folded[i].name) << i;
    EXPECT_EQ(early[i + 1].name, folded[i].name) << i;
  }
}

// The size of a series must not depend on data that comes and goes, or comes with time:
// bytes that wait for their destination, the first round trip, the connections that an
// older loader did not count, and numbers that take more bytes.
TEST(Fold, NeverMovesASeriesWhateverItAndItsNeighboursBecome) {
  const std::vector<Sample> all = LongSamples(4096, 'x');
  const auto by_name = [](const std::vector<Sample>& samples) {
    std::set<std::string> names;
    for (const Sample& sample : Fold(samples, 4000000, false)) {
      if (sample.kind == Kind::kService) names.insert(sample.name);
    }
    return names;
  };
  const std::set<std::string> expected = by_name(all);
  EXPECT_EQ(expected.count("overflow"), 1u);

  std::vector<Sample> samples = all;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % 2 == 0) samples[i].tcp = TcpConnections();
    if (i % 3 == 0) samples[i].tcp.rtt_us = 0;
    if (i % 5 == 0) samples[i].tcp.rtt_buckets = {{1, 2, 3}};
  }
  EXPECT_EQ(by_name(samples), expected) << "less in it";

  for (const size_t distance : {1, 7, 100}) {
    std::vector<Sample> mixed;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % distance == 0) {
        mixed.push_back(MakeSample(Kind::kPending, all[i].name, "", 7));
      }
      mixed.push_back(all[i]);
    }
    EXPECT_EQ(by_name(mixed), expected) << "pending: each " << distance;
    EXPECT_LE(ToContainer(FamiliesOfHost(Fold(mixed, 4000000, false), Health()),
                          kTime)
                  .size(),
              4000000u);
  }
}

// Pending bytes get the room that the other series leave. They are a gauge, whose sum is
// kept.
TEST(Fold, GivesPendingBytesTheRoomThatIsLeft) {
  for (const size_t count : {100, 1120, 4096}) {
    std::vector<Sample> samples = LongSamples(count, 'x');
    for (size_t i = 0; i < 2000; ++i) {
      samples.push_back(MakeSample(
          Kind::kPending, std::string(60, 'p') + std::to_string(i), "", 1));
    }
    const std::vector<Sample> folded = Fold(samples, 4000000, false);
    size_t kept = 0;
    for (const Sample& sample : folded) {
      kept += sample.kind == Kind::kPending && sample.name != "overflow";
    }
    printf("beside %zu series, %zu of 2000 pending ones by name\n", count,
           kept);
    EXPECT_EQ(kept == 2000, count == 100);
    // For 4096 series, the remaining room is less than one more of them takes.
    const size_t series_bytes = BytesOf(LongSamples(2, 'x')) - BytesOf({});
    const size_t pending_bytes = BytesOf({samples.back()}) - BytesOf({});
    EXPECT_EQ(kept * pending_bytes < series_bytes / 2, count == 4096);
    const MetricsContainer container =
        Parse(ToContainer(FamiliesOfHost(folded, Health()), kTime));
    double sum = 0;
    for (const MetricFamily& family : container.family()) {
      if (family.name() != "netmeter_pending_bytes") continue;
      for (const auto& metric : family.metric()) sum += metric.gauge().value();
    }
    EXPECT_EQ(sum, 2000);
    // A service that publishes its pending bytes itself needs no room here.
    samples.back().registered = true;
    EXPECT_EQ(Fold(samples, 4000000, true).size(), samples.size() - 1);
  }
}

// If only a folded series of a service is registered, the service is left out by its
// name, and stays in "overflow" with the folded series.
TEST(Fold, LeavesOutARegisteredServiceButForWhatWasFolded) {
  std::vector<Sample> samples = LongSamples(4096, 'x');
  samples[4000] = MakeSample(Kind::kService, samples[7].name, "late", 4001);
  const auto overflow = [](const std::vector<Sample>& folded) {
    uint64_t sum = 0;
    for (const Sample& s : folded) sum += s.name == "overflow" ? s.tx_bytes : 0;
    return sum;
  };
  const std::vector<Sample> before = Fold(samples, 4000000, true);
  EXPECT_EQ(before.size(), 4096u);
  samples[4000].registered = true;
  const std::vector<Sample> after = Fold(samples, 4000000, true);
  EXPECT_EQ(after.size(), 4095u);
  EXPECT_EQ(after[7].name, samples[8].name);
  EXPECT_GT(overflow(after), 4001u);
  EXPECT_EQ(overflow(after), overflow(before));
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
