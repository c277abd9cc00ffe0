// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public header.
#include "netmeter/magma.h"

void IncrementCounter(const char* name, double value, size_t labels);

size_t Publish(std::shared_ptr<const netmeter::Meter> meter) {
  netmeter::DeltaVisitor visitor(meter);
  const absl::Status visited = visitor.Visit([](const netmeter::Delta& delta) {
    IncrementCounter(delta.name, static_cast<double>(delta.value),
                     delta.labels.size());
    return absl::OkStatus();
  });
  if (!visited.ok()) return 0;
  return netmeter::MagmaMetrics(meter).Serialize().size();
}
