// SPDX-License-Identifier: BSD-3-Clause
// prometheus-cpp keeps a value of every type in each of its metrics, and uses the one
// that the family's type names. Its numbers are doubles: exact up to 2^53, 9 PB.
#include "lib/publish/prometheus_families.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <string>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

prometheus::MetricType ToPrometheus(FamilyType type) {
  switch (type) {
    case FamilyType::kCounter:
      return prometheus::MetricType::Counter;
    case FamilyType::kGauge:
      return prometheus::MetricType::Gauge;
    case FamilyType::kHistogram:
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
      for (const Label& label : metric.labels) {
        out.label.push_back({label.name, label.value});
      }
      const double value = static_cast<double>(metric.value);
      switch (family.type) {
        case FamilyType::kCounter:
          out.counter.value = value;
          break;
        case FamilyType::kGauge:
          out.gauge.value = value;
          break;
        case FamilyType::kHistogram:
          // Each of our buckets has only its own observations; those of Prometheus also
          // have all smaller ones. Our sum is in microseconds.
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
