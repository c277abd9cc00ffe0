// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <memory>
#include <string>
#include <utility>

#include "netmeter/meter.h"
#include "netmeter/prometheus.h"

namespace netmeter {
namespace {

std::shared_ptr<const Meter> MeterWithoutLoader() {
  MeterOptions options;
  options.pin_dir = testing::TempDir() + "/no-meter-here";
  options.wait_for_loader = true;
  auto meter = Meter::Open(options);
  EXPECT_TRUE(meter.ok()) << meter.status();
  return std::move(*meter);
}

void ExpectDown(const PrometheusCollectable& collectable) {
  const auto families = collectable.Collect();
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].name, "netmeter_up");
  ASSERT_EQ(families[0].metric.size(), 1u);
  EXPECT_EQ(families[0].metric[0].gauge.value, 0.0);
}

TEST(PrometheusCollectable, IsDownWhileNoMeterIsLoaded) {
  PublishOptions options;
  options.scope = Scope::kHost;
  ExpectDown(PrometheusCollectable(MeterWithoutLoader(), options));
  options.scope = Scope::kService;
  ExpectDown(PrometheusCollectable(MeterWithoutLoader(), options));
}

TEST(PrometheusCollectable, IsDownWithoutAMeter) {
  PublishOptions options;
  options.scope = Scope::kHost;
  ExpectDown(PrometheusCollectable(nullptr, options));
}

}  // namespace
}  // namespace netmeter
