// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "lib/metrics/families.h"
#include "lib/prometheus/families.h"
#include "netmeter/prometheus.h"

namespace netmeter {
namespace {

internal::FamilyScope ToFamilyScope(PrometheusCollectable::Scope scope) {
  switch (scope) {
    case PrometheusCollectable::Scope::kService:
      return internal::FamilyScope::kService;
    case PrometheusCollectable::Scope::kHost:
      return internal::FamilyScope::kHost;
    case PrometheusCollectable::Scope::kUnregistered:
      return internal::FamilyScope::kUnregistered;
  }
  return internal::FamilyScope::kService;
}

}  // namespace

PrometheusCollectable::PrometheusCollectable(std::shared_ptr<const Meter> meter,
                                             Scope scope)
    : meter_(std::move(meter)), scope_(scope) {}

PrometheusCollectable::~PrometheusCollectable() = default;

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  return internal::ToPrometheus(
      internal::Collect(meter_.get(), ToFamilyScope(scope_)));
}

}  // namespace netmeter
