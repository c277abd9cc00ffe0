// SPDX-License-Identifier: BSD-3-Clause
// Families as a serialized magma.orc8r.MetricsContainer.
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

// timestamp_ms 0: without.
std::string ToContainer(const std::vector<Family>& families,
                        int64_t timestamp_ms);

// How many bytes of ToContainer()'s result are metrics. The others are the names,
// texts, types and lengths of the families.
size_t MetricBytes(const std::vector<Family>& families, int64_t timestamp_ms);

// See MagmaOptions::max_bytes.
constexpr size_t kLeastMaxBytes = 128 * 1024;

// The part of max_bytes that is for everything but named series: the heads of the
// families, the meter's health, the 20 reserved series, and the series that others
// are folded into, of which there are at most 30.
constexpr size_t kReservedBytes = 64 * 1024;

// Renames the first sample that does not fit and all after it, so that the
// container of the result is not larger than max_bytes. Pending samples come last:
// they have the room that all others leave. A sample is measured by the most that
// options.families can ever make of it, for any scope, so that the same samples
// fit next time. In Scope::kUnregistered, takes out the samples of registered
// services that fit, and sets *omitted_services to the number of these services.
// container.cc explains why it has to be so.
std::vector<Sample> Fold(std::vector<Sample> samples, size_t max_bytes,
                         const PublishOptions& options,
                         size_t* omitted_services);

// What MagmaMetrics::Serialize() does: a reading, and a container.
//
// Threads: any.

// As MagmaMetrics::Serialize() of this meter, which may be null, by way of the
// buffer, whose memory is used again.
std::string SerializeMetrics(const Meter* meter, const MagmaOptions& options,
                             SampleBuffer* buffer) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_CONTAINER_H_
