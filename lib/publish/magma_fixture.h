// SPDX-License-Identifier: BSD-3-Clause
// A host whose counters can only be incremented, and a meter of known content on real
// maps. Needs root and bpf(2).

#ifndef NETMETER_LIB_PUBLISH_MAGMA_FIXTURE_H_
#define NETMETER_LIB_PUBLISH_MAGMA_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/magma.h"

namespace netmeter {
namespace internal {

// A host with an increment_counter() of its own.
class Host {
 public:
  absl::Status Take(const Delta& delta) {
    ++calls_;
    if (calls_ == fail_at_) return absl::AbortedError("not now");
    if (calls_ == throw_at_) throw std::runtime_error("never");
    std::string key = delta.name;
    for (const Delta::Label& label : delta.labels) {
      key += std::string(" ") + label.name + "=" + label.value;
    }
    counters_[key] += delta.value;
    return absl::OkStatus();
  }
  DeltaVisitor::Callback callback() {
    return [this](const Delta& delta) { return Take(delta); };
  }
  void FailAt(int call) { fail_at_ = call, calls_ = 0; }
  void ThrowAt(int call) { throw_at_ = call, calls_ = 0; }
  int TakeCalls() { return std::exchange(calls_, 0); }

  uint64_t Sent(const std::string& service, const std::string& destination) {
    const auto found =
        counters_.find("magma_bytes_sent_total service_name=" + service +
                       " dest_service=" + destination);
    return found == counters_.end() ? ~uint64_t{0} : found->second;
  }
  const std::map<std::string, uint64_t>& counters() const { return counters_; }

 private:
  int calls_ = 0;
  int fail_at_ = -1;
  int throw_at_ = -1;
  std::map<std::string, uint64_t> counters_;
};

class MagmaRootTest : public BpffsTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(BpffsTest::SetUp());
    fake_ = MakeMeter(1000, 4);
    ASSERT_EQ(fake_->Pin(pin_dir_), "");
    MeterOptions options;
    options.pin_dir = pin_dir_;
    options.wait_for_loader = true;
    auto meter = Meter::Open(options);
    ASSERT_TRUE(meter.ok()) << meter.status();
    meter_ = std::move(*meter);
    host_options_.scope = Scope::kHost;
    host_options_.families = FamilySet();
  }

  // Alternates between the services mme and state, with `series` destinations.
  static std::unique_ptr<FakeMeter> MakeMeter(uint64_t created_ns,
                                              uint32_t series) {
    FakeMeter::Options options;
    options.max_series = 4096 + NM_SLOT_FIRST;
    options.max_names = 4200;
    auto meter = std::make_unique<FakeMeter>(options);
    EXPECT_EQ(meter->error(), "");
    meter->SetName(3, NM_KIND_SERVICE, "mme");
    meter->SetName(4, NM_KIND_SERVICE, "state");
    meter->info()->created_ns = created_ns;
    for (uint32_t i = 0; i < series; ++i) AddSeries(meter.get(), i);
    return meter;
  }

  static void AddSeries(FakeMeter* meter, uint32_t i) {
    meter->SetName(5 + i, NM_KIND_DESTINATION, "d" + std::to_string(i));
    nm_cell* cell = meter->cell(NM_SLOT_FIRST + i, 0);
    cell->destination = static_cast<nm_u16>(5 + i);
    cell->kind = NM_KIND_SERVICE;
    cell->transport = NM_TRANSPORT_TCP;
    cell->tx_payload_bytes = 100 * (i + 1);
    cell->service = static_cast<nm_u16>(3 + i % 2);
    meter->stats()->slots_allocated = i + 1;
    meter->stats()->series_used = i + 1;
  }

  // The host's counters must equal the meter's.
  void ExpectEqual(const Host& host) const {
    const auto samples = meter_->ReadHost();
    ASSERT_TRUE(samples.ok()) << samples.status();
    std::map<std::string, uint64_t> expected;
    for (const Sample& s : *samples) {
      expected["magma_bytes_sent_total service_name=" + s.name +
               " dest_service=" + s.destination] += s.tx_payload_bytes;
    }
    std::map<std::string, uint64_t> sent;
    for (const auto& entry : host.counters()) {
      if (entry.first.find("magma_bytes_sent_total") == 0) sent.insert(entry);
    }
    EXPECT_EQ(sent, expected);
  }

  std::unique_ptr<FakeMeter> fake_;
  std::shared_ptr<const Meter> meter_;
  MagmaOptions host_options_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_MAGMA_FIXTURE_H_
