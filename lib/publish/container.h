// SPDX-License-Identifier: BSD-3-Clause
// Serializes families as a magma.orc8r.MetricsContainer.
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_CONTAINER_H_
#define NETMETER_LIB_PUBLISH_CONTAINER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/publish/families.h"
#include "lib/publish/sample_buffer.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

// timestamp_ms 0: no timestamps.
std::string ToContainer(const std::vector<Family>& families,
                        int64_t timestamp_ms);

// The number of bytes of ToContainer()'s result that are metrics. The other bytes are the
// names, texts, types and lengths of the families.
size_t MetricBytes(const std::vector<Family>& families, int64_t timestamp_ms);

// See MagmaOptions::max_bytes.
constexpr size_t kLeastMaxBytes = 128 * 1024;

// The families of uplinks are left out if their metrics take more: some 150 interfaces
// with names of 16 bytes.
constexpr size_t kUplinkBytes = 32 * 1024;

// The part of max_bytes for everything except named series: the heads of the families,
// the meter's health, the 20 reserved series, the at most 30 series that others are
// folded into, and the families of uplinks.
constexpr size_t kReservedBytes = 64 * 1024 + kUplinkBytes;

// Renames the first sample that does not fit and all later ones, so that the container of
// the result is not larger than max_bytes. Pending samples come last: they get the room
// that all others leave. The size of a sample is the most that options.families can ever
// make of it, for any scope, so that the same samples fit next time. In
// Scope::kUnregistered, removes the samples of registered services that fit, and sets
// *omitted_services to the number of these services. container.cc explains the reasons.
std::vector<Sample> Fold(std::vector<Sample> samples, size_t max_bytes,
                         const PublishOptions& options,
                         size_t* omitted_services);

// The work of MagmaMetrics::Serialize(): reads, and makes a container.
//
// Threads: any.

// Does what MagmaMetrics::Serialize() does for this meter, which may be null. Reuses the
// memory of the buffer.
std::string SerializeMetrics(const Meter* meter, const MagmaOptions& options,
                             SampleBuffer* buffer) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_CONTAINER_H_
