# SPDX-License-Identifier: BSD-3-Clause
"""What a load changes, readers that run follow at their next read: the exporter, a
service in C++ and a collector in Python. No byte is lost or in two names."""

import json
import os
import subprocess
import unittest

import clients
import lab
import metrics_lab as m

CPP14 = "127.0.0.1:50062"
SIZE = 10000
LONG = {host: "%s-controller.magma.test" % host for host in ("streamer", "state")}

# In the cloud: reads requests, answers none.
SINK = """
import socket, threading
server = socket.create_server(("0.0.0.0", 80))
print("ready", flush=True)
def drain(connection):
    while connection.recv(65536):
        pass
while True:
    threading.Thread(target=drain, args=(server.accept()[0],)).start()
"""

# A request to each host, on connections that stay; more with each line read.
SERVICE = """
import socket, sys
connections = []
for host in sys.argv[2:]:
    connections.append(socket.create_connection((sys.argv[1], 80)))
    connections[-1].sendall(b"POST / HTTP/1.1\\r\\nHost: " + host.encode() + b"\\r\\n\\r\\n")
print("sent", flush=True)
for line in sys.stdin:
    for connection in connections:
        connection.sendall(bytes(int(line)))
    print("sent", flush=True)
"""

# Prints what the collector publishes, for each line read.
COLLECTOR = """
import json, sys, netmeter
from netmeter.prometheus import Collector, Scope
collector = Collector(netmeter.Meter.open(sys.argv[1]), Scope.HOST)
for line in sys.stdin:
    rows = []
    for family in collector.collect():
        rows += [[sample[0], sample[1], sample[2]] for sample in family.samples]
    print(json.dumps(rows), flush=True)
"""


class ReloadTest(unittest.TestCase):
    def sent(self):
        """{reader: {destination: payload bytes}} of the service mme."""
        name = "magma_bytes_sent_total"
        self.collector.stdin.write("\n")
        self.collector.stdin.flush()
        rows = json.loads(self.collector.stdout.readline())
        pages = {
            "exporter, HTTP": m.text_values(m.get(m.HTTP)),
            "exporter, gRPC": m.values(self.exporter_client.metrics()),
            "C++": m.values(self.cpp_client.metrics()),
            "Python": {(family, *labels.items()): value for family, labels, value in rows},
        }
        return {
            reader: {
                dict(key[1:])["dest_service"]: value
                for key, value in page.items()
                if key[0] == name and dict(key[1:])["service_name"] == "mme"
            }
            for reader, page in pages.items()
        }

    def await_sent(self, expected):
        """In each reader, once all is on the wire and the exporter's page is a new one."""
        lab.wait_for(lambda: all(found == expected for found in self.sent().values()), str(expected))

    def load(self, suffixes, unknown="keep"):
        self.meter.load(
            {"destination_suffixes": suffixes, "unknown_destinations": unknown, "proxy_ports": [lab.PROXY_PORT]}
        )

    def test_readers_follow_a_load(self):
        lab.private_network()
        cloud = lab.Cloud()
        self.directory = lab.temporary_directory(type(self))
        self.meter = lab.Meter("reload")
        self.addCleanup(self.meter.close)
        self.load([".local"])
        cloud.serve(self, SINK)
        self.addCleanup(m.end, m.start_exporter(self.meter.pin_dir, "--families", "default"))
        cpp = self.meter.start([m.CPP14, CPP14, self.meter.pin_dir], stdout=subprocess.PIPE)
        self.addCleanup(m.end, cpp)
        m.await_line(cpp, "serving")
        self.exporter_client, self.cpp_client = m.Service303Client(m.GRPC), m.Service303Client(CPP14)
        self.addCleanup(self.exporter_client.close)
        self.addCleanup(self.cpp_client.close)
        self.collector = subprocess.Popen(
            [PYTHON, "-c", COLLECTOR, self.meter.pin_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": lab.BINDING},
            text=True,
        )
        self.addCleanup(m.end, self.collector)
        self.addCleanup(self.collector.stdin.close)
        service = lab.start_service(self, "mme", SERVICE, cloud.THERE, *LONG.values())
        self.assertEqual(service.stdout.readline(), "sent\n")

        head = {host: len("POST / HTTP/1.1\r\nHost: \r\n\r\n" + LONG[host]) for host in LONG}
        self.await_sent({LONG[host]: head[host] for host in LONG})
        self.load(["-controller.magma.test"])
        self.await_sent(head)
        # More of it, while it has other names; series are the same ones.
        service.stdin.write("%d\n" % SIZE)
        service.stdin.flush()
        self.await_sent({host: head[host] + SIZE for host in LONG})
        self.load([".local"], unknown="other")
        self.await_sent({"other": sum(head.values()) + 2 * SIZE})
        self.load([".local"])
        self.await_sent({LONG[host]: head[host] + SIZE for host in LONG})


if __name__ == "__main__":
    # Before the test's time begins: it builds from PyPI, and waits for others that do.
    PYTHON = clients.make_venv("prometheus_client", "==0.3.1", clients.FROM_SOURCE)
    lab.main(120)
