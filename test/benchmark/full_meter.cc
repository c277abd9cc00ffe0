// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/full_meter.h"

#include <sys/mount.h>
#include <unistd.h>

#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
namespace {

void OrDie(const std::string& error) {
  if (!error.empty()) Die(error);
}

}  // namespace

FullMeter::FullMeter(const std::string& directory, size_t series)
    : pin_dir_(directory) {
  const auto count = static_cast<uint32_t>(series);
  OrDie(MountBpffs(pin_dir_));
  FakeMeter::Options options;
  options.cells_per_series =
      static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)) + 1;
  options.max_series = count + NM_SLOT_FIRST;
  options.max_names = 8192;
  meter_ = std::make_unique<FakeMeter>(options);
  OrDie(meter_->error());
  // Services of 16 destinations each.
  const uint32_t services =
      (count + kFullMeterOwnSeries - 1) / kFullMeterOwnSeries;
  constexpr uint32_t kFirst = NM_NAME_FIRST;
  for (uint32_t i = 0; i < services; ++i) {
    meter_->SetName(
        kFirst + i, NM_KIND_SERVICE,
        i == 0 ? kFullMeterService : "service-" + std::to_string(i));
  }
  for (uint32_t i = 0; i < kFullMeterOwnSeries; ++i) {
    meter_->SetName(kFirst + services + i, NM_KIND_DESTINATION,
                    "destination-" + std::to_string(i));
  }
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t cpu = 0; cpu < options.cells_per_series; ++cpu) {
      nm_cell* cell = meter_->cell(NM_SLOT_FIRST + i, cpu);
      cell->destination =
          static_cast<nm_u16>(kFirst + services + i % kFullMeterOwnSeries);
      cell->kind = NM_KIND_SERVICE;
      cell->transport = NM_TRANSPORT_TCP;
      cell->tx_bytes = cell->rx_bytes = 1000000ull * (i + 1);
      cell->tx_packets = cell->rx_packets = i + 1;
      cell->tx_payload_bytes = cell->rx_payload_bytes = 900000ull * (i + 1);
      // Last: it makes the cell one of a series.
      cell->service = static_cast<nm_u16>(kFirst + i / kFullMeterOwnSeries);
    }
  }
  meter_->stats()->slots_allocated = meter_->stats()->heads = count;
  meter_->stats()->series_used = count;
  OrDie(meter_->Pin(pin_dir_));
}

FullMeter::~FullMeter() { umount2(pin_dir_.c_str(), MNT_DETACH); }

}  // namespace internal
}  // namespace netmeter
