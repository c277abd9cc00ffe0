// SPDX-License-Identifier: BSD-3-Clause
// Tests delivery to Magma on real maps, which the test makes itself. Needs root and
// bpf(2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "lib/publish/magma_fixture.h"
#include "lib/testing/failing_new.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/magma.h"
#include "service303.pb.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

// The bug: the visitor called an empty function, and std::bad_function_call ended the
// program.
TEST_F(MagmaRootTest, AVisitWithoutACallbackIsAnError) {
  DeltaVisitor visitor(meter_, host_options_);
  EXPECT_TRUE(absl::IsInvalidArgument(visitor.Visit(DeltaVisitor::Callback())));
}

TEST_F(MagmaRootTest, FirstVisitDeliversTheTotalsSoFarAndTheNextTheRest) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 100u);
  EXPECT_EQ(host.Sent("state", "d1"), 200u);
  ExpectEqual(host);

  host.TakeCalls();
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.TakeCalls(), 0) << "nothing changed";

  fake_->cell(NM_SLOT_FIRST, 1)->tx_payload_bytes += 11;
  AddSeries(fake_.get(), 4);
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 111u);
  EXPECT_EQ(host.Sent("mme", "d4"), 500u);
  ExpectEqual(host);
}

// One failure at every possible call, of either type, while traffic goes on.
TEST_F(MagmaRootTest, AFailedCallbackLosesAndRepeatsNothing) {
  for (int failure = 1; failure < 60; ++failure) {
    for (const bool throws : {false, true}) {
      DeltaVisitor visitor(meter_, host_options_);
      Host host;
      throws ? host.ThrowAt(failure) : host.FailAt(failure);
      bool failed = false;
      for (int visit = 0; visit < 4; ++visit) {
        try {
          const absl::Status status = visitor.Visit(host.callback());
          if (!status.ok()) {
            EXPECT_EQ(status, absl::AbortedError("not now"));
            failed = true;
          }
        } catch (const std::runtime_error&) {
          failed = true;
        }
        if (visit < 3)
          fake_->cell(NM_SLOT_FIRST + visit, 1)->tx_payload_bytes += 7;
      }
      ASSERT_TRUE(visitor.Visit(host.callback()).ok());
      ExpectEqual(host);
      if (failure < 20) {
        EXPECT_TRUE(failed) << failure;
      }
    }
  }
}

// A new counter of value 0 is delivered, too. The bug: it was forgotten if the callback
// threw at its first delivery.
TEST_F(MagmaRootTest, AZeroIsDeliveredOnceWhateverFails) {
  fake_->cell(NM_SLOT_FIRST, 0)->tx_payload_bytes = 0;
  Host all;
  ASSERT_TRUE(DeltaVisitor(meter_, host_options_).Visit(all.callback()).ok());
  for (size_t at = 1; at <= all.counters().size(); ++at) {
    DeltaVisitor visitor(meter_, host_options_);
    Host host;
    host.ThrowAt(static_cast<int>(at));
    EXPECT_THROW((void)visitor.Visit(host.callback()), std::runtime_error);
    ASSERT_TRUE(visitor.Visit(host.callback()).ok());
    EXPECT_EQ(host.counters(), all.counters()) << at;
  }
}

// The bug: both threw std::bad_alloc, which ended the host.
TEST_F(MagmaRootTest, WithoutMemoryNothingIsThrownAndNothingLost) {
  const MagmaMetrics metrics(meter_, host_options_);
  magma::orc8r::MetricsContainer container;
  ASSERT_TRUE(container.ParseFromString(metrics.Serialize()));
  const int families = container.family_size();
  for (const bool and_after : {false, true}) {
    int n = 0;
    for (bool failed = true; failed; ++n) {
      std::string bytes;
      {
        FailNew fail(n, and_after);
        bytes = metrics.Serialize();
        failed = fail.Failed();
      }
      ASSERT_TRUE(container.ParseFromString(bytes));
      if (!failed) {
        EXPECT_EQ(container.family_size(), families);
      } else if (and_after) {
        EXPECT_EQ(container.family_size(), 0);
      } else {
        ASSERT_EQ(container.family_size(), 1) << n;
        EXPECT_EQ(container.family(0).name(), "netmeter_up");
        EXPECT_EQ(container.family(0).metric(0).gauge().value(), 0);
      }
    }
    EXPECT_GT(n, 50);

    n = 0;
    for (bool failed = true; failed; ++n) {
      DeltaVisitor visitor(meter_, host_options_);
      Host host;
      const DeltaVisitor::Callback callback = host.callback();
      {
        FailNew fail(n, and_after);
        try {
          const absl::Status status = visitor.Visit(callback);
          failed = fail.Failed();
          if (failed) {
            EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
          }
        } catch (const std::bad_alloc&) {
          failed = true;  // one of the host's own allocations failed
        }
      }
      ASSERT_TRUE(visitor.Visit(callback).ok());
      ExpectEqual(host);
    }
    EXPECT_GT(n, 50);
  }
}

TEST_F(MagmaRootTest, AnUpgradeOfTheMapsChangesNothing) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  // New maps with the old totals and some new bytes; the old maps are closed.
  std::unique_ptr<FakeMeter> upgraded = MakeMeter(1000, 4);
  upgraded->cell(NM_SLOT_FIRST, 1)->tx_payload_bytes += 5;
  ASSERT_EQ(upgraded->Pin(pin_dir_), "");
  fake_->info()->closed = 1;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 105u);
  ExpectEqual(host);
}

// The bug: all totals were delivered a second time, under the new names.
TEST_F(MagmaRootTest, ALoadThatRenamesDestinationsDeliversNothingTwice) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  const auto of_mme = [&host] {
    uint64_t sum = 0;
    for (const auto& entry : host.counters()) {
      if (entry.first.find("magma_bytes_sent_total service_name=mme ") == 0) {
        sum += entry.second;
      }
    }
    return sum;
  };
  EXPECT_EQ(of_mme(), 400u);
  // d0 and d2 become one, as with unknown_destinations: other.
  fake_->SetName(5, NM_KIND_DESTINATION, "other");
  fake_->SetName(7, NM_KIND_DESTINATION, "other");
  fake_->cell(NM_SLOT_FIRST, 1)->tx_payload_bytes += 11;
  fake_->info()->loaded_ns = 77;
  fake_->stats()->moves += 2;
  host.FailAt(1);  // a failed delivery is due again, also then
  EXPECT_FALSE(visitor.Visit(host.callback()).ok());
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(of_mme(), 411u);
  EXPECT_EQ(host.Sent("mme", "other"), 11u);
  EXPECT_EQ(host.Sent("state", "d1"), 200u);
  // The names are split again.
  fake_->SetName(5, NM_KIND_DESTINATION, "e0");
  fake_->SetName(7, NM_KIND_DESTINATION, "e2");
  fake_->cell(NM_SLOT_FIRST + 2, 1)->tx_payload_bytes += 22;
  fake_->info()->loaded_ns = 78;
  fake_->stats()->moves += 2;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(of_mme(), 433u);
  // A load that renames nothing.
  fake_->info()->loaded_ns = 79;
  host.TakeCalls();
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.TakeCalls(), 0);
}

// The bug: all delivered amounts were delivered again. With the first packet through an
// uplink each series gets the label, and was taken for a new one.
TEST_F(MagmaRootTest, ALoadThatBringsUplinksDeliversNothingTwice) {
  host_options_.families = *FamilySet::Parse("netmeter_wire_bytes_total");
  nm_cell* const cell = fake_->cell(NM_SLOT_FIRST, 0);
  cell->tx_bytes = 1000;
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  const auto sum = [&host] {
    uint64_t bytes = 0;
    for (const auto& entry : host.counters()) {
      if (entry.first.find("netmeter_wire_bytes_total") == 0) {
        bytes += entry.second;
      }
    }
    return bytes;
  };
  EXPECT_EQ(sum(), 1000u);
  fake_->SetName(10, NM_KIND_UPLINK, "satellite");
  fake_->info()->uplinks[0] = 10;
  fake_->info()->loaded_ns = 77;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(sum(), 1000u);
  // Packets use it some visits later; then another load changes a name, too.
  AddSeries(fake_.get(), 4);
  fake_->SetName(9, NM_KIND_DESTINATION, "d0");
  nm_cell* const by_satellite = fake_->cell(NM_SLOT_FIRST + 4, 0);
  by_satellite->path = NM_PATH_DIRECT | 1 << NM_UPLINK_SHIFT;
  by_satellite->tx_bytes = 50;
  cell->tx_bytes += 3;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(sum(), 1053u);
  fake_->info()->loaded_ns = 78;
  fake_->SetName(5, NM_KIND_DESTINATION, "e0");
  fake_->stats()->moves += 2;
  by_satellite->tx_bytes += 7;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(sum(), 1060u);
}

TEST_F(MagmaRootTest, AfterAnUnloadTheNewTotalsComeOnTop) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  // More than before in one series, less in another, equal in a third.
  std::unique_ptr<FakeMeter> other = MakeMeter(2000, 3);
  other->cell(NM_SLOT_FIRST, 0)->tx_payload_bytes = 1000;
  other->cell(NM_SLOT_FIRST + 1, 0)->tx_payload_bytes = 1;
  ASSERT_EQ(other->Pin(pin_dir_), "");
  fake_->info()->closed = 1;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 1100u);
  EXPECT_EQ(host.Sent("state", "d1"), 201u);
  EXPECT_EQ(host.Sent("mme", "d2"), 600u);
  EXPECT_EQ(host.Sent("state", "d3"), 400u);
}

TEST_F(MagmaRootTest, WhileThereIsNoMeterNothingIsVisitedAndNothingForgotten) {
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  host.TakeCalls();
  fake_->info()->closed = 1;
  EXPECT_EQ(visitor.Visit(host.callback()).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(host.TakeCalls(), 0);
  std::unique_ptr<FakeMeter> same = MakeMeter(1000, 4);
  ASSERT_EQ(same->Pin(pin_dir_), "");
  sleep(1);  // the interval of the meter's checks
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.TakeCalls(), 0);
  ExpectEqual(host);
}

// The bug: the exporter's magma_bytes_sent_total decreased when a service registered
// between two transports, and DeltaVisitor delivered nothing until it had passed the old
// value.
TEST_F(MagmaRootTest, AServiceThatRegistersIsGoneWithAllItsSeries) {
  fake_->cell(NM_SLOT_FIRST + 2, 0)->destination =
      fake_->cell(NM_SLOT_FIRST, 0)->destination;
  fake_->cell(NM_SLOT_FIRST + 2, 0)->transport = NM_TRANSPORT_UDP;
  MagmaOptions options;
  options.scope = Scope::kUnregistered;
  const MagmaMetrics metrics(meter_, options);
  magma::orc8r::MetricsContainer container;
  ASSERT_TRUE(container.ParseFromString(metrics.Serialize()));
  EXPECT_THAT(container.DebugString(), HasSubstr("\"mme\""));
  fake_->cell(NM_SLOT_FIRST, 0)->flags = NM_FLAG_REGISTERED;
  ASSERT_TRUE(container.ParseFromString(metrics.Serialize()));
  EXPECT_EQ(container.DebugString().find("\"mme\""), std::string::npos);
  EXPECT_THAT(container.DebugString(), HasSubstr("\"state\""));

  DeltaVisitor visitor(meter_, options);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), ~uint64_t{0});
  EXPECT_EQ(host.Sent("state", "d1"), 200u);
}

TEST_F(MagmaRootTest, AFullTableStaysBelowTheLimit) {
  for (uint32_t i = 4; i < 4096; ++i) AddSeries(fake_.get(), i);
  for (uint32_t i = 0; i < 4096; ++i) {
    std::string name = "d" + std::to_string(i);
    name.resize(64, 'x');
    fake_->SetName(5 + i, NM_KIND_DESTINATION, name);
  }
  magma::orc8r::MetricsContainer container;
  const std::string bytes = MagmaMetrics(meter_, host_options_).Serialize();
  EXPECT_LE(bytes.size(), host_options_.max_bytes);
  ASSERT_TRUE(container.ParseFromString(bytes));
  double sum = 0;
  for (const auto& family : container.family()) {
    if (family.name() != "magma_bytes_sent_total") continue;
    for (const auto& metric : family.metric()) sum += metric.counter().value();
  }
  EXPECT_EQ(sum, 100.0 * 4096 * 4097 / 2);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
