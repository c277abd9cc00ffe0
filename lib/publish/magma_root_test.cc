// SPDX-License-Identifier: BSD-3-Clause
// Tests delivery to Magma on real maps, which the test makes itself, and on those of the
// real loader, with traffic. Needs root and bpf(2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/publish/magma_fixture.h"
#include "lib/testing/bpffs_fixture.h"
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

TEST_F(MagmaRootTest, CountersThatAreZeroAppear) {
  fake_->cell(NM_SLOT_FIRST, 0)->tx_payload_bytes = 0;
  DeltaVisitor visitor(meter_, host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), 0u);
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

// The real loader, on a cgroup of the test's own. "mme" sends datagrams to the proxy port
// of the loopback device, where they are counted and dropped.
class LoadedRootTest : public testing::Test {
 protected:
  static constexpr char kKey[] =
      "magma_bytes_sent_total service_name=mme dest_service=streamer";

  void SetUp() override {
    const auto root = FindCgroupRoot();
    ASSERT_TRUE(root.ok()) << root.status();
    cgroup_ = *root + "/netmeter-magma-test-" + std::to_string(getpid());
    ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0);
    config_.cgroup = cgroup_;
    config_.pin_dir = "/run/netmeter-magma-test-" + std::to_string(getpid());
    config_.group = "";
    config_.max_series = 64;
    shared_ = static_cast<Shared*>(mmap(nullptr, sizeof(Shared),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared_, MAP_FAILED);
    MustLoad();
  }
  void TearDown() override {
    StopSending();
    MustUnload();
    EXPECT_EQ(rmdir(cgroup_.c_str()), 0);
    munmap(shared_, sizeof(Shared));
  }

  void MustLoad() {
    const auto result = Load(config_);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  void MustUnload() {
    bool was_loaded;
    const absl::Status status = Unload(config_.pin_dir, &was_loaded);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::shared_ptr<const Meter> OpenMeter() const {
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    options.wait_for_loader = true;
    auto meter = Meter::Open(options);
    EXPECT_TRUE(meter.ok()) << meter.status();
    return std::move(*meter);
  }

  // Sends from a process in the cgroup, until StopSending(). 0: no limit.
  void StartSending(uint64_t datagrams) {
    shared_->stop = 0;
    sender_ = fork();
    if (sender_ != 0) return;
    alarm(120);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!SetSocketService(fd.get(), "mme").ok() ||
        !TagSocket(fd.get(), "streamer").ok()) {
      _exit(1);
    }
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(8443);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string data(100, 'x');
    for (uint64_t i = 0; i != datagrams || datagrams == 0; ++i) {
      if (__atomic_load_n(&shared_->stop, __ATOMIC_RELAXED)) break;
      if (sendto(fd.get(), data.data(), data.size(), 0,
                 reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 100) {
        _exit(2);
      }
      __atomic_fetch_add(&shared_->sent, 100, __ATOMIC_RELAXED);
      if (datagrams == 0) usleep(200);
    }
    _exit(0);
  }
  void WaitForSender() {
    if (sender_ < 0) return;
    int status = 0;
    EXPECT_EQ(waitpid(sender_, &status, 0), sender_);
    EXPECT_EQ(status, 0);
    sender_ = -1;
  }
  void StopSending() {
    __atomic_store_n(&shared_->stop, 1, __ATOMIC_RELAXED);
    WaitForSender();
  }
  void Send(uint64_t datagrams) {
    StartSending(datagrams);
    WaitForSender();
  }
  uint64_t sent() const {
    return __atomic_load_n(&shared_->sent, __ATOMIC_RELAXED);
  }

  static uint64_t Of(const Host& host) {
    const auto found = host.counters().find(kKey);
    return found == host.counters().end() ? 0 : found->second;
  }

  struct Shared {
    int stop;
    uint64_t sent;  // bytes
  };

  std::string cgroup_;
  Config config_;
  Shared* shared_ = nullptr;
  pid_t sender_ = -1;
  MagmaOptions host_options_ = [] {
    MagmaOptions options;
    options.scope = Scope::kHost;
    return options;
  }();
};
constexpr char LoadedRootTest::kKey[];

TEST_F(LoadedRootTest, EachVisitorBeginsWithTheTotalsSoFar) {
  Send(7);
  DeltaVisitor visitor(OpenMeter(), host_options_);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(Of(host), 700u);
  host.TakeCalls();
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.TakeCalls(), 0);
  Send(3);
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(Of(host), 1000u);
  // The service and its meter restart, and so do its counters.
  DeltaVisitor restarted(OpenMeter(), host_options_);
  Host other;
  ASSERT_TRUE(restarted.Visit(other.callback()).ok());
  EXPECT_EQ(Of(other), 1000u);
  EXPECT_EQ(other.counters(), host.counters());
}

TEST_F(LoadedRootTest, NothingIsLostOrRepeatedWhileTheLoaderUpgradesAndGrows) {
  Send(1);
  const auto meter = OpenMeter();
  DeltaVisitor visitor(meter, host_options_);
  Host host;
  StartSending(0);
  int failures = 0, visits = 0;
  uint64_t last = 0;
  const auto visit = [&](int times) {
    for (int i = 0; i < times; ++i, ++visits) {
      // Some calls fail, and some throw.
      host.FailAt(visits % 3 == 1 ? 1 + visits % 5 : -1);
      if (visits % 3 == 2) host.ThrowAt(1 + visits % 5);
      try {
        failures += !visitor.Visit(host.callback()).ok();
      } catch (const std::runtime_error&) {
        ++failures;
      }
      host.ThrowAt(-1);
      EXPECT_GE(Of(host), last);
      last = Of(host);
      usleep(2000);
    }
  };
  for (int i = 0; i < 6; ++i) {
    std::thread loader([&] {
      // First other programs, then other tables.
      config_.aliases["tool"] = "service-" + std::to_string(i);
      MustLoad();
      config_.max_series += 64;
      MustLoad();
    });
    visit(100);
    loader.join();
  }
  StopSending();
  host.FailAt(-1);
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(Of(host), sent());
  EXPECT_GT(failures, 0);
  printf("%llu bytes, %d visits, %d of them failed, 12 loads: exact\n",
         static_cast<unsigned long long>(sent()), visits, failures);
}

TEST_F(LoadedRootTest, AfterAnUnloadTotalsBeginAgainOnTopOfWhatWasDelivered) {
  DeltaVisitor visitor(OpenMeter(), host_options_);
  Host host;
  Send(10);
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(Of(host), 1000u);
  MustUnload();
  host.TakeCalls();
  EXPECT_EQ(visitor.Visit(host.callback()).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(host.TakeCalls(), 0);
  MustLoad();
  Send(4);
  absl::Status status;
  for (int i = 0; i < 300; ++i) {  // the meter checks once a second
    status = visitor.Visit(host.callback());
    if (status.ok()) break;
    usleep(10000);
  }
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Of(host), 1400u);
  // Sends the same number of bytes as before the unload. None is taken for old.
  Send(6);
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(Of(host), 2000u);
}

TEST_F(MagmaRootTest, UnregisteredIsWhatNoServicePublishes) {
  fake_->cell(NM_SLOT_FIRST, 0)->flags = NM_FLAG_REGISTERED;
  MagmaOptions options;
  options.scope = Scope::kUnregistered;
  magma::orc8r::MetricsContainer container;
  const std::string bytes = MagmaMetrics(meter_, options).Serialize();
  ASSERT_TRUE(container.ParseFromString(bytes));
  EXPECT_THAT(container.DebugString(), HasSubstr("\"d1\""));
  EXPECT_EQ(container.DebugString().find("\"d0\""), std::string::npos);

  DeltaVisitor visitor(meter_, options);
  Host host;
  ASSERT_TRUE(visitor.Visit(host.callback()).ok());
  EXPECT_EQ(host.Sent("mme", "d0"), ~uint64_t{0});
  EXPECT_EQ(host.Sent("state", "d1"), 200u);
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

// The bug: "overflow" fell from 2350000 to 2344000 when 50 connections had named their
// destination, and absorbed 81 series when others had their first round trip.
TEST_F(MagmaRootTest, AFullTableIsFoldedInOnePlaceWhateverHappensInIt) {
  const auto name_of = [](char kind, uint32_t i) {
    std::string name = kind + std::to_string(i);
    name.resize(NM_NAME_BYTES, 'x');
    return name;
  };
  fake_->SetName(3, NM_KIND_SERVICE, name_of('s', 0));
  fake_->SetName(4, NM_KIND_SERVICE, name_of('s', 1));
  for (uint32_t i = 0; i < 4096; ++i) {
    AddSeries(fake_.get(), i);
    fake_->SetName(5 + i, NM_KIND_DESTINATION, name_of('d', i));
    if (i >= 50) continue;
    fake_->cell(NM_SLOT_FIRST + i, 0)->kind = NM_KIND_PENDING;
    fake_->cell(NM_SLOT_FIRST + i, 0)->tx_payload_bytes = 0;
  }
  const MagmaMetrics metrics(meter_, host_options_);
  // The bytes sent, by labels.
  const auto sent = [&] {
    const std::string bytes = metrics.Serialize();
    EXPECT_LE(bytes.size(), host_options_.max_bytes);
    magma::orc8r::MetricsContainer container;
    EXPECT_TRUE(container.ParseFromString(bytes));
    std::map<std::string, double> values;
    for (const auto& family : container.family()) {
      if (family.name() != "magma_bytes_sent_total") continue;
      for (const auto& metric : family.metric()) {
        values[metric.label(0).value() + " " + metric.label(1).value()] =
            metric.counter().value();
      }
    }
    return values;
  };
  const std::map<std::string, double> before = sent();
  EXPECT_EQ(before.count("overflow "), 1u);
  EXPECT_GT(before.size(), 1000u);
  for (const nm_u64 packets : {1, 0}) {
    for (uint32_t i = 0; i < 50; ++i) {
      fake_->cell(NM_SLOT_FIRST + i, 0)->tx_bytes = 99 * packets;
      fake_->cell(NM_SLOT_FIRST + i, 0)->tx_packets = packets;
    }
    EXPECT_TRUE(sent() == before) << packets;
  }
  for (uint32_t i = 50; i < 4096; i += 1 + i % 2) {
    fake_->tcp(NM_SLOT_FIRST + i)->rtt_us = 5;
    fake_->tcp(NM_SLOT_FIRST + i)->rtt_buckets[0] = nm_u64{1} << 60;
  }
  EXPECT_TRUE(sent() == before);
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
