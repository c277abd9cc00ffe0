// SPDX-License-Identifier: BSD-3-Clause
// Tests DeltaVisitor with series that are evicted, on maps that the test makes itself.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "lib/publish/magma_fixture.h"
#include "netmeter/magma.h"

namespace netmeter {
namespace internal {
namespace {

// The first series of four, a service's, becomes the series of kind evicted.
void EvictFirstService(FakeMeter* meter) {
  nm_cell* const first = meter->cell(NM_SLOT_FIRST, 0);
  nm_cell* const evicted = meter->cell(NM_SLOT_FIRST + 4, 0);
  *evicted = *first;
  evicted->kind = NM_KIND_EVICTED;
  evicted->service = evicted->destination = NM_KIND_SERVICE;
  memset(first, 0, sizeof(*first));
  meter->stats()->slots_allocated = 5;
}

// The bug: the series was taken as delivered until it had passed its old value.
TEST_F(MagmaRootTest, ASeriesThatWasEvictedAndIsBackBeginsAtZero) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  // The series is gone for a visit, and back with more than before.
  const nm_cell before = *fake_->cell(NM_SLOT_FIRST, 0);
  memset(fake_->cell(NM_SLOT_FIRST, 0), 0, sizeof(nm_cell));
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  *fake_->cell(NM_SLOT_FIRST, 0) = before;
  fake_->cell(NM_SLOT_FIRST, 0)->tx_payload_bytes = 150;
  // The series is gone and back between two visits.
  fake_->cell(NM_SLOT_FIRST + 1, 0)->tx_payload_bytes = 30;
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 250u);
  EXPECT_EQ(host.Sent("state", "d1"), 230u);
}

// A counter is the sum of several series. The bug: one of them was evicted, the counter
// decreased, and its remaining total was delivered again.
TEST_F(MagmaRootTest, AnEvictedPartOfACounterIsNotDeliveredAgain) {
  // A program with two destinations, which are one counter of kernsnoopd's family.
  fake_->SetName(20, NM_KIND_BINARY, "curl");
  for (uint32_t i = 4; i < 6; ++i) {
    AddSeries(fake_.get(), i);
    fake_->cell(NM_SLOT_FIRST + i, 0)->service = 20;
    fake_->cell(NM_SLOT_FIRST + i, 0)->kind = NM_KIND_BINARY;
  }
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  std::map<std::string, uint64_t> expected = host.counters();
  const std::string key = "linux_bytes_sent_total binary_name=curl";
  ASSERT_EQ(expected.count(key), 1u);
  EXPECT_EQ(expected.at(key), 500u + 600u);

  nm_cell evicted = *fake_->cell(NM_SLOT_FIRST + 4, 0);
  evicted.kind = NM_KIND_EVICTED;
  evicted.destination = NM_KIND_BINARY;
  memset(fake_->cell(NM_SLOT_FIRST + 4, 0), 0, sizeof(nm_cell));
  fake_->stats()->slots_allocated = 7;
  *fake_->cell(NM_SLOT_FIRST + 6, 0) = evicted;
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  for (const auto& counter : host.counters()) {
    EXPECT_EQ(counter.second, expected[counter.first]) << counter.first;
  }
  fake_->cell(NM_SLOT_FIRST + 5, 0)->tx_payload_bytes += 7;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.counters().at(key), 1107u);
}

// One load may rename and evict. The bug: all missing totals were taken as renamed. An
// equal amount of the service's other traffic was held back, and the evicted bytes were
// delivered again.
TEST_F(MagmaRootTest, ALoadThatEvictsHoldsNothingBackAndRepeatsNothing) {
  for (uint32_t i = 0; i < 4; ++i) {
    fake_->cell(NM_SLOT_FIRST + i, 0)->tx_bytes = 1000 * (i + 1);
  }
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());

  // d0 of mme is evicted, d2 of mme has more, and d1 of state has another name.
  EvictFirstService(fake_.get());
  fake_->cell(NM_SLOT_FIRST + 2, 0)->tx_payload_bytes += 50;
  fake_->cell(NM_SLOT_FIRST + 2, 0)->tx_bytes += 60;
  fake_->SetName(6, NM_KIND_DESTINATION, "e1");
  fake_->info()->loaded_ns = 77;
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 100u);
  EXPECT_EQ(host.Sent("mme", "d2"), 350u);
  EXPECT_EQ(host.Sent("state", "d1") + host.Sent("state", "e1"), 200u);
  uint64_t wire = 0;
  for (const auto& counter : host.counters()) {
    if (counter.first.find("netmeter_evicted_bytes_total") == 0) {
      EXPECT_EQ(counter.second, 0u) << counter.first;
    }
    if (counter.first.find("netmeter_wire_bytes_total") == 0) {
      wire += counter.second;
    }
  }
  EXPECT_EQ(wire, 10060u);
}

// The bug: a series was not delivered completely, because the host was away. When it was
// evicted meanwhile, all of it was delivered again.
TEST_F(MagmaRootTest, WhatWasDeliveredOfASeriesIsNotDeliveredAgainAsEvicted) {
  fake_->cell(NM_SLOT_FIRST, 0)->tx_bytes = 1000;
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  fake_->cell(NM_SLOT_FIRST, 0)->tx_bytes += 7;
  host.FailAt(1);
  ASSERT_FALSE(visitor.Visit(host.callback()).ok());

  EvictFirstService(fake_.get());
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  uint64_t wire = 0, again = 0;
  for (const auto& counter : host.counters()) {
    if (counter.first.find("netmeter_wire_bytes_total") == 0)
      wire += counter.second;
    if (counter.first.find("netmeter_evicted_bytes_total") == 0)
      again += counter.second;
  }
  EXPECT_EQ(wire, 1000u);
  EXPECT_EQ(again, 7u);
}

// The bug: a service that registered, and so publishes its own data from then on, was
// taken for evicted. An equal amount of the traffic evicted before was never delivered.
TEST_F(MagmaRootTest, AServiceThatRegistersIsNotEvicted) {
  fake_->cell(NM_SLOT_FIRST, 0)->tx_bytes = 1000;
  nm_cell* const evicted = fake_->cell(NM_SLOT_FIRST + 4, 0);
  evicted->service = evicted->destination = NM_KIND_SERVICE;
  evicted->kind = NM_KIND_EVICTED;
  evicted->transport = NM_TRANSPORT_TCP;
  evicted->tx_bytes = 5000;
  fake_->stats()->slots_allocated = 5;
  host_options_.scope = Scope::kUnregistered;
  DeltaVisitor visitor(meter_, host_options_);
  bool takes_evicted = false;
  uint64_t delivered = 0;
  const auto take = [&](const Delta& delta) {
    if (delta.name != std::string("netmeter_evicted_bytes_total"))
      return absl::OkStatus();
    if (!takes_evicted) return absl::AbortedError("not now");
    delivered += delta.value;
    return absl::OkStatus();
  };
  EXPECT_FALSE(visitor.Visit(take).ok());
  fake_->cell(NM_SLOT_FIRST, 0)->flags = NM_FLAG_REGISTERED;
  takes_evicted = true;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(visitor.Visit(take).ok());
  EXPECT_EQ(delivered, 5000u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
