// SPDX-License-Identifier: BSD-3-Clause
// What MagmaMetrics::Serialize() does: a reading, and a container.
//
// Threads: any.

#ifndef NETMETER_LIB_MAGMA_SERIALIZE_H_
#define NETMETER_LIB_MAGMA_SERIALIZE_H_

#include <string>

#include "lib/metrics/sample_buffer.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// As MagmaMetrics::Serialize() of this meter, which may be null, by way of the
// buffer, whose memory is used again.
std::string SerializeMetrics(const Meter* meter, const MagmaOptions& options,
                             SampleBuffer* buffer) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_MAGMA_SERIALIZE_H_
