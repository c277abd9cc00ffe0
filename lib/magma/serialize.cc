// SPDX-License-Identifier: BSD-3-Clause
#include "lib/magma/serialize.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "lib/magma/container.h"
#include "lib/metrics/families.h"

namespace netmeter {
namespace internal {
namespace {

std::vector<Family> CollectFolded(const Meter* meter,
                                  const MagmaOptions& options,
                                  SampleBuffer* buffer) {
  if (meter == nullptr) return FamiliesOfError();
  const SampleBuffer::Lease lease(buffer);
  std::vector<Sample>* const samples = lease.get();
  if (!ReadScope(*meter, options.scope, samples).ok()) return FamiliesOfError();
  const auto health = meter->ReadHealth();
  if (!health.ok()) return FamiliesOfError();
  size_t omitted_services = 0;
  *samples =
      Fold(std::move(*samples), options.max_bytes, options, &omitted_services);
  return FamiliesOf(*samples, *health, options, omitted_services);
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string SerializeMetrics(const Meter* meter, const MagmaOptions& options,
                             SampleBuffer* buffer) noexcept {
  const int64_t time = options.timestamps ? NowMs() : 0;
  try {
    return ToContainer(CollectFolded(meter, options, buffer), time);
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return ToContainer(FamiliesOfError(), time);
  } catch (const std::exception&) {
  }
  return std::string();
}

}  // namespace internal
}  // namespace netmeter
