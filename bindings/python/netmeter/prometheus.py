# SPDX-License-Identifier: BSD-3-Clause
"""Publishes a Meter through prometheus_client, 0.3.1 or newer.

    import netmeter, netmeter.prometheus, prometheus_client

    meter = netmeter.Meter.open(service="subscriberdb", wait_for_loader=True)
    prometheus_client.REGISTRY.register(netmeter.prometheus.Collector(meter))
    prometheus_client.start_http_server(9091)

Families, in this order; one that has no series yet is left out:

    netmeter_up                      gauge: 1, or 0 if the meter cannot be
                                     read; then it is the only family
    netmeter_build_info              gauge {version, abi, kernel}: 1
    netmeter_config_info             gauge {hash, version}: 1
    netmeter_start_time_seconds      gauge: when counting began, Unix time
    netmeter_omitted_services        gauge, in Scope.UNREGISTERED only: how
                                     many services this scope leaves out
    magma_bytes_sent_total           {service_name, dest_service}: payload
    magma_bytes_received_total       bytes of services, both paths
    linux_bytes_sent_total           {binary_name}: payload bytes of binaries,
    linux_bytes_received_total       units and containers, path direct only
    netmeter_wire_bytes_total        {kind, name, destination, transport,
    netmeter_wire_packets_total      direction="tx" or "rx"}, path direct only
    netmeter_pending_bytes           gauge {name, direction}, path direct only:
                                     not yet in netmeter_wire_bytes_total
    netmeter_evicted_bytes_total     {kind, direction}, path direct only: no more
                                     in netmeter_wire_bytes_total, as its series
                                     was idle
    netmeter_proxy_bytes_total       the same four of the path proxy: traffic
    netmeter_proxy_packets_total     over loopback, to or from a proxy on this
    netmeter_proxy_pending_bytes     host, which is on no link
    netmeter_proxy_evicted_bytes_total
    netmeter_tcp_retransmit_bytes_total     {kind, name, destination}, both
                                            paths
    netmeter_tcp_connections_opened_total   the same: those that were open
    netmeter_tcp_connections_accepted_total before the load are not among them
    netmeter_tcp_connections_closed_total
    netmeter_tcp_connections_failed_total
    netmeter_tcp_resets_sent_total          the same, of the same; not in the set
    netmeter_tcp_resets_received_total      "default"
    netmeter_tcp_timeouts_total
    netmeter_tcp_retransmitted_segments_total
    netmeter_tcp_rtt_seconds         the same labels, a histogram: smoothed
                                     round-trip times, path direct only
    netmeter_series                  gauges, without labels
    netmeter_series_limit
    netmeter_misattributed_packets_total    {reason}, as netmeter.Health: what was
    netmeter_misattributed_names_total      counted in the totals above, but not
    netmeter_misattributed_processes_total  under its own name
    netmeter_misattributed_sockets_total
    netmeter_uplink_bytes_total      {uplink, interface, direction}: what an interface
                                     counted for its uplink, less layer-2 headers
    netmeter_forwarded_bytes_total   the same labels: what this host forwarded over
                                     the uplink; the interface is at the other side
    netmeter_budget_limit_bytes      gauges {budget, uplink, kind, name, destination,
    netmeter_budget_used_bytes       path, direction}: by netmeter-exporter only, on
    netmeter_cost_micros             /metrics, as this gauge {plan, uplink, currency}
    netmeter_budget_error            and this one without labels

Not in Scope.SERVICE are linux_*, netmeter_evicted_bytes_total,
netmeter_proxy_evicted_bytes_total, netmeter_series, netmeter_series_limit,
netmeter_misattributed_*, netmeter_uplink_bytes_total and
netmeter_forwarded_bytes_total. The last two are there if Meter.read_uplinks()
can read the uplinks. The C++ library publishes the same families
(netmeter/publish.h), by the same code. Bytes of a name that are not UTF-8
appear as \\xNN. Series whose labels are equal are summed. Values are the
kernel's totals: every process that publishes the same service publishes the
same values, so aggregate with max, not with sum. They are floats, as all values
of Prometheus: exact up to 2**53.

The names by version of prometheus_client: samples, and thus all that is
scraped over HTTP, have the names above in each. What differs is the ``name``
of a family object, which Magma's get_metrics() sends as the name of all its
samples:

    0.3.1 and older    as above: "magma_bytes_sent_total"
    0.4.0 and newer    of counters without _total: "magma_bytes_sent"

Collector(names_without_total=True) and =False make samples and families have one
name in each version, without _total or with it, as netmeter-exporter
--names-without-total and the C++ library have it. From 0.4.0 on they are then
gauges: these versions add and take off the _total of a counter themselves. To
PromQL's rate() that is the same, and Magma's cloud makes gauges of all.

There never is a _created series.
"""

import enum
from typing import TYPE_CHECKING, Iterable, List, Optional, Union

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

import netmeter
from netmeter import _netmeter

__all__ = ["Collector", "Scope"]

if TYPE_CHECKING:
    from prometheus_client.registry import Collector as _Base
else:
    try:
        from prometheus_client.registry import Collector as _Base
    except ImportError:  # before 0.15
        _Base = object

_Family = Union[CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily]


class Scope(enum.Enum):
    """Whose series are published."""

    SERVICE = "service"
    """What Meter.read_service() reads: the service of this process."""
    HOST = "host"
    """What Meter.read_host() reads, and the meter's own health."""
    UNREGISTERED = "unregistered"
    """HOST without what registered services publish themselves: all series of a
    service of which any is registered. For a Prometheus that also scrapes these
    services."""


class Collector(_Base):
    """A collector for prometheus_client's registries.

    families: a list of names, with commas between them, such as
    "bytes,netmeter_series": of families, as above, or of sets:

        default     all but the histogram netmeter_tcp_rtt_seconds, which is a
                    third of all samples, and the four that tell of resets,
                    timeouts and retransmitted segments
        netmeter    default, without the four of Magma: magma_ and linux_
        all         all
        bytes       all with _bytes in their names, without the four of Magma
        bill        the bytes on links and uplinks, and the budgets and costs
        kernsnoopd  what Magma's kernsnoopd published: magma_bytes_sent_total
                    and linux_bytes_sent_total

    netmeter_up and, in Scope.UNREGISTERED, netmeter_omitted_services are in each
    choice. A name that is unknown is a netmeter.InvalidArgumentError.

    omit_zeros: leave out counters that are 0: they never changed since counting
    began. increase() begins where a counter is seen first.

    names_without_total: whether names of counters lack _total, in any version of
    prometheus_client; None: as the version has it, see above.

    Each scrape reads the kernel's totals; nothing is kept in between. Register
    one per process and registry: two would repeat netmeter_up.

    Threads: collect() may be called from any thread at any time.
    """

    def __init__(
        self,
        meter: netmeter.Meter,
        scope: Scope = Scope.SERVICE,
        families: str = "default",
        omit_zeros: bool = False,
        names_without_total: Optional[bool] = None,
    ) -> None:
        if not isinstance(families, str):
            raise TypeError("families must be str, not %s" % type(families).__name__)
        # A lone surrogate cannot be encoded as UTF-8, and is in no family's name.
        _netmeter.check_families(families.encode("utf-8", "replace").decode())
        self._omit_zeros = bool(omit_zeros)
        self._without_total = names_without_total
        self._meter = meter
        self._scope: str = Scope(scope).value
        self._chosen = families

    def describe(self) -> Iterable[_Family]:
        """Nothing: so that register() reads no meter, and finds no clash.

        The price: a scrape with ?name[]=... leaves these families out.
        """
        return []

    def collect(self) -> List[_Family]:
        """Never raises: an error is netmeter_up 0.

        Costs one read of the meter and some 4 microseconds per sample, thus
        0.1 s for 4096 UDP series, of six samples each.
        """
        try:
            rows = self._meter._families(
                self._scope, self._chosen, self._omit_zeros, bool(self._without_total)
            )
            as_gauges = _STRIPS_TOTAL and self._without_total is not None
            return [_to_family(row, as_gauges) for row in rows]
        except Exception:  # prometheus_client would answer status 500
            return [_to_family(row) for row in _netmeter.families_of_error()]


# Whether a counter's family drops _total, and its samples add it: since 0.4.0.
_STRIPS_TOTAL = CounterMetricFamily("x_total", "").name == "x"


def _to_family(row: "_netmeter._Family", as_gauges: bool = False) -> _Family:
    name, help_text, kind, label_names, metrics = row
    # The family classes, unlike Counter and Gauge, have no _created sample,
    # and handle _total as their version requires.
    family: _Family
    if kind == "histogram":
        family = HistogramMetricFamily(name, help_text, labels=label_names)
        for label_values, (buckets, total) in metrics:
            family.add_metric(
                label_values,
                [(_bound(bound), float(count)) for bound, count in buckets],
                total,
            )
        return family
    if kind == "gauge" or as_gauges:
        family = GaugeMetricFamily(name, help_text, labels=label_names)
    else:
        family = CounterMetricFamily(name, help_text, labels=label_names)
    for label_values, value in metrics:
        family.add_metric(label_values, float(value))
    return family


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else repr(seconds)
