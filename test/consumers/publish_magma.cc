// SPDX-License-Identifier: BSD-3-Clause
// publish_magma PIN-DIR: takes the series of the service `consumer` into counters of
// its own, and into a MetricsContainer of its own protobuf, as Magma's services have
// it, and prints both. Without a meter it ends with 2.
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>

#include "netmeter/magma.h"
#include "service303.pb.h"

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  netmeter::MeterOptions options;
  options.pin_dir = argv[1];
  options.wait_for_loader = true;
  auto opened = netmeter::Meter::Open(options);
  if (!opened.ok()) return 1;
  const std::shared_ptr<const netmeter::Meter> meter = std::move(*opened);
  netmeter::MagmaOptions publish;
  publish.scope = netmeter::Scope::kHost;

  magma::orc8r::MetricsContainer container;
  if (!container.MergeFromString(
          netmeter::MagmaMetrics(meter, publish).Serialize())) {
    return 1;
  }
  for (const auto& family : container.family()) {
    if (family.name() == "netmeter_up") continue;
    printf("%s: %d metrics\n", family.name().c_str(), family.metric_size());
  }

  netmeter::DeltaVisitor visitor(meter, publish);
  const absl::Status visited = visitor.Visit([](const netmeter::Delta& delta) {
    printf("%s", delta.name);
    for (const netmeter::Delta::Label& label : delta.labels) {
      printf(" %s=%s", label.name, label.value.c_str());
    }
    printf(" +%llu\n", static_cast<unsigned long long>(delta.value));
    return absl::OkStatus();
  });
  if (visited.ok()) return 0;
  printf("%s\n", std::string(visited.message()).c_str());
  return 2;
}
