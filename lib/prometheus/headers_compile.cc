// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public header.
#include "netmeter/prometheus.h"

size_t Families(std::shared_ptr<const netmeter::Meter> meter) {
  const netmeter::PrometheusCollectable collectable(
      meter, netmeter::PrometheusCollectable::Scope::kService);
  return collectable.Collect().size();
}
