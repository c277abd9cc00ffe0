// SPDX-License-Identifier: BSD-3-Clause
// Samples as Prometheus families: the one place with the names of metrics and
// of labels. See netmeter/prometheus.h for the list.
//
// Threads: any.

#ifndef NETMETER_LIB_PROMETHEUS_FAMILIES_H_
#define NETMETER_LIB_PROMETHEUS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// netmeter_up, alone.
std::vector<prometheus::MetricFamily> FamiliesOfError();

std::vector<prometheus::MetricFamily> FamiliesOfService(
    const std::vector<Sample>& samples);

std::vector<prometheus::MetricFamily> FamiliesOfHost(
    const std::vector<Sample>& samples, const Health& health);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PROMETHEUS_FAMILIES_H_
