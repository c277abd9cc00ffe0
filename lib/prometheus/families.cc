// SPDX-License-Identifier: BSD-3-Clause
#include "lib/prometheus/families.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <string>
#include <utility>

namespace netmeter {
namespace internal {

std::vector<prometheus::MetricFamily> ToPrometheus(
    std::vector<Family> families) {
  std::vector<prometheus::MetricFamily> result;
  result.reserve(families.size());
  for (Family& family : families) {
    result.emplace_back();
    result.back().name = family.name;
    result.back().help = family.help;
    const bool gauge = family.type == Family::Type::kGauge;
    result.back().type =
        gauge ? prometheus::MetricType::Gauge : prometheus::MetricType::Counter;
    result.back().metric.reserve(family.metrics.size());
    for (Metric& metric : family.metrics) {
      prometheus::ClientMetric out;
      for (Label& label : metric.labels) {
        out.label.push_back({label.name, std::move(label.value)});
      }
      const double value = static_cast<double>(metric.value);
      (gauge ? out.gauge.value : out.counter.value) = value;
      result.back().metric.push_back(std::move(out));
    }
  }
  return result;
}

}  // namespace internal
}  // namespace netmeter
