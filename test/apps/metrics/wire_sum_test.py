# SPDX-License-Identifier: BSD-3-Clause
"""The expressions of docs/metrics.md are what interfaces counted, less link headers: to the
byte, on a gateway with uplinks, and on a host where services reach the cloud through a proxy.

Two services and a proxy run in the meter's cgroup. The first service talks to the
cloud through the proxy, the second directly. A Prometheus server scrapes the
exporter, and its sum() is compared with the interface's own counters. No
connection is closed before that: what follows a close (TIME_WAIT) reaches no
socket of this host, and is a remainder with tests of its own."""

import collections
import re
import subprocess
import time
import unittest

import gateway
import lab
import metrics_lab as m

LINK_HEADER = 14  # bytes of Ethernet
CLOUD_PORT, TLS_PORT = 9000, 443

# On the gateway: what reaches the proxy port goes to the cloud, and back.
PROXY = """
import socket, sys, threading
def copy(source, target):
    while True:
        data = source.recv(65536)
        if not data:
            return
        target.sendall(data)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    service = server.accept()[0]
    cloud = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    threading.Thread(target=copy, args=(service, cloud)).start()
    threading.Thread(target=copy, args=(cloud, service)).start()
"""

# A service: connects, sends each number of bytes that it reads from its input, and waits
# for the answer.
SERVICE = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
for line in sys.stdin:
    connection.sendall(bytes(int(line)))
    left = 2 * int(line)
    while left > 0:
        left -= len(connection.recv(65536))
    print("answered", flush=True)
"""


def bills():
    """{comment: expression} of the document."""
    with open("docs/metrics.md", encoding="utf-8") as file:
        (block,) = re.findall(r"<!-- bill: .*? -->\n```\n(.*?)\n```\n", file.read(), re.S)
    return dict(one.lstrip("# ").split("\n", 1) for one in block.split("\n\n"))


def expression(begin):
    (found,) = [promql for comment, promql in bills().items() if comment.startswith(begin)]
    return found


def interface():
    """{counter: value} of the link to the cloud."""
    return {
        "%s_%s" % (direction, unit): value
        for direction, counted in lab.counters()["gate"].items()
        for unit, value in zip(("bytes", "packets"), counted)
    }


class GatewayBillTest(gateway.GatewayTest):
    """Forwarded traffic is in an uplink's bill and in no series, and what this host sends to
    its LAN is in series and on no bill."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lan.serve(cls, gateway.ANSWERER)
        cls.load({"uplinks": cls.UPLINKS, "forwarded_clients": ["lan"]})
        exporter = m.start_exporter(cls.meter.pin_dir)
        cls.addClassCleanup(m.end, exporter)
        m.start_prometheus(cls, {"netmeter": m.HTTP})

    def test_the_total_of_an_uplink_is_its_bill(self):
        service = lab.start_service(self, "backup", gateway.SERVICE)
        for address, size in (("10.77.1.2", 100000), ("10.77.2.2", 30000), ("10.77.3.2", 400000)):
            self.ask(service, address, size)
        self.lan.run(lab.PYTHON, "-c", gateway.SERVICE, input=b"10.77.1.2 7000 50000\n")

        def on(link):
            now = lab.counters()[link]
            pairs = {way: [n - was for n, was in zip(now[way], self.before[link][way])] for way in ("tx", "rx")}
            return {way: float(bytes - LINK_HEADER * packets) for way, (bytes, packets) in pairs.items()}

        def ask(promql):
            found = {}
            for labels, value in m.query(promql).items():
                labels = dict(labels)
                sums = found.setdefault(labels.get("uplink"), collections.Counter())
                sums[labels["direction"]] += value
            return found

        expected = {"satellite": on("sat0"), "lte": on("wwan3")}
        total = expression("With uplinks")
        lab.wait_for(lambda: ask(total) == {**expected, "lan": on("lan0")}, "%s: %s" % (total, expected))
        # The sum of all series is no bill here. It lacks what was forwarded.
        every = ask(expression("Without uplinks"))[None]["rx"]
        self.assertGreater(every, 2 * 530000)
        named = ask(expression("By name"))
        self.assertLess(named["satellite"]["rx"], expected["satellite"]["rx"] - 100000)
        self.assertEqual(named["lte"], expected["lte"])
        forwarded = ask("sum by (uplink, direction) (netmeter_forwarded_bytes_total)") if gateway.MEASURED else {}
        for way, value in forwarded.get("satellite", {}).items():
            self.assertEqual(named["satellite"][way] + value, expected["satellite"][way])


class WireSumTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("wiresum")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({"proxy_ports": [lab.PROXY_PORT], "destination_suffixes": [".local"]})
        cls.cloud.serve(cls, gateway.ANSWERER, str(CLOUD_PORT), str(TLS_PORT))
        proxy = cls.meter.start(
            [lab.PYTHON, "-c", PROXY, str(lab.PROXY_PORT), cls.cloud.THERE, str(CLOUD_PORT)], stdout=subprocess.PIPE
        )
        cls.addClassCleanup(m.end, proxy)
        m.await_line(proxy, "ready")
        exporter = m.start_exporter(cls.meter.pin_dir)
        cls.addClassCleanup(m.end, exporter)
        m.start_prometheus(cls, {"netmeter": m.HTTP})

    def start(self, name, address, port):
        service = lab.start_service(self, name, SERVICE, address, str(port))
        self.assertEqual(service.stdout.readline(), "connected\n")
        return service

    def transfer(self, service, size):
        service.stdin.write("%d\n" % size)
        service.stdin.flush()
        self.assertEqual(service.stdout.readline(), "answered\n")

    def sums(self):
        """What the interface counted, less layer-2 headers."""
        found = interface()
        return {
            direction: found[direction + "_bytes"] - LINK_HEADER * found[direction + "_packets"]
            for direction in ("tx", "rx")
        }

    def by_direction(self, promql):
        return {dict(labels).get("direction"): value for labels, value in m.query(promql).items()}

    def await_sums(self, promql):
        """PromQL's answer, once it is the interface's: after the last delayed
        acknowledgement, and a scrape that has seen it."""

        def equal():
            found, expected = self.by_direction(promql), self.sums()
            if found == expected:
                return found
            print("%s: %s; the interface: %s" % (promql, found, expected), flush=True)
            time.sleep(0.5)
            return False

        return lab.wait_for(equal, promql)

    def test_sum_is_the_interface(self):
        wire = "sum by (direction) (netmeter_wire_bytes_total)"
        both = expression("Without uplinks")
        behind_proxy = self.start("behind", "127.0.0.1", lab.PROXY_PORT)
        self.transfer(behind_proxy, 3000000)
        direct = self.start("direct", self.cloud.THERE, TLS_PORT)
        # It has sent nothing yet, so its destination is unknown: the handshake is
        # pending.
        self.await_sums(both)
        lab.wait_for(lambda: m.query("sum(netmeter_pending_bytes) > 0"), "a handshake that is pending")

        # Enough to know that no name will come.
        self.transfer(direct, 500000)
        self.transfer(behind_proxy, 1000000)
        self.await_sums(both)
        sent = self.await_sums(wire)["tx"]
        self.assertEqual(m.query("sum(netmeter_pending_bytes) or vector(0)"), {(): 0})

        # What went through the proxy is known by service, too, and in the sum once.
        behind = 'sum by (direction) (netmeter_proxy_bytes_total{name="behind"})'
        lab.wait_for(lambda: self.by_direction(behind + " > 8000000").get("rx"), "the last bytes from the proxy")
        lab.wait_for(lambda: self.by_direction(behind + " > 4000000").get("tx"), "the last bytes to the proxy")
        # With headers, of which small segments on a busy machine have many.
        self.assertLess(sent, 4500000 + 4000000)
        self.assertEqual(m.query('netmeter_wire_bytes_total{name="behind"}'), {})
        m.promtool(m.get(m.HTTP))


if __name__ == "__main__":
    lab.private_network()
    lab.main(120)
