// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
#include <utility>

#include "lib/metrics/families.h"
#include "lib/metrics/sample_buffer.h"
#include "lib/prometheus/families.h"
#include "netmeter/prometheus.h"

namespace netmeter {
PrometheusCollectable::PrometheusCollectable(std::shared_ptr<const Meter> meter,
                                             const PublishOptions& options)
    : meter_(std::move(meter)),
      options_(options),
      buffer_(std::make_shared<internal::SampleBuffer>()) {}

PrometheusCollectable::~PrometheusCollectable() = default;

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  // prometheus-cpp calls this in a thread of its own that catches nothing. So
  // what cannot be had becomes less: all, else that there is an error, else
  // nothing.
  try {
    return internal::ToPrometheus(
        internal::Collect(meter_.get(), options_, buffer_.get()));
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return internal::ToPrometheus(internal::FamiliesOfError());
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace netmeter
