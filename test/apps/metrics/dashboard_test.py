# SPDX-License-Identifier: BSD-3-Clause
"""Each query of the dashboard, as a real Prometheus answers it that scrapes the real
exporter: none is without data, on a host where there is something to see in each panel.
Prometheus also scrapes what `netmeter cost --prometheus` prints, as a node exporter
would publish it."""

import http.server
import json
import math
import os
import subprocess
import sys
import threading
import time
import unittest

import lab
import metrics_lab as m
import tools

DASHBOARD = os.path.abspath("packaging/grafana/netmeter.json")
COST = "127.0.0.1:9100"
SERVER_PORT, TLS_PORT = 9000, 443
MAX_SERIES = 64

# What Grafana puts in for its variables.
VARIABLES = {
    "$__rate_interval": "15s",
    "$__range": "30s",
    "$job": "netmeter",
    "$instance": ".*",
    "$cost_instance": ".*",
}

# In the cloud: reads what arrives, and answers with the same number of bytes.
SERVER = """
import socket, sys, threading
def answer(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
silent = socket.create_server(("0.0.0.0", int(sys.argv[2])))
print("ready", flush=True)
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""

# On the gateway, what would be a proxy: here it answers itself.
PROXY = SERVER.replace("0.0.0.0", "127.0.0.1")

# Connects, sends, and closes, again and again; a connection is refused each time, too.
CLIENT = """
import socket, sys, time
host, port, refused = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
while True:
    with socket.create_connection((host, port)) as connection:
        for _ in range(40):
            connection.sendall(bytes(3000))
            got = 0
            while got < 3000:
                got += len(connection.recv(65536))
            time.sleep(0.005)
    if refused:
        try:
            socket.create_connection((host, refused))
        except OSError:
            pass
"""

# Says nothing yet to a port where names are read: the handshake is pending.
SILENT = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
time.sleep(600)
"""

# More destinations than there is room for.
MANY = """
import socket, sys, time, netmeter
while True:
    for i in range(int(sys.argv[2])):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            try:
                netmeter.tag_socket(out, "destination%d" % i)
            except netmeter.NotFoundError:
                pass  # unloaded, for a moment
            out.sendto(bytes(100), (sys.argv[1], 9))
        time.sleep(0.005)
"""

# A service that was here, and ended: its series can be evicted.
GONE = """
import socket, sys, netmeter
netmeter.Meter.open(sys.argv[2], service="gone")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.sendto(bytes(100), (sys.argv[1], 9))
"""


def filled_dashboard():
    """The dashboard, with its variables filled in."""
    with open(DASHBOARD, encoding="utf-8") as file:
        text = file.read()
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    return json.loads(text)


def expressions():
    """(panel, expression) of each query of the dashboard."""
    dashboard = filled_dashboard()
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return found + [(note["name"], note["expr"]) for note in dashboard["annotations"]["list"]]


def interface_bytes():
    """What the gateway's end of the cable counted, by direction."""
    return {way: size for way, (size, _) in lab.counters()["gate"].items()}


class CostPage(http.server.BaseHTTPRequestHandler):
    """What the textfile collector would publish, made anew for each scrape."""

    pin_dir = ""

    def do_GET(self):  # pylint: disable=invalid-name
        try:
            command = [tools.NETMETER, "cost", "--prometheus", "--pin-dir", self.pin_dir]
            body = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        except subprocess.CalledProcessError:  # while no meter is loaded
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):  # pylint: disable=arguments-differ
        pass


class DashboardTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("dashboard")
        cls.addClassCleanup(cls.meter.close)
        # Room for few series: what has none is `overflow`.
        cls.config = {"proxy_ports": [lab.PROXY_PORT], "max_series": MAX_SERIES, "uplinks": {"satellite": ["gate"]}}
        cls.meter.load(cls.config)
        cls.cloud.serve(cls, SERVER, str(SERVER_PORT), str(TLS_PORT))
        proxy = cls.meter.start([lab.PYTHON, "-c", PROXY, str(lab.PROXY_PORT), "0"], stdout=subprocess.PIPE)
        cls.addClassCleanup(m.end, proxy)
        m.await_line(proxy, "ready")
        there = cls.cloud.THERE
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        cls.meter.run([lab.PYTHON, "-c", GONE, there, cls.meter.pin_dir], env=env)
        for arguments in (
            (CLIENT, there, str(SERVER_PORT), "9"),
            (CLIENT, "127.0.0.1", str(lab.PROXY_PORT), "0"),
            (SILENT, there, str(TLS_PORT)),
            (MANY, there, str(2 * MAX_SERIES)),
        ):
            client = cls.meter.start([lab.PYTHON, "-c", *arguments], env=env)
            cls.addClassCleanup(m.end, client)
        cls.forward()
        # Measured for as long as the test: it switches the kernel's measuring on.
        cost = subprocess.Popen(
            [tools.NETMETER, "cost", "--seconds", "600", "--json", "--pin-dir", cls.meter.pin_dir], stdout=subprocess.DEVNULL
        )
        cls.addClassCleanup(m.end, cost)
        cls.exporter = cls.start_exporter()
        cls.addClassCleanup(lambda: m.end(cls.exporter))
        CostPage.pin_dir = cls.meter.pin_dir
        page = http.server.ThreadingHTTPServer(("127.0.0.1", int(COST.split(":")[1])), CostPage)
        cls.addClassCleanup(page.server_close)
        cls.addClassCleanup(page.shutdown)
        threading.Thread(target=page.serve_forever, daemon=True).start()
        m.start_prometheus(cls, {"netmeter": m.HTTP, "node": COST})

    @classmethod
    def forward(cls):
        """A datagram from a LAN behind the gateway."""
        lan = lab.Network()
        lan.join("lan0", "eth0", 3)
        lan.run("ip", "route", "add", "default", "via", "10.77.3.1")
        lab.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(100), (%r, 9))"
        lan.run(lab.PYTHON, "-c", send % cls.cloud.THERE)

    @classmethod
    def start_exporter(cls):
        budgets = os.path.join(cls.directory, "budgets.yml")
        database = os.path.join(cls.directory, "history.db")
        with open(budgets, "w", encoding="utf-8") as file:
            json.dump({"budgets": [{"name": "satellite", "limit": "1 GB", "uplink": "satellite"}]}, file)
        lab.run(tools.NETMETER, "record", "--pin-dir", cls.meter.pin_dir, "--database", database)
        return m.start_exporter(cls.meter.pin_dir, "--families", "all", "--budgets", budgets, "--database", database)

    def test_1_each_query_has_data(self):
        queries = expressions()
        self.assertGreaterEqual(len(queries), 40)
        # Alone the annotation waits for a meter that begins anew.
        missing = dict.fromkeys(queries)
        for _ in range(2):  # the first takes note, the second compares
            lab.run(lab.LOADER, "evict", "--quiet", "--idle", "1", "--pin-dir", self.meter.pin_dir)
            time.sleep(2)
        end = time.monotonic() + 60
        while missing and time.monotonic() < end:
            time.sleep(1)
            for query in list(missing):
                rows = m.query(query[1])
                if any(math.isfinite(value) for value in rows.values()) or query[0] == "Counting began anew":
                    del missing[query]
        self.assertEqual(list(missing), [])
        print("%d queries of %d panels have data" % (len(queries), len({title for title, _ in queries})))

    def test_4_jobs_are_not_summed_by_themselves(self):
        # A service that publishes itself has the same series as another job.
        with open(DASHBOARD, encoding="utf-8") as file:
            (job,) = [v for v in json.load(file)["templating"]["list"] if v["name"] == "job"]
        self.assertEqual((job["current"]["value"], job["includeAll"]), (["netmeter"], False))

    def value(self, title, queries=1):
        """Of the first of the panel's queries, once there is one: a scrape that takes longer than a
        second is none."""
        found = [promql for name, promql in expressions() if name == title]
        self.assertEqual(len(found), queries, title)
        return lab.wait_for(lambda: m.query(found[0]), title)

    def await_value(self, title, value):
        lab.wait_for(lambda: list(self.value(title).values()) == [value], "%s: %d" % (title, value))

    def test_2_what_is_seen_is_so(self):
        # How much the client gets through depends on the machine; the interface knows.
        before, begun = interface_bytes(), time.time()
        scraped = 'timestamp(up{job="netmeter"})'
        lab.wait_for(lambda: min(m.query(scraped).values()) > begun + 15, "scrapes of 15 seconds", 60)
        seconds = time.time() - begun
        of_interface = {way: (n - before[way]) / seconds for way, n in interface_bytes().items()}
        of_dashboard = {dict(key)["direction"]: value for key, value in self.value("On the link").items()}
        self.assertEqual(set(of_dashboard), {"tx", "rx"})
        for way, rate in of_interface.items():
            self.assertGreater(of_dashboard[way], 0.5 * rate)
            self.assertLess(of_dashboard[way], 2 * rate)
        names = {dict(key)["uplink"] for key in self.value("By uplink") if "uplink" in dict(key)}
        # Without a word for them they had no name in the legend: overflow has no uplink.
        self.assertEqual(names, {"satellite", "(no uplink)"})
        (used,) = self.value("Budgets used", queries=2).values()
        self.assertGreater(used, 0)
        self.assertLess(used, 1)
        self.await_value("Hosts that count", 1)
        self.await_value("Meter down", 0)
        # Nothing was retransmitted on this cable; a nanosecond or more each run took.
        for value in self.value("Time of a run").values():
            if math.isfinite(value):
                self.assertLess(1e-9, value)
                self.assertLess(value, 1e-3)

    def test_3_a_meter_that_is_down_is_seen(self):
        m.end(self.exporter)
        self.await_value("Meter down", 1)
        type(self).exporter = self.start_exporter()
        self.await_value("Meter down", 0)
        self.meter.unload()
        self.await_value("Meter down", 1)
        self.meter.load(self.config)
        self.await_value("Meter down", 0)
        # Which is a mark in each chart.
        self.value("Counting began anew")


if __name__ == "__main__":
    lab.private_network()
    lab.main(200)
