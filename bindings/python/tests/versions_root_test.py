# SPDX-License-Identifier: BSD-3-Clause
"""netmeter.prometheus with the versions of prometheus_client that matter, each
in a virtual environment of its own, from PyPI: the one that Magma pins, the
first ones with _created samples, and the newest. And examples/python_service.py
as a service."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import clients
import lab
from bindings.python.tests import proxy_cloud

HERE = os.path.join("bindings", "python", "tests")
FILLERS = 8
VERSIONS = ("0.3.1", "0.7.1", "newest")

OF_SERVICES = (
    "magma_bytes_sent_total",
    "magma_bytes_received_total",
    "netmeter_wire_bytes_total",
    "netmeter_wire_packets_total",
    "netmeter_proxy_bytes_total",
    "netmeter_proxy_packets_total",
    "netmeter_tcp_retransmit_bytes_total",
    "netmeter_tcp_connections_opened_total",
    "netmeter_tcp_connections_accepted_total",
    "netmeter_tcp_connections_closed_total",
    "netmeter_tcp_connections_failed_total",
)
# Like the histogram, these are not in the set `default`.
OF_TROUBLE = (
    "netmeter_tcp_resets_sent_total",
    "netmeter_tcp_resets_received_total",
    "netmeter_tcp_timeouts_total",
    "netmeter_tcp_retransmitted_segments_total",
)
COUNTERS = (
    OF_SERVICES
    + (
        "linux_bytes_sent_total",
        "linux_bytes_received_total",
        "netmeter_misattributed_packets_total",
        "netmeter_misattributed_names_total",
        "netmeter_misattributed_processes_total",
        "netmeter_misattributed_sockets_total",
    )
    + OF_TROUBLE
)
HISTOGRAM = "netmeter_tcp_rtt_seconds"
HISTOGRAMS = tuple(HISTOGRAM + end for end in ("_bucket", "_sum", "_count"))
OF_METER = ("netmeter_up", "netmeter_build_info", "netmeter_config_info", "netmeter_start_time_seconds")
GAUGES = OF_METER + ("netmeter_series", "netmeter_series_limit")


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def values_of(text):
    """{(name, sorted labels): value} of an exposition; fails on a repetition."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        key, value = line.rsplit(" ", 1)
        name, _, labels = key.partition("{")
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
        key = (name, tuple(sorted(pairs)))
        assert key not in values, key
        values[key] = float(value)
    return values


def types_of(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


class VersionsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.pythons, cls.answers = {}, {}
        for version in VERSIONS:
            cls.pythons[version] = clients.make_venv(
                "prometheus_client",
                "" if version == "newest" else "==" + version,
                clients.FROM_SOURCE,  # 0.3.1 has no wheel
            )
        pin_dir = os.path.join(cls.directory.name, "meter")
        os.mkdir(pin_dir)
        # Only after pip, which needs the network.
        lab.private_network()
        for version in VERSIONS:
            checks = subprocess.run(
                [os.path.join(HERE, "with_fake_meter"), pin_dir, str(FILLERS)]
                + [cls.pythons[version], os.path.join(HERE, "prometheus_checks.py")]
                + [pin_dir, version],
                check=True,
                stdout=subprocess.PIPE,
                env=environment(),
            )
            cls.answers[version] = json.loads(checks.stdout)

    def test_scrapes_are_the_same_in_every_version(self):
        for scope in ("host", "service"):
            reference = self.answers["0.3.1"][scope]
            for version in VERSIONS:
                text = self.answers[version][scope]
                self.assertEqual(values_of(text), values_of(reference))
                self.assertEqual(types_of(text), types_of(reference))

    def test_scrapes_have_exactly_the_documented_names(self):
        for version in VERSIONS:
            text = self.answers[version]["host"]
            self.assertEqual(
                types_of(text),
                {**dict.fromkeys(COUNTERS, "counter"), **dict.fromkeys(GAUGES, "gauge"), HISTOGRAM: "histogram"},
            )
            self.assertEqual({key[0] for key in values_of(text)}, {*COUNTERS, *GAUGES, *HISTOGRAMS})
            self.assertEqual({key[0] for key in values_of(self.answers[version]["service"])}, {*OF_METER, *OF_SERVICES})

    def test_openmetrics_has_one_total_and_no_created(self):
        self.assertIsNone(self.answers["0.3.1"]["openmetrics"])
        for version in VERSIONS[1:]:
            text = self.answers[version]["openmetrics"]
            self.assertTrue(text.endswith("# EOF\n"))
            self.assertEqual(values_of(text), values_of(self.answers[version]["host"]))
            self.assertNotIn("_created", text)
            self.assertNotIn("_total_total", text)
            self.assertEqual(types_of(text)["magma_bytes_sent"], "counter")

    def test_magma_gets_the_names_documented_for_each_version(self):
        reference = {name: rows for name, _, rows in self.answers["0.3.1"]["magma"]}
        self.assertEqual(set(reference), {*COUNTERS, *GAUGES, HISTOGRAM})
        for version in VERSIONS[1:]:
            families = self.answers[version]["magma"]
            self.assertEqual(
                {name: rows for name, _, rows in families},
                {re.sub("_total$", "", name): reference[name] for name in reference},
            )

    def test_one_option_gives_one_name_in_every_version(self):
        for option, end in (("with_total", "_total"), ("without_total", "")):
            names = {"netmeter_up"}
            names |= {kind + "_bytes_sent" + end for kind in ("magma", "linux")}
            for version in VERSIONS:
                answer = self.answers[version][option]
                self.assertEqual({key[0] for key in values_of(answer["text"])}, names)
                self.assertEqual(set(types_of(answer["text"])), names)
                self.assertEqual({row[0] for row in answer["magma"]}, names)
                if answer["openmetrics"] is not None:
                    self.assertEqual(values_of(answer["openmetrics"]), values_of(answer["text"]))
                self.assertNotIn(0, values_of(answer["text"]).values())
                mme = (("dest_service", "streamer"), ("service_name", "mme"))
                sent = values_of(answer["text"])["magma_bytes_sent" + end, mme]
                self.assertEqual(sent, 606)

    def test_the_example_publishes_what_it_sent(self):
        test_lab = lab.Meter("example")
        self.addCleanup(test_lab.close)
        test_lab.load()
        for version in VERSIONS:
            with self.subTest(version=version), proxy_cloud.cloud():
                self.run_example(test_lab, version)

    def run_example(self, test_lab, version):
        name = "service-" + version
        service = subprocess.Popen(
            [self.pythons[version], os.path.join("examples", "python_service.py")]
            + ["--cloud", "127.0.0.1:%d" % lab.PROXY_PORT, "--bytes", "54321"]
            + ["--pin-dir", test_lab.pin_dir, "--name", name, "--port", "19092"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=test_lab.enter,
            env=environment(),
        )
        try:
            size = len(b"UP 54321\n" + bytes(54321))
            for uploads in (1, 2):
                self.assertEqual(service.stdout.readline(), "uploaded\n")
                # (No other program is in this network namespace.)
                url = "http://127.0.0.1:19092/metrics"
                with urllib.request.urlopen(url, timeout=10) as answer:
                    values = values_of(answer.read().decode())
                labels = (("dest_service", "metricsd"), ("service_name", name))
                # It uploads each second: there may be one more.
                sent = values["magma_bytes_sent_total", labels]
                self.assertEqual((sent % size, sent >= uploads * size), (0, True), sent)
                # The service's own metrics are there, too.
                self.assertIn(("process_start_time_seconds", ()), values)
            service.send_signal(signal.SIGTERM)
            self.assertEqual(service.wait(10), 0)
        finally:
            service.kill()
            service.wait()
            service.stdout.close()


if __name__ == "__main__":
    unittest.main()
