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
//   netmeter_retired_bytes_total     {kind, direction}, path direct only: no more
//                                    in netmeter_wire_bytes_total, as its series
//                                    was idle
//   netmeter_proxy_bytes_total       the same four of the path proxy: traffic
//   netmeter_proxy_packets_total     over loopback, to or from a proxy on this
//   netmeter_proxy_pending_bytes     host, which is on no link
//   netmeter_proxy_retired_bytes_total
//   netmeter_tcp_retransmit_bytes_total      {kind, name, destination}, both
//                                            paths
//   netmeter_tcp_connections_opened_total    the same, as TcpConnections of
//   netmeter_tcp_connections_accepted_total  sample.h; without what was open
//   netmeter_tcp_connections_closed_total    before the load
//   netmeter_tcp_connections_failed_total
//   netmeter_tcp_resets_sent_total           the same, of the same; not in the set
//   netmeter_tcp_resets_received_total       `default`
//   netmeter_tcp_timeouts_total
//   netmeter_tcp_retransmitted_segments_total
//   netmeter_tcp_rtt_seconds         the same labels, a histogram: smoothed
//                                    round-trip times, path direct only
//   netmeter_series                  gauges, without labels
//   netmeter_series_limit
//   netmeter_lost_packets_total      {reason}, as Health of sample.h: what was
//   netmeter_lost_names_total        counted in the totals above, but not under
//   netmeter_lost_processes_total    its own name
//   netmeter_lost_sockets_total
//   netmeter_budget_limit_bytes      gauges {budget, uplink, kind, name, destination,
//   netmeter_budget_used_bytes       path, direction}: by netmeter-exporter only, on
//                                    /metrics
//
// In kHost, sum(netmeter_wire_bytes_total) + sum(netmeter_pending_bytes) +
// sum(netmeter_retired_bytes_total) is what the interfaces counted, less their
// link headers; the second is 0 once all connections have named their
// destination, and the third as long as no series was retired. What a read may see of a
// move from the one to the other stands at Kind in sample.h.
//
// linux_*, netmeter_retired_bytes_total, netmeter_proxy_retired_bytes_total,
// netmeter_series, netmeter_series_limit and netmeter_lost_* are not in
// Scope::kService. Bytes of a name that are not UTF-8 appear as \xNN. Series
// whose labels are equal are summed. Values are totals of the kernel: every
// process that publishes the same service publishes the same values, so
// aggregate with max, not with sum.
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
  kService,       // what Meter::ReadService() reads: this process's service
  kHost,          // what Meter::ReadHost() reads, and the meter's own health
  kUnregistered,  // kHost without what registered services publish themselves:
                  // all series of a service of which any is registered. For a
                  // Prometheus that also scrapes these services.
};

// "service", "host" or "unregistered": the word for it in Python. Never null.
const char* ScopeName(Scope scope);

namespace internal {
class FamilySetAccess;
}

// A choice of families.
class FamilySet {
 public:
  // The set `default`.
  FamilySet();

  // From a list of names, with commas between them: of families, as above, or
  // of sets:
  //   default     all but the histogram netmeter_tcp_rtt_seconds, which is a
  //               third of all samples, and the four that tell of resets, timeouts
  //               and retransmitted segments
  //   netmeter    default, without the four of Magma: magma_ and linux_
  //   all         all
  //   bytes       all with _bytes in their names, without the four of Magma
  //   kernsnoopd  what Magma's kernsnoopd published: magma_bytes_sent_total
  //               and linux_bytes_sent_total
  // netmeter_up and, in kUnregistered, netmeter_omitted_services are in each
  // choice: without them a series that is missing could mean anything.
  //   InvalidArgument  a name is unknown, or the list is empty
  static absl::StatusOr<FamilySet> Parse(absl::string_view list);

  // The set `kernsnoopd`: what is published on Magma's path unless told otherwise.
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

  // Leaves out counters that are 0: they never changed since counting began. A
  // counter that is published stays. Prometheus then misses what a counter counts
  // before it is seen first: increase() begins there.
  bool omit_zeros = false;

  // Publishes counters without _total: "magma_bytes_sent", as dashboards of Magma's
  // NMS ask for it. Everywhere else, as in FamilySet, names stay as above. It is no
  // name of OpenMetrics, so netmeter-exporter answers in text format then.
  bool names_without_total = false;
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/publish_inline.h"
#endif

#endif  // NETMETER_PUBLISH_H_
