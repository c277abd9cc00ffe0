# SPDX-License-Identifier: BSD-3-Clause
"""A real Prometheus scrapes an example service and the exporter; what its HTTP
API answers is what was sent, also over an upgrade of the loader."""

import json
import subprocess
import unittest

import lab
import metrics_lab as m
import tools

GATEWAY = "127.0.0.1:9091"
DATAGRAMS = 1234  # of 1000 bytes, which the cloud sends back

DATAGRAM = 972  # 1000 bytes on the wire
# A hundred a second until its input ends; it says how many there were.
SENDER = """
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    s.sendto(bytes(%d), (sys.argv[1], 9))
    n += 1
print(n)
""" % DATAGRAM


class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("prometheus")
        cls.addClassCleanup(cls.meter.close)
        cls.load(64)
        m.await_line(cls.cloud.start(cls, lab.PYTHON, m.CLOUD_STUB), "")
        service = cls.meter.start(
            [m.GATEWAY, "--cloud", cls.cloud.THERE + ":9000", "--datagrams", str(DATAGRAMS), "--listen", GATEWAY]
            + ["--pin-dir", cls.meter.pin_dir],
            stdout=subprocess.PIPE,
        )
        cls.addClassCleanup(m.end, service)
        m.await_line(service, "transfers done")
        cls.sender = cls.meter.start(
            [lab.PYTHON, "-c", SENDER, cls.cloud.THERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        cls.addClassCleanup(m.end, cls.sender)
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
        expected = dict.fromkeys(("service", "exporter"), DATAGRAMS * 1000)

        def by_job(metric):
            return {dict(row)["job"]: value for row, value in m.query(metric + labels).items()}

        for metric in ("magma_bytes_sent_total", "magma_bytes_received_total"):
            lab.wait_for(lambda: by_job(metric) == expected, "%s: %s" % (metric, expected))

    def test_2_promtool_finds_nothing_on_any_page(self):
        for address in (m.HTTP, GATEWAY):
            m.promtool(m.get(address))
        command = [tools.NETMETER, "cost", "--prometheus", "--pin-dir", self.meter.pin_dir]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()
        self.assertIn('netmeter_bpf_runs_total{program="nm_egress"}', text)
        m.promtool(text)

    def test_3_counters_go_on_over_upgrades_of_the_loader(self):
        # What never falls and ends right has lost nothing and counted nothing twice. A
        # rate is not compared: Prometheus takes the time at which a scrape begins, and on
        # a busy machine the page is made a second later (110,003 for 100,000 bytes/s).
        limit = 'netmeter_series_limit{job="exporter"}'
        for size in (128, 256, 512):
            self.load(size)
            lab.wait_for(lambda: set(m.query(limit).values()) == {size - 21}, "a scrape of the larger tables", 60)
        series = '{job="exporter",kind="binary",transport="udp",direction="tx"}'
        self.assertGreater(min(m.query("rate(netmeter_wire_bytes_total%s[30s])" % series).values()), 0)
        out, _ = self.sender.communicate(timeout=20)
        datagrams = int(out)
        print("sent over three upgrades:", datagrams * (DATAGRAM + 28))
        expected = [datagrams * (DATAGRAM + 28)]
        lab.wait_for(lambda: list(m.query("netmeter_wire_bytes_total" + series).values()) == expected, expected)
        # Nothing went back, of any series.
        names = json.loads(m.get(m.PROMETHEUS, "/api/v1/label/__name__/values"))["data"]
        ours = ("magma_", "linux_", "netmeter_")
        counters = [name for name in names if name.endswith("_total") and name.startswith(ours)]
        self.assertGreater(len(counters), 5)
        for name in counters:
            self.assertEqual(m.query('max(resets(%s{job="exporter"}[60s]))' % name), {(): 0}, name)
        # No scrape failed; one that took its whole second says nothing.
        self.assertEqual(m.query("count_over_time((up == 0 and scrape_duration_seconds < 1)[60s:1s])"), {})


if __name__ == "__main__":
    lab.private_network()
    lab.main(200)
