// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "lib/metrics/families.h"
#include "lib/prometheus/families.h"
#include "netmeter/prometheus.h"

namespace netmeter {

PrometheusCollectable::PrometheusCollectable(std::shared_ptr<const Meter> meter,
                                             Scope scope)
    : meter_(std::move(meter)), scope_(scope) {}

PrometheusCollectable::~PrometheusCollectable() = default;

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  return internal::ToPrometheus(internal::Collect(
      meter_.get(), scope_ == Scope::kService ? internal::FamilyScope::kService
                                              : internal::FamilyScope::kHost));
}

}  // namespace netmeter
