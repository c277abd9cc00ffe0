// SPDX-License-Identifier: BSD-3-Clause
#include "lib/prometheus/families.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <string>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

prometheus::MetricType ToPrometheus(Family::Type type) {
  switch (type) {
    case Family::Type::kCounter:
      return prometheus::MetricType::Counter;
    case Family::Type::kGauge:
      return prometheus::MetricType::Gauge;
    case Family::Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

std::vector<prometheus::MetricFamily> ToPrometheus(
    std::vector<Family> families) {
  std::vector<prometheus::MetricFamily> result;
  result.reserve(families.size());
  for (Family& family : families) {
    result.emplace_back();
    result.back().name = family.name;
    result.back().help = family.help;
    result.back().type = ToPrometheus(family.type);
    result.back().metric.reserve(family.metrics.size());
    for (Metric& metric : family.metrics) {
      prometheus::ClientMetric out;
      for (Label& label : metric.labels) {
        out.label.push_back({label.name, std::move(label.value)});
      }
      const double value = static_cast<double>(metric.value);
      switch (family.type) {
        case Family::Type::kCounter:
          out.counter.value = value;
          break;
        case Family::Type::kGauge:
          out.gauge.value = value;
          break;
        case Family::Type::kHistogram:
          out.histogram.sample_sum = value / 1e6;
          for (size_t i = 0; i < metric.buckets.size(); ++i) {
            out.histogram.sample_count += metric.buckets[i];
            out.histogram.bucket.push_back(
                {out.histogram.sample_count, BucketBound(i)});
          }
          break;
      }
      result.back().metric.push_back(std::move(out));
    }
  }
  return result;
}

}  // namespace internal
}  // namespace netmeter
