// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
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
  try {
    return internal::ToPrometheus(
        internal::Collect(meter_.get(), ToFamilyScope(scope_)));
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return internal::ToPrometheus(internal::FamiliesOfError());
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace netmeter
