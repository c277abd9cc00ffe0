// SPDX-License-Identifier: BSD-3-Clause
// Publishes a Meter through prometheus-cpp. Each scrape reads the kernel's totals, and
// nothing is cached. publish.h lists the families.
//
//   auto meter = netmeter::Meter::Open(options);  // see meter.h
//   if (!meter.ok()) return meter.status();
//   auto metrics = std::make_shared<netmeter::PrometheusCollectable>(
//       std::move(*meter), netmeter::PublishOptions());
//   prometheus::Exposer exposer("127.0.0.1:9091");
//   exposer.RegisterCollectable(metrics);  // weak: keep `metrics` alive
//
// May change before 2.0.
//
// Threads: Collect() may be called from any thread at any time. Register one
// collectable per process and registry: two would repeat netmeter_up.

#ifndef NETMETER_PROMETHEUS_H_
#define NETMETER_PROMETHEUS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <vector>

#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

class PrometheusCollectable : public prometheus::Collectable {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit PrometheusCollectable(
      std::shared_ptr<const Meter> meter,
      const PublishOptions& options = PublishOptions());
  ~PrometheusCollectable() override;

  // Never throws. If the meter cannot be read, or if memory runs out, the result is
  // netmeter_up 0. If memory does not suffice for that either, the result is empty.
  // Costs one read of the meter and the memory of the result, without a system call. If
  // the meter has uplinks and the options their families, it also makes the calls of
  // Meter::ReadUplinks().
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  class Impl;
  const std::unique_ptr<const Impl> impl_;
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/prometheus_inline.h"
#endif

#endif  // NETMETER_PROMETHEUS_H_
