# SPDX-License-Identifier: BSD-3-Clause
"""Runs in a virtual environment with one version of prometheus_client, under
with_fake_meter (see versions_root_test.py). Prints one JSON object: what the
Collector publishes, in each of the ways in which it is read."""

import json
import sys
import unittest

import prometheus_client
from prometheus_client.core import CollectorRegistry

import netmeter
import netmeter.prometheus
from netmeter.prometheus import Collector, Scope

check = unittest.TestCase()
check.maxDiff = None


def magma_get_metrics(registry):
    """As Magma's metrics_export.get_metrics() walks a registry: the name of
    the family for all of its samples, whatever theirs."""
    families = []
    for family in registry.collect():
        # Any other value breaks Magma's GetMetrics.
        check.assertIn(family.type, ("counter", "gauge", "histogram"))
        rows = []
        for sample in family.samples:
            labels, value = sample[1], sample[2]
            for name, text in labels.items():
                check.assertIs(type(name), str)
                check.assertIs(type(text), str)
                check.assertNotEqual(name, "service")  # magmad adds its own
                text.encode("utf-8")
            check.assertIsInstance(value, float)
            key = sorted(labels.items())
            if family.type == "histogram":  # distinguished by the sample's name
                float(labels.get("le", "0"))
                key.append((sample[0], ""))
            rows.append([key, value])
        # No _created sample: it would be a second series.
        check.assertEqual(len({str(row[0]) for row in rows}), len(rows))
        families.append([family.name, family.type, sorted(rows)])
    return families


def text_of(collector):
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector)
    return prometheus_client.generate_latest(registry).decode("utf-8")


def openmetrics_of(collector):
    try:
        from prometheus_client.openmetrics import exposition
    except ImportError:
        return None
    registry = CollectorRegistry()
    registry.register(collector)
    return exposition.generate_latest(registry).decode("utf-8")


class Counting:
    """A meter that counts its reads, and can break."""

    def __init__(self, meter, error=None):
        self.meter, self.error, self.reads = meter, error, 0

    def _families(self, *arguments):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.meter._families(*arguments)


def with_names(meter):
    """Of each value of names_without_total: what is read, in each of the ways."""
    named = {}
    for without in (False, True):
        collector = Collector(meter, Scope.HOST, "kernsnoopd", omit_zeros=True, names_without_total=without)
        own = CollectorRegistry()
        own.register(collector)
        named["without_total" if without else "with_total"] = {
            "text": text_of(collector),
            "openmetrics": openmetrics_of(collector),
            "magma": magma_get_metrics(own),
        }
    return named


def main(pin_dir):
    # There is no meter to register with, but the name is kept.
    meter = netmeter.Meter.open(pin_dir, service="mme", wait_for_loader=True)
    host, service = Collector(meter, Scope.HOST, "all"), Collector(meter)
    check.assertEqual([scope.value for scope in Scope], list(netmeter._netmeter.SCOPES))
    with check.assertRaisesRegex(TypeError, "^families must be str, not int$"):
        Collector(meter, families=5)

    # The default registry collects at registration, unless the collector
    # describes itself.
    counting = Counting(meter)
    collector = Collector(counting)
    prometheus_client.REGISTRY.register(collector)
    check.assertEqual(counting.reads, 0)
    check.assertIn(
        b'magma_bytes_sent_total{dest_service="streamer",service_name="mme"} 606', prometheus_client.generate_latest()
    )
    check.assertEqual(counting.reads, 1)
    prometheus_client.REGISTRY.unregister(collector)

    # Every error becomes netmeter_up 0.
    up = "netmeter_up 0.0\n"
    gone = netmeter.Meter.open("/nonexistent", wait_for_loader=True)
    closed = netmeter.Meter.open(pin_dir)
    closed.close()
    for broken in (Counting(meter, RuntimeError("broken")), Counting(meter, MemoryError()), gone, closed, None):
        for scope in Scope:
            text = text_of(Collector(broken, scope))
            check.assertTrue(text.endswith(up), text)
            check.assertEqual(text.count("\n"), 3, text)
    # ... except Ctrl-C.
    with check.assertRaises(KeyboardInterrupt):
        Collector(Counting(meter, KeyboardInterrupt())).collect()

    registry = CollectorRegistry()
    registry.register(host)
    json.dump(
        {
            "service": text_of(service),
            "host": text_of(host),
            "openmetrics": openmetrics_of(host),
            "magma": magma_get_metrics(registry),
            **with_names(meter),
        },
        sys.stdout,
    )


main(sys.argv[1])
