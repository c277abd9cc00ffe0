# SPDX-License-Identifier: BSD-3-Clause
"""Each recipe of docs/metrics.md is answered by a real Prometheus with the right number. The
gateways are four weeks of samples that promtool writes, so each answer is known."""

import calendar
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

DOCUMENT = "docs/metrics.md"
NOW = calendar.timegm((2026, 11, 18, 10, 20, 0))
EVERY = 1200
BEGIN, WEEK_AGO = NOW - 21 * 86400, NOW - 7 * 86400
SILENT_SINCE = NOW - 3600
GATEWAYS = ("gate-a", "gate-b")

# {(metric, labels): (bytes a second until a week ago, and since)}; the second gateway has
# twice as many.
RATES = {
    ("netmeter_uplink_bytes_total", (("uplink", "satellite"), ("interface", "sat0"), ("direction", "tx"))): (100, 150),
    ("netmeter_uplink_bytes_total", (("uplink", "satellite"), ("interface", "sat0"), ("direction", "rx"))): (900, 1350),
    ("netmeter_uplink_bytes_total", (("uplink", "lte"), ("interface", "wwan3"), ("direction", "rx"))): (10, 10),
    ("netmeter_forwarded_bytes_total", (("uplink", "satellite"), ("interface", "br0"), ("direction", "rx"))): (300, 400),
    ("netmeter_tcp_retransmit_bytes_total", (("kind", "binary"), ("name", "p1"), ("destination", ""))): (1, 5),
}
NAMES = {"p1": 70, "p2": 60, "p3": 50, "p4": 40, "p5": 30, "p6": 20, "overflow": 5, "unattributed": 5}
for one, rate in NAMES.items():
    labels = (("kind", one if one[0] != "p" else "binary"), ("name", one), ("destination", ""), ("transport", "tcp"))
    labels += (("direction", "tx"), ("uplink", "lte" if one == "p1" else "satellite"))
    RATES["netmeter_wire_bytes_total", labels] = (rate, rate)
GAUGES = {
    ("netmeter_cost_micros", (("plan", "satellite"), ("uplink", "satellite"), ("currency", "USD"))): 65250000,
    ("up", ()): 1,
}
BUDGETS = {"month": 900000000, "calm": 300000000}
LIMIT = 1000000000
for one, used in BUDGETS.items():
    labels = (("budget", one), ("uplink", "satellite"), ("direction", "both"))
    GAUGES["netmeter_budget_limit_bytes", labels] = LIMIT
    GAUGES["netmeter_budget_used_bytes", labels] = used


def counted(rates, begin, end):
    """Between two times."""
    before, since = rates
    return before * max(0, min(end, WEEK_AGO) - begin) + since * max(0, end - max(begin, WEEK_AGO))


def uplinks(begin, end, factor):
    return {
        "satellite": factor * (counted((100, 150), begin, end) + counted((900, 1350), begin, end)),
        "lte": factor * counted((10, 10), begin, end),
    }


def expected():
    """{the first words of a recipe: {values of labels: number}}, for all but the gateway that is
    silent."""
    day, hour = NOW - 86400, NOW - NOW % 3600
    midnight, month = NOW - NOW % 86400, calendar.timegm((2026, 11, 1, 0, 0, 0))
    rest = calendar.timegm((2026, 12, 1, 0, 0, 0)) - NOW
    names = sorted(NAMES, key=NAMES.get, reverse=True)
    return {
        "Bytes of each budget": {(name,): used for name, used in BUDGETS.items()},
        "Budgets used": {("month",): BUDGETS["month"] / LIMIT},
        "Cost": {("USD",): 65.25},
        "Bytes of an uplink today": {(u,): n for u, n in uplinks(midnight, hour, 1).items()},
        "Bytes of an uplink this month": {(u,): n for u, n in uplinks(month, hour, 1).items()},
        "The five names": {(name,): NAMES[name] * 86400 for name in names[1:6]},
        "Forwarded": {("br0",): counted((300, 400), day, NOW)},
        "Growth": {("satellite",): 0.5, ("lte",): 0},
        "Forecast": {(name,): used + 1500 * rest for name, used in BUDGETS.items()},
        "Part of the sent": {(): 5 / sum(NAMES.values())},
        "Part of the last": {(): 10 / sum(NAMES.values())},
        "Silent": {("gate-b",): 1},
        "Cardinality": {("gate-a",): len(RATES) + len(GAUGES) - 1},
    }


def series():
    """Lines of OpenMetrics, by metric."""
    found = {}
    for factor, gateway in enumerate(GATEWAYS, 1):
        end = NOW if gateway == GATEWAYS[0] else SILENT_SINCE
        for (metric, own), value in {**RATES, **GAUGES}.items():
            text = ",".join('%s="%s"' % label for label in (("job", "netmeter"), ("instance", gateway), *own))
            for now in range(BEGIN, end + 1, EVERY):
                number = factor * (counted(value, BEGIN, now) if isinstance(value, tuple) else value)
                found.setdefault(metric, []).append("%s{%s} %d %d\n" % (metric, text, number, now))
    return found


def recipes():
    """{comment: query} of the document."""
    with open(DOCUMENT, encoding="utf-8") as file:
        (block,) = re.findall(r"<!-- recipes: .*? -->\n```\n(.*?)\n```\n", file.read(), re.S)
    return dict(re.match(r"# (.*)\n((?:.|\n)*)", one).groups() for one in block.split("\n\n"))


class RecipesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        text = folder.name + "/samples"
        with open(text, "w", encoding="utf-8") as file:
            for metric, lines in series().items():
                name = metric[:-6] if metric.endswith("_total") else metric
                file.write("# TYPE %s %s\n" % (name, "gauge" if name == metric else "counter"))
                file.writelines(lines)
            file.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=512h", "-q"]
        subprocess.run([*command, text, folder.name + "/data"], check=True, timeout=120, stdout=subprocess.DEVNULL)
        config = folder.name + "/prometheus.yml"
        with open(config, "w", encoding="utf-8"):
            pass
        with socket.create_server(("127.0.0.1", 0)) as server:
            cls.address = "127.0.0.1:%d" % server.getsockname()[1]
        command = ["prometheus", "--config.file=" + config, "--storage.tsdb.path=%s/data" % folder.name]
        command += ["--storage.tsdb.retention.time=100y", "--web.listen-address=" + cls.address, "--log.level=error"]
        process = subprocess.Popen(command)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        while process.poll() is None:
            try:
                urllib.request.urlopen("http://%s/-/ready" % cls.address, timeout=30).close()
                return
            except OSError:  # 503, while it reads its storage
                time.sleep(0.1)
        raise AssertionError("Prometheus ended")

    def query(self, promql):
        """[(labels, value)]"""
        words = urllib.parse.urlencode({"query": promql, "time": NOW})
        with urllib.request.urlopen("http://%s/api/v1/query?%s" % (self.address, words), timeout=60) as reply:
            rows = json.load(reply)["data"]["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def test_each_recipe_has_the_right_number(self):
        left = dict(recipes())
        for begin, numbers in expected().items():
            (comment,) = [comment for comment in left if comment.startswith(begin)]
            with self.subTest(comment):
                rows = self.query(left.pop(comment))
                print(comment, *rows, sep="\n    ")
                if begin != "Silent":
                    rows = [row for row in rows if row[0].get("instance") != GATEWAYS[1]]
                self.assertEqual(len(rows), len(numbers))
                for words, number in numbers.items():
                    (value,) = [value for labels, value in rows if set(words) <= set(labels.values())]
                    self.assertAlmostEqual(value, number, delta=0.001 * abs(number) + 1e-9)
        self.assertEqual(left, {})

    def test_the_labels_are_those_of_the_document(self):
        with open(DOCUMENT, encoding="utf-8") as file:
            table = re.search(r"<!-- metrics: .*?\n\n", file.read(), re.S)[0]
        rows = dict(re.findall(r"(?m)^\| `(netmeter_\w+)` \| (.*?) \|", table))
        for metric, own in {**RATES, **GAUGES}:
            if metric != "up":
                words = re.findall(r"`(\w+)`", rows[metric])
                known = re.findall(r"`(\w+)`", rows[words[0]]) if words[0] in rows else words
                self.assertLessEqual({name for name, _ in own} - {"uplink"}, set(known), metric)


if __name__ == "__main__":
    unittest.main()
