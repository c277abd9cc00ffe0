# SPDX-License-Identifier: BSD-3-Clause
"""50 scrapes a second, by HTTP and by gRPC, for a minute, while services come
and register, traffic flows and the loader is run every second. No error, no
value goes back, and the exporter's memory is flat."""

import os
import sys
import threading
import time
import unittest

import lab
import metrics_lab as m

SECONDS = 60
THREADS = 4  # of each sort
PER_SECOND = 50

# Registers under a name, and sends.
SERVICE = """
import socket, sys, time, netmeter
begin = time.monotonic()
meter = netmeter.Meter.open(sys.argv[3], service=sys.argv[2])
took = time.monotonic() - begin
if took > 0.05:
    print("registering took %.0f ms" % (1000 * took), flush=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(200):
    s.sendto(bytes(900), (sys.argv[1], 9))
    time.sleep(0.005)
"""


# Belongs to no service.
TRAFFIC = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    s.sendto(bytes(900), (sys.argv[1], 9))
    time.sleep(0.005)
"""

HTTP_ALL = "127.0.0.1:9385"
GRPC_ALL = "127.0.0.1:50085"


def memory_kib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise AssertionError("no VmRSS")


class Reader(threading.Thread):
    """Reads all values, again and again, at a pace."""

    def __init__(self, read, pause, stop):
        super().__init__()
        self.read, self.pause, self.stop_event = read, pause, stop
        self.scrapes = 0
        self.slowest = 0.0
        self.last = {}
        self.errors = []

    def run(self):
        due = time.monotonic()
        while not self.stop_event.is_set():
            begin = time.monotonic()
            try:
                self.take(self.read())
            except Exception as error:  # pylint: disable=broad-except
                self.errors.append(repr(error))
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.scrapes += 1
            due += self.pause
            self.stop_event.wait(max(0, due - time.monotonic()))

    def take(self, values):
        if values.get(("netmeter_up",)) != 1:
            self.errors.append("netmeter_up: %s" % values.get(("netmeter_up",)))
        for key, value in values.items():
            if key[0].endswith("_total") and value < self.last.get(key, 0):
                self.errors.append("%s went back from %d to %d" % (key, self.last[key], value))
        self.last.update(values)


class LoadTest(unittest.TestCase):
    def test_a_minute_of_it(self):
        cloud = lab.Cloud()
        meter = lab.Meter("load")
        self.addCleanup(meter.close)
        size = 256

        def load():
            meter._load("load", "--quiet", "--group", "", "--cgroup", meter.cgroup, "--max-series", str(size))

        load()
        # One publishes what no service does: series go as services register.
        exporters = [
            m.start_exporter(meter.pin_dir, "--omit-registered", "--service303-families", "default"),
            m.start_exporter(meter.pin_dir, "--listen", HTTP_ALL, "--service303", GRPC_ALL),
        ]
        for exporter in exporters:
            self.addCleanup(m.end, exporter)
        stop = threading.Event()
        pause = 2 * THREADS / PER_SECOND
        readers = []
        for i in range(THREADS):
            grpc_address, http_address = ((m.GRPC, m.HTTP), (GRPC_ALL, HTTP_ALL))[i % 2]
            client = m.Service303Client(grpc_address)
            self.addCleanup(client.close)
            readers.append(Reader(lambda c=client: m.values(c.metrics()), pause, stop))
            readers.append(Reader(lambda a=http_address: m.text_values(m.get(a)), pause, stop))
        traffic = meter.start([lab.PYTHON, "-c", TRAFFIC, cloud.THERE])
        self.addCleanup(m.end, traffic)
        for reader in readers:
            reader.start()
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        services = []
        memory = []
        begin = time.monotonic()
        loads = 0
        try:
            while time.monotonic() - begin < SECONDS:
                services.append(
                    meter.start(
                        [lab.PYTHON, "-c", SERVICE, cloud.THERE, "service%d" % (len(services) % 20), meter.pin_dir],
                        env=env,
                    )
                )
                if loads % 10 == 9:
                    size += 64  # other maps, which readers have to follow
                load()
                loads += 1
                memory.append(max(memory_kib(exporter.pid) for exporter in exporters))
                time.sleep(max(0, begin + loads - time.monotonic()))
        finally:
            stop.set()
            for reader in readers:
                reader.join()
            failed = [service.args for service in services if service.wait() != 0]
        took = time.monotonic() - begin
        scrapes = sum(reader.scrapes for reader in readers)
        print(
            "%d scrapes in %.0f s, slowest %.0f ms; %d loads, %d services; memory %d KiB at 10 s, %d at the end"
            % (
                scrapes,
                took,
                1000 * max(reader.slowest for reader in readers),
                loads,
                len(services),
                memory[len(memory) // 6],
                memory[-1],
            )
        )
        self.assertEqual(failed, [])
        for reader in readers:
            self.assertEqual(reader.errors, [])
            self.assertGreater(sum(value > 1000 for value in reader.last.values()), 2)
        self.assertGreater(scrapes, loads)  # how many, is the machine's
        self.assertLess(memory[-1], memory[len(memory) // 6] + 4096)
        for exporter in exporters:
            self.assertEqual(m.end(exporter), 0)


if __name__ == "__main__":
    lab.private_network()
    lab.main(200)
