# SPDX-License-Identifier: BSD-3-Clause
"""A real Prometheus scrapes an example service and the exporter; what its HTTP
API answers is what was sent, also over an upgrade of the loader."""

import json
import subprocess
import unittest

import lab
import metrics_lab as m

GATEWAY = "127.0.0.1:9091"
DATAGRAMS = 1234  # of 1000 bytes, which the cloud sends back

# 100 datagrams of 972 bytes a second: 100,000 bytes on the wire.
DATAGRAM = 972
PER_SECOND = 100
WIRE_RATE = PER_SECOND * (DATAGRAM + 28)
SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
n = 0
while True:
    s.sendto(bytes(%d), (sys.argv[1], 9))
    n += 1
    time.sleep(max(0, start + n / %d - time.monotonic()))
""" % (DATAGRAM, PER_SECOND)


class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("prometheus")
        cls.addClassCleanup(cls.meter.close)
        cls.load(64)
        stub = m.start_in_cloud(cls.cloud, m.CLOUD_STUB)
        cls.addClassCleanup(m.end, stub)
        m.await_line(stub, "")
        service = cls.meter.start(
            [m.GATEWAY, "--cloud", cls.cloud.THERE + ":9000", "--datagrams", str(DATAGRAMS), "--listen", GATEWAY]
            + ["--pin-dir", cls.meter.pin_dir],
            stdout=subprocess.PIPE,
        )
        cls.addClassCleanup(m.end, service)
        m.await_line(service, "transfers done")
        sender = cls.meter.start([lab.PYTHON, "-c", SENDER, cls.cloud.THERE])
        cls.addClassCleanup(m.end, sender)
        exporter = m.start_exporter(cls.meter.pin_dir, "--families", "all")
        cls.addClassCleanup(m.end, exporter)
        m.start_prometheus(cls, {"service": GATEWAY, "exporter": m.HTTP})

    @classmethod
    def load(cls, max_series):
        cls.meter._load("load", "--quiet", "--group", "", "--cgroup", cls.meter.cgroup, "--max-series", str(max_series))

    def test_1_both_targets_are_up_and_agree_with_what_was_sent(self):
        lab.wait_for(lambda: sum(m.query("up").values()) == 2)
        lab.wait_for(lambda: sum(m.query("netmeter_up").values()) == 2)
        labels = '{service_name="subscriberdb",dest_service="checkin"}'
        promql = "magma_bytes_sent_total" + labels
        rows = lab.wait_for(lambda: len(m.query(promql)) == 2 and m.query(promql))
        self.assertEqual({dict(row)["job"] for row in rows}, {"service", "exporter"})
        expected = DATAGRAMS * 1000
        self.assertEqual(set(rows.values()), {expected})
        received = m.query("magma_bytes_received_total" + labels)
        self.assertEqual(set(received.values()), {expected})
        print("sent, by PromQL:", int(expected))

    def test_2_promtool_finds_nothing_on_any_page(self):
        for address in (m.HTTP, GATEWAY):
            m.promtool(m.get(address))
        command = [lab.LIST, "cost", "--prometheus", "--pin-dir", self.meter.pin_dir]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()
        self.assertIn('netmeter_bpf_runs_total{program="nm_egress"}', text)
        m.promtool(text)

    def test_3_rate_is_right_over_upgrades_of_the_loader(self):
        limit = 'netmeter_series_limit{job="exporter"}'
        for size in (128, 256, 512):
            self.load(size)
            lab.wait_for(lambda: set(m.query(limit).values()) == {size - 21}, "a scrape of the larger tables", 60)
        series = 'netmeter_wire_bytes_total{job="exporter",kind="binary",transport="udp",direction="tx"}'
        full = "count_over_time(%s[15s])" % series
        lab.wait_for(lambda: min(m.query(full).values(), default=0) >= 14, "15 seconds of scrapes", 60)
        rates = m.query("rate(%s[15s])" % series)
        resets = m.query("resets(%s[30s])" % series)
        print("rate(), of %d bytes a second sent:" % WIRE_RATE, list(rates.values()))
        self.assertEqual(len(rates), 1)
        self.assertLess(abs(list(rates.values())[0] - WIRE_RATE), WIRE_RATE * 0.1)
        self.assertEqual(set(resets.values()), {0})
        # Nothing else went back either, of any series.
        names = json.loads(m.get(m.PROMETHEUS, "/api/v1/label/__name__/values"))["data"]
        ours = ("magma_", "linux_", "netmeter_")
        counters = [name for name in names if name.endswith("_total") and name.startswith(ours)]
        self.assertGreater(len(counters), 5)
        for name in counters:
            self.assertEqual(m.query('max(resets(%s{job="exporter"}[60s]))' % name), {(): 0}, name)
        self.assertEqual(m.query("min(min_over_time(up[60s]))"), {(): 1})



if __name__ == "__main__":
    lab.private_network()
    lab.main(200)
