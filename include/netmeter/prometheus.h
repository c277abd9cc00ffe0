// SPDX-License-Identifier: BSD-3-Clause
// Publishes a Meter through prometheus-cpp. Each scrape reads the kernel's
// totals; nothing is kept in between.
//
//   auto meter = netmeter::Meter::Open(options);  // see meter.h
//   if (!meter.ok()) return meter.status();
//   auto metrics = std::make_shared<netmeter::PrometheusCollectable>(
//       std::move(*meter), netmeter::PrometheusCollectable::Scope::kService);
//   prometheus::Exposer exposer("127.0.0.1:9091");
//   exposer.RegisterCollectable(metrics);  // weak: keep `metrics` alive
//
// Families, in this order; one that has no series yet is left out:
//
//   netmeter_up                      gauge: 1, or 0 if the meter cannot be
//                                    read; then it is the only family
//   magma_bytes_sent_total           {service_name, dest_service}: payload
//   magma_bytes_received_total       bytes of services, both paths
//   linux_bytes_sent_total           {binary_name}: payload bytes of plain
//   linux_bytes_received_total       binaries, direct path only
//   netmeter_wire_bytes_total        {kind, name, destination, transport,
//   netmeter_wire_packets_total      path, direction="tx" or "rx"}
//   netmeter_tcp_retransmitted_bytes_total  {kind, name, destination}
//   netmeter_pending_bytes           gauge {name, path, direction}: not yet in
//                                    the totals above
//   netmeter_tcp_connections_opened_total    {kind, name, destination}, as
//   netmeter_tcp_connections_accepted_total  TcpConnections of sample.h, both
//   netmeter_tcp_connections_closed_total    paths; without what was open
//   netmeter_tcp_connections_failed_total    before the load
//   netmeter_tcp_rtt_seconds         the same, a histogram: smoothed round-trip
//                                    times, direct path only
//   netmeter_series                  gauges, without labels
//   netmeter_series_limit
//   netmeter_lost_total              {reason}
//
// The linux_* families and the last three are not in Scope::kService. Bytes of
// a name that are no UTF-8 appear as \xNN. Series whose labels are equal are
// summed. Values are totals of the kernel: every process that publishes the
// same service publishes the same values, so aggregate with max, not sum.
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

namespace netmeter {

class PrometheusCollectable : public prometheus::Collectable {
 public:
  enum class Scope {
    kService,       // what Meter::ReadService() reads: this process's service
    kHost,          // what Meter::ReadHost() reads, and the meter's own health
    kUnregistered,  // kHost without what registered services publish: all series
                    // of a service of which any is registered
  };

  // Cannot fail; a null meter is a meter that cannot be read.
  PrometheusCollectable(std::shared_ptr<const Meter> meter, Scope scope);
  ~PrometheusCollectable() override;

  // Never throws, as an error is netmeter_up 0; so is want of memory, and where
  // there is none even for that the result is empty. Costs one read of the
  // meter, thus no system call, and the memory of the result.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::shared_ptr<const Meter> meter_;
  const Scope scope_;
};

}  // namespace netmeter

#endif  // NETMETER_PROMETHEUS_H_
