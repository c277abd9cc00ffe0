// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/prometheus_families.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "lib/publish/exposition.h"

namespace netmeter {
namespace internal {
namespace {

std::vector<Family> HostFamilies() {
  Sample sample;
  sample.kind = Kind::kService;
  sample.name = "a\\b\"c\n\xff";
  sample.destination = "streamer";
  sample.transport = Transport::kTcp;
  sample.tx_payload_bytes = 600;
  sample.rx_payload_bytes = 1200;
  sample.tcp.known = true;
  sample.tcp.opened = 3;
  sample.tcp.rtt_us = 1234567;
  sample.tcp.rtt_buckets = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  PublishOptions options;
  options.scope = Scope::kHost;
  options.families = *FamilySet::Parse("all");
  Health health;
  health.config_hash = "0123456789abcdef";
  return FamiliesOf({sample}, health, options);
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(ToPrometheus, SerializesToTheSameTextAsOurOwnWriter) {
  // prometheus-cpp writes the count and the sum of a histogram before the buckets.
  EXPECT_EQ(SortedLines(prometheus::TextSerializer().Serialize(
                ToPrometheus(HostFamilies()))),
            SortedLines(ToText(HostFamilies(), TextFormat::kPrometheus)));
}

TEST(ToPrometheus, LargeValuesAreExactUpTo53Bits) {
  std::vector<Family> families = HostFamilies();
  const size_t i = static_cast<size_t>(FamilyId::kMagmaSent) - 1;
  ASSERT_STREQ(families[i].name, "magma_bytes_sent_total");
  families[i].metrics[0].value = (uint64_t{1} << 53) - 1;
  EXPECT_EQ(ToPrometheus(families)[i].metric[0].counter.value,
            9007199254740991.0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
