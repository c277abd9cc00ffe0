// SPDX-License-Identifier: BSD-3-Clause
// Families as a serialized magma.orc8r.MetricsContainer.
//
// Threads: any.

#ifndef NETMETER_LIB_MAGMA_CONTAINER_H_
#define NETMETER_LIB_MAGMA_CONTAINER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/metrics/families.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// timestamp_ms 0: without.
std::string ToContainer(const std::vector<Family>& families,
                        int64_t timestamp_ms);

// How many bytes of ToContainer()'s result are metrics: all but the families'
// own names, texts, types and lengths.
size_t MetricBytes(const std::vector<Family>& families, int64_t timestamp_ms);

// See MagmaOptions::max_bytes.
constexpr size_t kLeastMaxBytes = 128 * 1024;

// What of max_bytes is for everything but named series: families' heads,
// health, the 20 reserved series, and the at most 30 that others are folded
// into.
constexpr size_t kReservedBytes = 64 * 1024;

// Renames the samples from the first one on that does not fit, so that the
// result's container is not larger than max_bytes; pending ones where there is
// no room beside all others. The most that FamiliesOfHost() can ever make of a
// sample is the measure, for any scope, so that the same ones fit next time.
// Takes out what of registered services did fit if leave_registered_out.
std::vector<Sample> Fold(std::vector<Sample> samples, size_t max_bytes,
                         bool leave_registered_out);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_MAGMA_CONTAINER_H_
