// SPDX-License-Identifier: BSD-3-Clause
// A meter whose tables are full, by default those of the default size: 4,096 series of
// services and destinations with names of a usual length, 16 of each service. Pinned in
// a BPF file system that only this process and its children see.
//
// Threads: one.

#ifndef NETMETER_TEST_BENCHMARK_FULL_METER_H_
#define NETMETER_TEST_BENCHMARK_FULL_METER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "lib/testing/fake_meter.h"

namespace netmeter {
namespace internal {

constexpr size_t kFullMeterSeries = 4096;
constexpr size_t kFullMeterOwnSeries = 16;
constexpr char kFullMeterService[] = "subscriberdb";

class FullMeter {
 public:
  // Mounts a BPF file system at `directory`, which is empty. Dies if that fails.
  explicit FullMeter(const std::string& directory,
                     size_t series = kFullMeterSeries);
  ~FullMeter();
  FullMeter(const FullMeter&) = delete;
  FullMeter& operator=(const FullMeter&) = delete;

  const std::string& pin_dir() const { return pin_dir_; }

 private:
  const std::string pin_dir_;
  std::unique_ptr<FakeMeter> meter_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_FULL_METER_H_
