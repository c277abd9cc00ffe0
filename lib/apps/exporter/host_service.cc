// SPDX-License-Identifier: BSD-3-Clause
// A service that publishes the host, for uplinks_root_test.py: by prometheus-cpp, by
// MagmaMetrics and by a DeltaVisitor. For each line on standard input it prints the
// counters of each, and an empty line.
//
//   host_service PIN-DIR

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "netmeter/prometheus.h"
#include "service303.pb.h"

namespace {

template <typename Labels>
std::string Key(const std::string& by, const std::string& name,
                const Labels& labels) {
  std::string key = absl::StrCat(by, " ", name);
  for (const auto& label : labels) absl::StrAppend(&key, " ", label.value);
  return key;
}

std::string Key(const io::prometheus::client::MetricFamily& family,
                const io::prometheus::client::Metric& metric) {
  std::string key = absl::StrCat("magma ", family.name());
  for (const auto& label : metric.label()) {
    absl::StrAppend(&key, " ", label.value());
  }
  return key;
}

void Print(const std::string& key, double value) {
  std::cout << key << " " << static_cast<uint64_t>(value) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  netmeter::MeterOptions options;
  options.pin_dir = argc == 2 ? argv[1] : "";
  auto opened = netmeter::Meter::Open(options);
  if (!opened.ok()) {
    std::cerr << opened.status() << "\n";
    return 1;
  }
  const std::shared_ptr<const netmeter::Meter> meter = *std::move(opened);
  netmeter::MagmaOptions publish;
  publish.scope = netmeter::Scope::kHost;
  publish.families = netmeter::FamilySet();
  const netmeter::PrometheusCollectable collectable(meter, publish);
  const netmeter::MagmaMetrics magma(meter, publish);
  netmeter::DeltaVisitor visitor(meter, publish);
  std::map<std::string, uint64_t> visited;
  std::string line;
  while (std::getline(std::cin, line)) {
    for (const auto& family : collectable.Collect()) {
      for (const auto& metric : family.metric) {
        Print(Key("prometheus", family.name, metric.label),
              metric.counter.value);
      }
    }
    magma::orc8r::MetricsContainer container;
    if (!container.ParseFromString(magma.Serialize())) return 1;
    for (const auto& family : container.family()) {
      for (const auto& metric : family.metric()) {
        Print(Key(family, metric), metric.counter().value());
      }
    }
    const absl::Status status =
        visitor.Visit([&](const netmeter::Delta& delta) {
          visited[Key("visitor", delta.name, delta.labels)] += delta.value;
          return absl::OkStatus();
        });
    if (!status.ok()) std::cout << status << "\n";
    for (const auto& one : visited) Print(one.first, one.second);
    std::cout << std::endl;
  }
}
