// SPDX-License-Identifier: BSD-3-Clause
// Families in the types of prometheus-cpp.
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_PROMETHEUS_FAMILIES_H_
#define NETMETER_LIB_PUBLISH_PROMETHEUS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "lib/publish/families.h"

namespace netmeter {
namespace internal {

std::vector<prometheus::MetricFamily> ToPrometheus(
    std::vector<Family> families);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_PROMETHEUS_FAMILIES_H_
