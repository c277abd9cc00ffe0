// SPDX-License-Identifier: BSD-3-Clause
// PrometheusCollectable (prometheus.h) over the C API, for the reason at the top of
// meter_inline.h. The process then has only the program's own prometheus-cpp.

#ifndef NETMETER_PROMETHEUS_INLINE_H_
#define NETMETER_PROMETHEUS_INLINE_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "netmeter/prometheus.h"
#include "netmeter/publish_inline.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

inline prometheus::MetricType PrometheusType(int type) {
  switch (type) {
    case NETMETER_TYPE_COUNTER:
      return prometheus::MetricType::Counter;
    case NETMETER_TYPE_GAUGE:
      return prometheus::MetricType::Gauge;
    case NETMETER_TYPE_HISTOGRAM:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

inline prometheus::ClientMetric PrometheusMetric(const netmeter_metric& from) {
  prometheus::ClientMetric to;
  to.label.reserve(from.label_count);
  for (size_t i = 0; i < from.label_count; ++i) {
    to.label.emplace_back();
    to.label.back().name = from.label_names[i];
    to.label.back().value = from.label_values[i];
  }
  const double value = static_cast<double>(from.value);
  switch (from.type) {
    case NETMETER_TYPE_COUNTER:
      to.counter.value = value;
      break;
    case NETMETER_TYPE_GAUGE:
      to.gauge.value = value;
      break;
    case NETMETER_TYPE_HISTOGRAM:
      // Buckets of Prometheus are cumulative.
      to.histogram.sample_sum = from.sum;
      for (size_t i = 0; i < from.bucket_count; ++i) {
        to.histogram.sample_count += from.bucket_counts[i];
        to.histogram.bucket.emplace_back();
        to.histogram.bucket.back().cumulative_count = to.histogram.sample_count;
        to.histogram.bucket.back().upper_bound = from.bucket_bounds[i];
      }
      break;
  }
  return to;
}

inline std::vector<prometheus::MetricFamily> PrometheusFamilies(
    const netmeter_metrics& metrics) {
  std::vector<prometheus::MetricFamily> families;
  const char* family = nullptr;
  const size_t count = netmeter_metrics_count(&metrics);
  for (size_t i = 0; i < count; ++i) {
    const netmeter_metric& metric = *netmeter_metrics_get(&metrics, i);
    if (metric.family != family) {
      family = metric.family;
      families.emplace_back();
      families.back().name = family;
      families.back().help = metric.help;
      families.back().type = PrometheusType(metric.type);
    }
    families.back().metric.push_back(PrometheusMetric(metric));
  }
  return families;
}

}  // namespace internal

class PrometheusCollectable::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const PublishOptions& options)
      : publisher_(std::move(meter), internal::OptionsOfC(options)) {}

  // Without the meter the result is netmeter_up 0. Returns false if memory ran out.
  bool Collect(bool with_meter,
               std::vector<prometheus::MetricFamily>* families) const {
    const internal::MetricsLease metrics(publisher_.spare());
    if (metrics.get() == nullptr ||
        netmeter_read_metrics(with_meter ? publisher_.meter() : nullptr,
                              &publisher_.options(), metrics.get(),
                              nullptr) != NETMETER_OK) {
      return false;
    }
#ifdef __cpp_exceptions
    try {
      *families = internal::PrometheusFamilies(*metrics.get());
    } catch (const std::exception&) {
      return false;
    }
#else
    *families = internal::PrometheusFamilies(*metrics.get());
#endif
    return true;
  }

 private:
  const internal::Publisher publisher_;
};

inline PrometheusCollectable::PrometheusCollectable(
    std::shared_ptr<const Meter> meter, const PublishOptions& options)
    : impl_(new Impl(std::move(meter), options)) {}

inline PrometheusCollectable::~PrometheusCollectable() = default;

inline std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect()
    const {
  // Memory may still suffice for netmeter_up 0.
  std::vector<prometheus::MetricFamily> families;
  if (!impl_->Collect(true, &families)) impl_->Collect(false, &families);
  return families;
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_PROMETHEUS_INLINE_H_
