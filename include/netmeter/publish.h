// SPDX-License-Identifier: BSD-3-Clause
// What is published: whose series (Scope), and which metric families
// (FamilySet). Everything that publishes a Meter takes these options, and gives
// them these names: prometheus.h, magma.h, grpc.h, the Python package and the
// options of netmeter-exporter.
//
//   netmeter::PublishOptions options;
//   options.scope = netmeter::Scope::kHost;
//   auto families = netmeter::FamilySet::Parse("bytes,netmeter_series");
//   if (!families.ok()) return families.status();
//   options.families = *families;
//
// The families, in the order in which they are published. A family that has no
// series yet is left out.
//
//   netmeter_up                      gauge: 1, or 0 if the meter cannot be
//                                    read; then it is the only family
//   netmeter_build_info              gauge {version, abi, kernel}: 1
//   netmeter_config_info             gauge {hash, version}: 1
//   netmeter_start_time_seconds      gauge: when counting began, Unix time
//   netmeter_omitted_services        gauge, in kUnregistered only: how many
//                                    services this scope leaves out
//   magma_bytes_sent_total           {service_name, dest_service}: payload
//   magma_bytes_received_total       bytes of services, both paths
//   linux_bytes_sent_total           {binary_name}: payload bytes of binaries,
//   linux_bytes_received_total       units and containers, path direct only
//   netmeter_wire_bytes_total        {kind, name, destination, transport,
//   netmeter_wire_packets_total      direction="tx" or "rx"}, path direct only
//   netmeter_pending_bytes           gauge {name, direction}, path direct only:
//                                    not yet in netmeter_wire_bytes_total
//   netmeter_evicted_bytes_total     {kind, direction}, path direct only: bytes of
//                                    evicted idle series, no longer in
//                                    netmeter_wire_bytes_total
//   netmeter_proxy_bytes_total       as the four above, for path proxy: traffic
//   netmeter_proxy_packets_total     over loopback, to or from a proxy on this
//   netmeter_proxy_pending_bytes     host, which no link carries
//   netmeter_proxy_evicted_bytes_total
//   netmeter_tcp_retransmit_bytes_total      {kind, name, destination}, both
//                                            paths
//   netmeter_tcp_connections_opened_total    the same labels, as TcpConnections of
//   netmeter_tcp_connections_accepted_total  sample.h; without connections that
//   netmeter_tcp_connections_closed_total    were open before the load
//   netmeter_tcp_connections_failed_total
//   netmeter_tcp_resets_sent_total           the same labels and source; not in the
//   netmeter_tcp_resets_received_total       set `default`
//   netmeter_tcp_timeouts_total
//   netmeter_tcp_retransmitted_segments_total
//   netmeter_tcp_rtt_seconds         the same labels, a histogram: smoothed
//                                    round-trip times, path direct only
//   netmeter_series                  gauges, without labels
//   netmeter_series_limit
//   netmeter_misattributed_packets_total    {reason}, as Health of sample.h: in the
//   netmeter_misattributed_names_total      totals above, but not under its own name
//   netmeter_misattributed_processes_total
//   netmeter_misattributed_sockets_total
//   netmeter_uplink_bytes_total      {uplink, interface, direction}: what an interface
//                                    counted for its uplink, less layer-2 headers
//   netmeter_forwarded_bytes_total   the same labels: what this host forwarded over the
//                                    uplink; the interface is at the other side
//   netmeter_budget_limit_bytes      gauges {budget, uplink, kind, name, destination,
//   netmeter_budget_used_bytes       path, direction}: only in netmeter-exporter's
//   netmeter_cost_micros             /metrics, as this gauge {plan, uplink, currency}
//   netmeter_budget_error            and this one without labels
//
// In kHost, sum(netmeter_wire_bytes_total) + sum(netmeter_pending_bytes) +
// sum(netmeter_evicted_bytes_total) equals the interfaces' byte counters without their
// layer-2 headers. The second sum is 0 if all connections have named their destination,
// and the third if no series was evicted. Kind in sample.h says what a read may see
// while bytes move from one to another.
//
// The families of uplinks, netmeter_uplink_bytes_total and
// netmeter_forwarded_bytes_total, are made from Meter::ReadUplinks(), and need its system
// calls: one dump of all interfaces by rtnetlink(7), and some of bpf(2). All other
// families need none. If that read fails, the two are left out, and netmeter_up stays 1:
// the meter has no uplinks (which costs no system call), or they are those of another
// network namespace, or this user may read series but not the maps of uplinks.
// docs/metrics.md says when one of their counters ends or begins again; otherwise it only
// grows. The first family is without the uplink "other", whose interfaces may have the
// same packets, such as a bridge and its ports. If the size of a layer-2 header is
// unknown, 14 bytes are taken off.
//
// linux_*, netmeter_evicted_bytes_total, netmeter_proxy_evicted_bytes_total,
// netmeter_series, netmeter_series_limit, netmeter_misattributed_* and the families of
// uplinks are not in Scope::kService. Bytes of a name that are not UTF-8 appear as \xNN.
// Series whose labels are equal are summed. Values are totals of the kernel: every
// process that publishes a service publishes the same values for it, so aggregate with
// max, not with sum.
//
// May change before 2.0.
//
// Threads: as any plain struct.

#ifndef NETMETER_PUBLISH_H_
#define NETMETER_PUBLISH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netmeter/sample.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

enum class Scope {
  // Meter::ReadService(): this process's service.
  kService,
  // Meter::ReadHost(), and the meter's own health.
  kHost,
  // kHost without the series that registered services publish themselves: all series of
  // a service if any of them is registered. For a Prometheus that also scrapes these
  // services.
  kUnregistered,
};

// The word for a scope, also used in Python: "service", "host" or "unregistered".
// Never null.
const char* ScopeName(Scope scope);

namespace internal {
class FamilySetAccess;
}

// A choice of families.
class FamilySet {
 public:
  // The set `default`.
  FamilySet();

  // Returns the families of a comma-separated list. Each name is a family, as above, or
  // a set:
  //   default     all except the histogram netmeter_tcp_rtt_seconds, which is a
  //               third of all samples, and the four families of resets, timeouts
  //               and retransmitted segments
  //   netmeter    default, without the four of Magma: magma_ and linux_
  //   all         all
  //   bytes       all with _bytes in their names, without the four of Magma
  //   bill        the bytes on links and uplinks, and the budgets and costs
  //   kernsnoopd  as Magma's kernsnoopd published: magma_bytes_sent_total and
  //               linux_bytes_sent_total
  // netmeter_up and, in kUnregistered, netmeter_omitted_services are always included:
  // without them the cause of a missing series would be ambiguous.
  //   InvalidArgument  a name is unknown, or the list is empty
  static absl::StatusOr<FamilySet> Parse(absl::string_view list);

  // The set `kernsnoopd`: the default on Magma's path.
  static FamilySet Kernsnoopd();

  // Whether the family of this name is chosen. False for unknown names.
  bool Contains(absl::string_view family) const;

 private:
  friend class internal::FamilySetAccess;

  uint64_t families_;  // a bit for each, in the order above
};

struct PublishOptions {
  Scope scope = Scope::kService;
  FamilySet families;

  // Leaves out counters that are still 0. Once a counter is published, it stays.
  // Prometheus misses the value of a counter at its first scrape: increase() begins
  // there.
  bool omit_zeros = false;

  // Publishes counters without _total: "magma_bytes_sent", as the dashboards of Magma's
  // NMS query it. Everywhere else, as in FamilySet, names stay as above. OpenMetrics does
  // not allow such names, so netmeter-exporter then answers in text format.
  bool names_without_total = false;
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/publish_inline.h"
#endif

#endif  // NETMETER_PUBLISH_H_
