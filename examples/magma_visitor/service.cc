// SPDX-License-Identifier: BSD-3-Clause
// A C++14 service of Magma whose GetMetrics must not change. It has increment_counter(),
// as MetricsHelpers.hpp declares it, over a registry without locks, like
// MetricsSingleton. So all increments run in one thread: the event loop of main(), which
// here reads standard input line by line.
//
//   service [PIN-DIR]
//
// For each line read, it visits the meter and prints its counters.

#include <cstdarg>
#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/magma.h"
#include "netmeter/meter.h"

static_assert(__cplusplus == 201402L, "this is for C++14");

namespace {

// Takes the place of MetricsSingleton.
std::map<std::string, double>& Counters() {
  static auto* const counters = new std::map<std::string, double>;
  return *counters;
}

void increment_counter(const char* name, double increment, size_t n_labels,
                       ...) {
  std::string key = name;
  va_list labels;
  va_start(labels, n_labels);
  for (size_t i = 0; i < n_labels; ++i) {
    const char* const label = va_arg(labels, const char*);
    const char* const value = va_arg(labels, const char*);
    key += std::string(" ") + label + "=" + value;
  }
  va_end(labels);
  Counters()[key] += increment;
}

// Returns OK if it has added the delta to the host's counter.
absl::Status Take(const netmeter::Delta& delta) {
  if (delta.labels.size() != 2) return absl::OkStatus();  // magma_bytes_* only
  increment_counter(delta.name, static_cast<double>(delta.value), 2,
                    delta.labels[0].name, delta.labels[0].value.c_str(),
                    delta.labels[1].name, delta.labels[1].value.c_str());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  netmeter::MeterOptions options;
  options.service = "mme";
  options.wait_for_loader = true;
  if (argc > 1) options.pin_dir = argv[1];
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    std::cerr << meter.status() << "\n";
    return 1;
  }
  // Made in the thread of the event loop, the only one that may visit.
  netmeter::DeltaVisitor visitor(std::move(*meter));
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::Status visited = visitor.Visit(Take);
    // The next visit delivers the rest.
    if (!visited.ok()) std::cerr << visited << "\n";
    for (const auto& counter : Counters()) {
      std::cout << counter.first << " " << std::fixed << counter.second << "\n";
    }
    std::cout << "end" << std::endl;
  }
}
