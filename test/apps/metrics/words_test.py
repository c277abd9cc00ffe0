# SPDX-License-Identifier: BSD-3-Clause
"""One word for one thing: the fields of Sample and Health, the keys of `netmeter
list --json` and `netmeter-loader status --json`, and the names and labels of
metrics are the same words, with the same values."""

import calendar
import dataclasses
import json
import os
import subprocess
import time
import unittest

import lab
import metrics_lab as m
import netmeter
import tools

SENDER = """
import socket, sys, netmeter
meter = netmeter.Meter.open(sys.argv[2], service="words")
for address in ((sys.argv[1], 9), ("127.0.0.1", %d)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    netmeter.tag_socket(s, "streamer")
    for _ in range(10):
        s.sendto(bytes(100), address)
s = socket.socket()
s.settimeout(5)
try:
    s.connect((sys.argv[1], 9))
except OSError:
    pass
""" % lab.PROXY_PORT


def fields(cls):
    return [field.name for field in dataclasses.fields(cls)]


class WordsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        meter = lab.Meter("words")
        cls.addClassCleanup(meter.close)
        meter.load({"proxy_ports": [lab.PROXY_PORT]})
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(m.sys.path)}
        meter.run([lab.PYTHON, "-c", SENDER, cls.cloud.THERE, meter.pin_dir], env=env)
        directory = lab.temporary_directory(cls)
        cls.history = ["--database", os.path.join(directory, "history.db")]
        cls.budgets = os.path.join(directory, "budgets.yml")
        with open(cls.budgets, "w") as file:
            file.write("budgets:\n  - {name: all, limit: 5 kB, warn: [1]}\n")
            file.write("  - {name: to streamer, limit: 10 GB, service: words, kind: service, destination: streamer, direction: tx}\n")
            file.write("plans:\n  - {name: by the kB, currency: EUR, fee: 2.50, price: 0.01/kB, round: 1 kB}\n")
        lab.run(tools.NETMETER, "record", "--pin-dir", meter.pin_dir, *cls.history)
        exporter = m.start_exporter(meter.pin_dir, "--families", "all", "--budgets", cls.budgets, *cls.history)
        cls.addClassCleanup(m.end, exporter)
        text = m.get(m.HTTP)
        m.promtool(text)
        cls.metrics = m.text_values(text)
        cls.rows = json.loads(lab.run(tools.NETMETER, "list", "--json", "--pin-dir", meter.pin_dir))
        cls.status = json.loads(lab.run(lab.LOADER, "status", "--json", "--pin-dir", meter.pin_dir))
        with netmeter.Meter.open(meter.pin_dir) as reader:
            cls.samples = reader.read_host()
            cls.health = reader.read_health()

    def test_list_has_the_fields_of_sample(self):
        self.assertTrue(self.rows)
        for row in self.rows:
            self.assertEqual(list(row), fields(netmeter.Sample))
            if row["tcp"] is not None:
                self.assertEqual(sorted(row["tcp"]), sorted(fields(netmeter.TcpConnections)))
        self.assertTrue([row for row in self.rows if row["tcp"] is not None])

    def test_list_has_the_values_of_sample(self):
        def plain(sample):
            row = dataclasses.asdict(sample)
            for key in ("kind", "transport", "path"):
                row[key] = row[key].value
            if row["tcp"] is not None:
                row["tcp"]["rtt_buckets"] = list(row["tcp"]["rtt_buckets"])
            return row

        order = [key for key in fields(netmeter.Sample) if key != "tcp"]
        ordered = lambda rows: sorted(rows, key=lambda row: [str(row[key]) for key in order])
        self.assertEqual(ordered(map(plain, self.samples)), ordered(self.rows))

    def test_labels_are_the_keys_of_a_series(self):
        keys = ("kind", "name", "destination", "transport")
        expected = {}
        for row in self.rows:
            family = {"direct": "wire", "proxy": "proxy"}[row["path"]]
            for direction in ("tx", "rx"):
                labels = tuple((key, row[key]) for key in keys) + (("direction", direction),)
                for unit in ("bytes", "packets"):
                    name = "netmeter_%s_%s_total" % (family, unit)
                    expected[(name, *labels)] = row["%s_%s" % (direction, unit)]
        self.assertEqual({row["path"] for row in self.rows}, {"direct", "proxy"})
        found = {key: value for key, value in self.metrics.items() if key in expected}
        self.assertEqual(found, expected)
        counted = ("netmeter_wire_", "netmeter_proxy_")
        self.assertEqual([key for key in self.metrics if key[0].startswith(counted) and key not in expected], [])

    def test_budgets(self):
        done = subprocess.run(
            [tools.NETMETER, "budget", "--json", "--budgets", self.budgets, *self.history], stdout=subprocess.PIPE, timeout=20
        )
        self.assertEqual(done.returncode, 3)
        rows = json.loads(done.stdout)
        selects = {"all": ("", "", "", "both"), "to streamer": ("service", "words", "streamer", "tx")}
        expected = {("netmeter_budget_error",): 0}
        cost = rows.pop()
        labels = (("plan", cost["plan"]), ("uplink", ""), ("currency", cost["currency"]))
        self.assertEqual({key: value for key, value in self.metrics.items() if "_cost_" in key[0]},
                         {("netmeter_cost_micros", *labels): cost["cost_micros"]})
        for row in rows:
            kind, name, destination, direction = selects[row["name"]]
            labels = (("budget", row["name"]), ("uplink", ""), ("kind", kind), ("name", name))
            labels += (("destination", destination), ("path", "direct"), ("direction", direction))
            for what in ("limit", "used"):
                expected[("netmeter_budget_%s_bytes" % what, *labels)] = row[what + "_bytes"]
        self.assertEqual({key: value for key, value in self.metrics.items() if "_budget_" in key[0]}, expected)
        # 10 datagrams to the streamer, and the SYN with what came back.
        used = {row["name"]: row["used_bytes"] for row in rows}
        self.assertEqual(used["to streamer"], 10 * (100 + 28))
        direct = [row for row in self.rows if row["path"] == "direct"]
        self.assertEqual(used["all"], sum(row["tx_bytes"] + row["rx_bytes"] for row in direct))
        self.assertEqual(cost["used_bytes"], used["all"])
        self.assertEqual(cost["cost_micros"], 2500000 + -(-used["all"] // 1000) * 10000)
        usage = [tools.NETMETER, "usage", "--json", "--budgets", self.budgets, *self.history]
        usage = json.loads(subprocess.run(usage, stdout=subprocess.PIPE, timeout=20, check=True).stdout)
        self.assertEqual(usage["costs"], [cost])
        self.assertEqual(sum(row["cost_micros"] for row in usage["rows"]), cost["cost_micros"])

    def test_losses(self):
        losses = {
            (unit, reason): count
            for unit, reasons in self.status["misattributed"].items()
            for reason, count in reasons.items()
        }
        in_metrics = {
            (key[0].split("_")[2], dict(key[1:])["reason"]): value
            for key, value in self.metrics.items()
            if key[0].startswith("netmeter_misattributed_")
        }
        in_health = {(row.unit, row.reason): row.count for row in self.health.misattributed}
        self.assertEqual(in_metrics, losses)
        self.assertEqual(in_health, losses)
        self.assertGreater(len(losses), 5)

    def test_the_meter_itself(self):
        ((_, *labels),) = [key for key in self.metrics if key[0] == "netmeter_build_info"]
        for name, value in labels:
            self.assertEqual(value, self.status[name], name)
            self.assertEqual(value, getattr(self.health, name), name)
        self.assertEqual([name for name, _ in labels], ["version", "abi", "kernel"])
        self.assertEqual(self.status["cgroup"], self.health.cgroup)
        self.assertEqual(len(self.health.config_hash), 16)
        self.assertEqual(self.status["config_hash"], self.health.config_hash)
        labels = (("hash", self.health.config_hash), ("version", self.health.version))
        self.assertEqual(self.metrics["netmeter_config_info", *labels], 1)

        def seconds(key):
            return calendar.timegm(time.strptime(self.status[key], "%Y-%m-%dT%H:%M:%SZ"))

        # Each by the clock of the moment when it was read.
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.assertAlmostEqual(self.metrics[("netmeter_start_time_seconds",)], seconds("start_time"), delta=2)
        self.assertAlmostEqual(boot + self.health.start_time_ns / 10**9, seconds("start_time"), delta=2)
        self.assertAlmostEqual(boot + self.health.load_time_ns / 10**9, seconds("load_time"), delta=2)
        self.assertEqual(self.metrics[("netmeter_series",)], self.status["tables"]["series"]["used"])
        self.assertEqual(self.metrics[("netmeter_series_limit",)], self.status["tables"]["series"]["limit"])
        self.assertEqual(self.health.series, self.status["tables"]["series"]["used"])


if __name__ == "__main__":
    lab.private_network()
    lab.main(60)
