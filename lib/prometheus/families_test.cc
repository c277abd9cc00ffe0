// SPDX-License-Identifier: BSD-3-Clause
#include "lib/prometheus/families.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <string>
#include <vector>

#include "lib/metrics/exposition.h"

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
  return FamiliesOfHost({sample}, Health());
}

TEST(ToPrometheus, SerializesToTheSameTextAsOurOwnWriter) {
  EXPECT_EQ(
      prometheus::TextSerializer().Serialize(ToPrometheus(HostFamilies())),
      ToText(HostFamilies(), TextFormat::kPrometheus));
}

TEST(ToPrometheus, LargeValuesAreExactUpTo53Bits) {
  std::vector<Family> families = HostFamilies();
  families[1].metrics[0].value = (uint64_t{1} << 53) - 1;
  EXPECT_EQ(ToPrometheus(families)[1].metric[0].counter.value,
            9007199254740991.0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
