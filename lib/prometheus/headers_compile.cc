// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public header.
#include "netmeter/prometheus.h"

size_t Families(std::shared_ptr<const netmeter::Meter> meter) {
  netmeter::PublishOptions options;
  options.scope = netmeter::Scope::kHost;
  const auto families = netmeter::FamilySet::Parse("bytes");
  if (families.ok()) options.families = *families;
  const netmeter::PrometheusCollectable collectable(meter, options);
  return collectable.Collect().size();
}
