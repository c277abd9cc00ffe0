// SPDX-License-Identifier: BSD-3-Clause
// Tests the C API on real maps, which the test fills itself. Needs root and bpf(2), but
// neither loader nor programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/magma_c.h"

namespace netmeter {
namespace internal {
namespace {

class CapiRootTest : public BpffsTest {
 protected:
  void SetUp() override {
    BpffsTest::SetUp();
    ASSERT_EQ(fake_.error(), "");
    fake_.SetName(3, NM_KIND_SERVICE, "mme");
    fake_.SetName(4, NM_KIND_DESTINATION, "streamer");
    nm_cell* const cell = fake_.cell(NM_SLOT_FIRST, 0);
    cell->service = 3;
    cell->destination = 4;
    cell->kind = NM_KIND_SERVICE;
    cell->transport = NM_TRANSPORT_TCP;
    cell->path = NM_PATH_PROXY | NM_UPLINK_OTHER << NM_UPLINK_SHIFT;
    cell->flags = NM_FLAG_REGISTERED;
    cell->tx_bytes = 1;
    cell->rx_bytes = 2;
    cell->tx_packets = 3;
    cell->rx_packets = 4;
    cell->tx_payload_bytes = 5;
    cell->rx_payload_bytes = 6;
    cell->tx_retransmit_bytes = 7;
    nm_tcp* const tcp = fake_.tcp(NM_SLOT_FIRST);
    tcp->opened = 8;
    tcp->accepted = 9;
    tcp->closed = 10;
    tcp->failed = 11;
    tcp->rtt_us = 12;
    tcp->resets_sent = 14;
    tcp->resets_received = 15;
    tcp->timeouts = 16;
    tcp->retransmitted_segments = 17;
    for (int i = 0; i < NM_RTT_BUCKETS; ++i) tcp->rtt_buckets[i] = 20 + i;
    AddBinary(1, "curl");
    strcpy(fake_.info()->version, "1.2.3");
    strcpy(fake_.info()->kernel, "6.1.0");
    fake_.stats()->names_full = 13;
    ASSERT_EQ(fake_.Pin(pin_dir_), "");
    netmeter_options options = NETMETER_OPTIONS_INIT;

    options.pin_dir = pin_dir_.c_str();
    netmeter_error error;
    ASSERT_EQ(netmeter_open(&options, &meter_, &error), NETMETER_OK)
        << error.message;
    samples_ = netmeter_samples_new();
  }
  void TearDown() override {
    netmeter_samples_free(samples_);
    netmeter_close(meter_);
    BpffsTest::TearDown();
  }

  // Adds a series after `number` others.
  void AddBinary(uint32_t number, const std::string& name) {
    fake_.SetName(4 + number, NM_KIND_BINARY, name);
    nm_cell* const cell = fake_.cell(NM_SLOT_FIRST + number, 0);
    cell->kind = NM_KIND_BINARY;
    cell->transport = NM_TRANSPORT_UDP;
    cell->tx_bytes = 100;
    cell->service = static_cast<nm_u16>(4 + number);
    fake_.stats()->slots_allocated = number + 1;
    fake_.stats()->series_used = number + 1;
  }

  FakeMeter fake_{FakeMeter::Options()};
  netmeter_meter* meter_ = nullptr;
  netmeter_samples* samples_ = nullptr;
};

TEST_F(CapiRootTest, ASampleHasEveryCounter) {
  ASSERT_EQ(netmeter_read_service(meter_, "mme", 3, samples_, nullptr),
            NETMETER_OK);
  ASSERT_EQ(netmeter_samples_count(samples_), 1u);
  EXPECT_EQ(netmeter_samples_get(samples_, 1), nullptr);
  const netmeter_sample& sample = *netmeter_samples_get(samples_, 0);
  EXPECT_EQ(sample.size, sizeof(sample));
  EXPECT_STREQ(sample.name, "mme");
  EXPECT_EQ(sample.name_length, 3u);
  EXPECT_STREQ(sample.destination, "streamer");
  EXPECT_EQ(sample.destination_length, 8u);
  EXPECT_EQ(sample.kind, NETMETER_KIND_SERVICE);
  EXPECT_EQ(sample.transport, NETMETER_TRANSPORT_TCP);
  EXPECT_EQ(sample.path, NETMETER_PATH_PROXY);
  EXPECT_STREQ(sample.uplink, "other");
  EXPECT_EQ(sample.uplink_length, 5u);
  EXPECT_EQ(sample.registered, 1);
  EXPECT_EQ(sample.tcp_known, 1);
  EXPECT_EQ(sample.tx_bytes, 1u);
  EXPECT_EQ(sample.rx_bytes, 2u);
  EXPECT_EQ(sample.tx_packets, 3u);
  EXPECT_EQ(sample.rx_packets, 4u);
  EXPECT_EQ(sample.tx_payload_bytes, 5u);
  EXPECT_EQ(sample.rx_payload_bytes, 6u);
  EXPECT_EQ(sample.tx_retransmit_bytes, 7u);
  EXPECT_EQ(sample.tcp_opened, 8u);
  EXPECT_EQ(sample.tcp_accepted, 9u);
  EXPECT_EQ(sample.tcp_closed, 10u);
  EXPECT_EQ(sample.tcp_failed, 11u);
  EXPECT_EQ(sample.tcp_rtt_us, 12u);
  EXPECT_EQ(sample.tcp_resets_sent, 14u);
  EXPECT_EQ(sample.tcp_resets_received, 15u);
  EXPECT_EQ(sample.tcp_timeouts, 16u);
  EXPECT_EQ(sample.tcp_retransmitted_segments, 17u);
  for (uint64_t i = 0; i < NETMETER_RTT_BUCKETS; ++i) {
    EXPECT_EQ(sample.tcp_rtt_buckets[i], 20 + i);
  }
}

TEST_F(CapiRootTest, HostHasAllAndAnUnknownServiceNothing) {
  ASSERT_EQ(netmeter_read_host(meter_, samples_, nullptr), NETMETER_OK);
  ASSERT_EQ(netmeter_samples_count(samples_), 2u);
  EXPECT_EQ(netmeter_samples_get(samples_, 1)->tcp_known, 0);
  ASSERT_EQ(netmeter_read_service(meter_, "", 0, samples_, nullptr),
            NETMETER_OK);
  EXPECT_EQ(netmeter_samples_count(samples_), 0u);
}

TEST_F(CapiRootTest, HealthHasTextAndNumbers) {
  struct {
    netmeter_health health;
    uint64_t more;  // a member of a newer caller
  } larger;
  memset(&larger, 0xff, sizeof(larger));
  larger.health.size = sizeof(larger);
  ASSERT_EQ(netmeter_read_health(meter_, &larger.health, nullptr), NETMETER_OK);
  EXPECT_STREQ(larger.health.version, "1.2.3");
  EXPECT_STREQ(larger.health.kernel, "6.1.0");
  EXPECT_EQ(larger.health.series, 2u);
  EXPECT_EQ(larger.health.max_series, 64u);
  ASSERT_EQ(larger.health.misattributed_count, 8u);
  EXPECT_STREQ(larger.health.misattributed[4].unit, "names");
  EXPECT_STREQ(larger.health.misattributed[4].reason, "full");
  EXPECT_EQ(larger.health.misattributed[4].count, 13u);
  EXPECT_EQ(larger.health.misattributed[7].count, 0u);
  EXPECT_EQ(larger.more, 0u);
  netmeter_health smaller;
  smaller.size = sizeof(smaller) - 8;
  EXPECT_EQ(netmeter_read_health(meter_, &smaller, nullptr),
            NETMETER_INVALID_ARGUMENT);
}

// The bug: the sum was in microseconds, and the bounds in seconds.
TEST_F(CapiRootTest, AHistogramIsInSeconds) {
  netmeter_metrics* const metrics = netmeter_metrics_new();
  netmeter_publish_options options = NETMETER_PUBLISH_OPTIONS_INIT;
  options.scope = NETMETER_SCOPE_HOST;
  ASSERT_EQ(netmeter_parse_families("netmeter_tcp_rtt_seconds", 24,
                                    &options.families, nullptr),
            NETMETER_OK);
  ASSERT_EQ(netmeter_read_metrics(meter_, &options, metrics, nullptr),
            NETMETER_OK);
  ASSERT_EQ(netmeter_metrics_count(metrics), 2u);  // and netmeter_up
  const netmeter_metric& up = *netmeter_metrics_get(metrics, 0);
  EXPECT_EQ(up.value, 1u);
  EXPECT_EQ(up.sum, 0);
  EXPECT_EQ(up.bucket_count, 0u);
  const netmeter_metric& rtt = *netmeter_metrics_get(metrics, 1);
  EXPECT_EQ(rtt.type, NETMETER_TYPE_HISTOGRAM);
  EXPECT_EQ(rtt.sum, 12e-6);
  EXPECT_EQ(rtt.value, 0u);
  ASSERT_EQ(rtt.bucket_count, 10u);
  EXPECT_EQ(rtt.bucket_bounds[8], 1.5);
  EXPECT_EQ(rtt.bucket_counts[8], 28u);
  netmeter_metrics_free(metrics);
}

// The bug: a code that gRPC does not have became 2.
TEST_F(CapiRootTest, AVisitEndsWithTheCodeOfItsCallback) {
  netmeter_visitor* visitor = nullptr;
  netmeter_publish_options options = NETMETER_PUBLISH_OPTIONS_INIT;
  options.scope = NETMETER_SCOPE_HOST;
  ASSERT_EQ(netmeter_visitor_new(meter_, &options, &visitor, nullptr),
            NETMETER_OK);
  for (int code : {14, 100, -1, 0}) {
    netmeter_error error = {};
    EXPECT_EQ(netmeter_visit(
                  visitor,
                  [](const netmeter_metric*, void* context) {
                    return *static_cast<int*>(context);
                  },
                  &code, &error),
              code);
    EXPECT_EQ(error.code, code);
  }
  netmeter_visitor_free(visitor);
}

// The bug: a system call of a callback in a cancelled thread ended the process.
TEST_F(CapiRootTest, AThreadIsCancelledAfterItsVisitAndNotInACallback) {
  const auto visit = [](void* meter) -> void* {
    netmeter_visitor* visitor = nullptr;
    netmeter_publish_options options = NETMETER_PUBLISH_OPTIONS_INIT;
    options.scope = NETMETER_SCOPE_HOST;
    EXPECT_EQ(netmeter_visitor_new(static_cast<netmeter_meter*>(meter),
                                   &options, &visitor, nullptr),
              NETMETER_OK);
    pthread_cancel(pthread_self());
    EXPECT_EQ(netmeter_visit(
                  visitor,
                  [](const netmeter_metric*, void*) {
                    usleep(1);
                    return static_cast<int>(NETMETER_OK);
                  },
                  nullptr, nullptr),
              NETMETER_OK);
    netmeter_visitor_free(visitor);
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, visit, meter_), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
