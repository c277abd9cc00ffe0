// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "lib/prometheus/families.h"
#include "netmeter/prometheus.h"

namespace netmeter {

PrometheusCollectable::PrometheusCollectable(std::shared_ptr<const Meter> meter,
                                             Scope scope)
    : meter_(std::move(meter)), scope_(scope) {}

PrometheusCollectable::~PrometheusCollectable() = default;

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  if (meter_ == nullptr) return internal::FamiliesOfError();
  if (scope_ == Scope::kService) {
    const auto samples = meter_->ReadService();
    if (!samples.ok()) return internal::FamiliesOfError();
    return internal::FamiliesOfService(*samples);
  }
  const auto samples = meter_->ReadHost();
  if (!samples.ok()) return internal::FamiliesOfError();
  const auto health = meter_->ReadHealth();
  if (!health.ok()) return internal::FamiliesOfError();
  return internal::FamiliesOfHost(*samples, *health);
}

}  // namespace netmeter
