// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
#include <utility>

#include "lib/publish/families.h"
#include "lib/publish/prometheus_families.h"
#include "lib/publish/sample_buffer.h"
#include "netmeter/prometheus.h"

namespace netmeter {

class PrometheusCollectable::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const PublishOptions& options)
      : meter_(std::move(meter)), options_(options) {}

  std::vector<prometheus::MetricFamily> Collect() const {
    return internal::ToPrometheus(
        internal::Collect(meter_.get(), options_, &buffer_));
  }

 private:
  const std::shared_ptr<const Meter> meter_;
  const PublishOptions options_;
  mutable internal::SampleBuffer buffer_;
};

PrometheusCollectable::PrometheusCollectable(std::shared_ptr<const Meter> meter,
                                             const PublishOptions& options)
    : impl_(new Impl(std::move(meter), options)) {}

PrometheusCollectable::~PrometheusCollectable() = default;

std::vector<prometheus::MetricFamily> PrometheusCollectable::Collect() const {
  // prometheus-cpp calls this in a thread of its own that catches nothing. So this
  // function degrades: it returns all families, else only the error, else nothing.
  try {
    return impl_->Collect();
  } catch (const std::exception&) {  // not enough memory for all families
  }
  try {
    return internal::ToPrometheus(internal::FamiliesOfError());
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace netmeter
