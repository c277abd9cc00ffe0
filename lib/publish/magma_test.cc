// SPDX-License-Identifier: BSD-3-Clause
#include "netmeter/magma.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "service303.pb.h"

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

void ExpectDown(const MagmaMetrics& metrics, bool timestamps) {
  magma::orc8r::MetricsContainer container;
  ASSERT_TRUE(container.ParseFromString(metrics.Serialize()));
  ASSERT_EQ(container.family_size(), 1);
  EXPECT_EQ(container.family(0).name(), "netmeter_up");
  ASSERT_EQ(container.family(0).metric_size(), 1);
  const auto& metric = container.family(0).metric(0);
  EXPECT_TRUE(metric.gauge().has_value());
  EXPECT_EQ(metric.gauge().value(), 0);
  EXPECT_EQ(metric.has_timestamp_ms(), timestamps);
}

TEST(MagmaMetrics, AreDownWhileNoMeterIsLoaded) {
  MagmaOptions options;
  ExpectDown(MagmaMetrics(MeterWithoutLoader(), options), true);
  options.timestamps = false;
  ExpectDown(MagmaMetrics(MeterWithoutLoader(), options), false);
  options.scope = Scope::kHost;
  ExpectDown(MagmaMetrics(MeterWithoutLoader(), options), false);
}

TEST(MagmaMetrics, AreDownWithoutAMeter) {
  ExpectDown(MagmaMetrics(nullptr), true);
}

TEST(DeltaVisitor, SaysWhyThereIsNothingToVisit) {
  const auto never = [](const Delta&) {
    ADD_FAILURE() << "called back";
    return absl::OkStatus();
  };
  EXPECT_EQ(DeltaVisitor(nullptr).Visit(never).code(),
            absl::StatusCode::kFailedPrecondition);
  MagmaOptions options;
  options.scope = Scope::kHost;
  EXPECT_EQ(DeltaVisitor(MeterWithoutLoader(), options).Visit(never).code(),
            absl::StatusCode::kUnavailable);
  // Nothing is registered.
  EXPECT_EQ(DeltaVisitor(MeterWithoutLoader()).Visit(never).code(),
            absl::StatusCode::kUnavailable);
}

// The bug: the callback ran in a thread of its own, beside a registry that has no locks.
TEST(DeltaVisitor, CallsBackInTheThreadThatMadeItOnly) {
  MagmaOptions options;
  options.scope = Scope::kHost;
  DeltaVisitor visitor(MeterWithoutLoader(), options);
  absl::Status status;
  std::thread([&] {
    status = visitor.Visit([](const Delta&) { return absl::OkStatus(); });
  }).join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("thread"), std::string::npos) << status;
}

// Each byte that magmad sends costs money.
TEST(MagmaOptions, AreWhatKernsnoopdPublished) {
  const MagmaOptions options;
  for (const char* name :
       {"netmeter_up", "magma_bytes_sent_total", "linux_bytes_sent_total"}) {
    EXPECT_TRUE(options.families.Contains(name)) << name;
  }
  for (const char* name : {"netmeter_wire_bytes_total", "netmeter_series",
                           "netmeter_tcp_rtt_seconds"}) {
    EXPECT_FALSE(options.families.Contains(name)) << name;
  }
}

}  // namespace
}  // namespace netmeter
