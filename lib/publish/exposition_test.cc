// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/exposition.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

std::vector<Family> TwoFamilies() {
  Family gauge;
  gauge.name = "netmeter_up";
  gauge.help = "Whether.";
  gauge.type = FamilyType::kGauge;
  gauge.metrics = {{{}, 1}};
  Family counter;
  counter.name = "magma_bytes_sent_total";
  counter.help = "Bytes.";
  counter.metrics = {
      {{{"service_name", "a\\b\"c\nd"}, {"dest_service", ""}}, 0},
      {{{"service_name", "mme"}, {"dest_service", "caf\xc3\xa9"}},
       std::numeric_limits<uint64_t>::max()}};
  return {gauge, counter};
}

TEST(Exposition, IsPrometheusText) {
  EXPECT_EQ(ToText(TwoFamilies(), TextFormat::kPrometheus),
            "# HELP netmeter_up Whether.\n"
            "# TYPE netmeter_up gauge\n"
            "netmeter_up 1\n"
            "# HELP magma_bytes_sent_total Bytes.\n"
            "# TYPE magma_bytes_sent_total counter\n"
            "magma_bytes_sent_total{service_name=\"a\\\\b\\\"c\\nd\","
            "dest_service=\"\"} 0\n"
            "magma_bytes_sent_total{service_name=\"mme\","
            "dest_service=\"caf\xc3\xa9\"} 18446744073709551615\n");
}

TEST(Exposition, OpenMetricsNamesTheFamilyOfACounterWithoutSuffixAndEnds) {
  EXPECT_EQ(ToText(TwoFamilies(), TextFormat::kOpenMetrics),
            "# HELP netmeter_up Whether.\n"
            "# TYPE netmeter_up gauge\n"
            "netmeter_up 1\n"
            "# HELP magma_bytes_sent Bytes.\n"
            "# TYPE magma_bytes_sent counter\n"
            "magma_bytes_sent_total{service_name=\"a\\\\b\\\"c\\nd\","
            "dest_service=\"\"} 0\n"
            "magma_bytes_sent_total{service_name=\"mme\","
            "dest_service=\"caf\xc3\xa9\"} 18446744073709551615\n"
            "# EOF\n");
}

TEST(Exposition, OfNothingIsValid) {
  EXPECT_EQ(ToText({}, TextFormat::kPrometheus), "");
  EXPECT_EQ(ToText({}, TextFormat::kOpenMetrics), "# EOF\n");
}

TEST(Exposition, NegotiatesWhatTheReaderLikesBest) {
  const struct {
    const char* accept;
    TextFormat format;
  } kCases[] = {
      {"", TextFormat::kPrometheus},
      {"*/*", TextFormat::kPrometheus},
      {"text/plain", TextFormat::kPrometheus},
      {"application/openmetrics-text", TextFormat::kOpenMetrics},
      {"Application/OpenMetrics-Text; version=1.0.0; charset=utf-8",
       TextFormat::kOpenMetrics},
      // Prometheus 2.42, and before 2.5.
      {"application/openmetrics-text;version=1.0.0,application/"
       "openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,"
       "*/*;q=0.1",
       TextFormat::kOpenMetrics},
      {"text/plain;version=0.0.4;q=1,*/*;q=0.1", TextFormat::kPrometheus},
      // A version that this library does not write.
      {"application/openmetrics-text; version=0.0.1", TextFormat::kPrometheus},
      {"text/plain, application/openmetrics-text;q=0.5",
       TextFormat::kPrometheus},
      {"application/openmetrics-text;q=0", TextFormat::kPrometheus},
      {"application/openmetrics-text;q=nan", TextFormat::kPrometheus},
      {"application/openmetrics-text;q=7", TextFormat::kPrometheus},
      {"application/openmetrics-text;q=;;;,,,", TextFormat::kPrometheus},
      {",;,;=\xff", TextFormat::kPrometheus},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(NegotiateFormat(c.accept), c.format) << c.accept;
  }
}

TEST(Exposition, GzipIsForWhoAsksForIt) {
  const struct {
    const char* accept_encoding;
    bool gzip;
  } kHeaders[] = {
      {"gzip", true},
      {"GZIP;q=0.5", true},
      {"deflate, gzip;q=1.0, *;q=0.5", true},
      {"x-gzip", true},
      {"*", true},
      {"br, *;q=0.1", true},
      {"gzip;q=0.5, identity;q=0.5", true},
      {"", false},
      {"identity", false},
      {"deflate, br", false},
      {"gzip;q=0", false},
      {"gzip;q=0, *", false},
      {"*;q=0", false},
      {"gzip;q=0.5, identity", false},
      {"gzip;q=nonsense", false},
  };
  for (const auto& one : kHeaders) {
    EXPECT_EQ(AcceptsGzip(one.accept_encoding), one.gzip)
        << one.accept_encoding;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
