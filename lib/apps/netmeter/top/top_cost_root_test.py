#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `netmeter top` costs while 4,096 series move: its share of a CPU on a terminal of
80x24, as it stands there, and while somebody works with it.

How fast a CPU is when it is woken once a second is the machine's affair: the same top took
from 1.3 to 2.1 % on one, and a limit of 2 % has failed there with nothing changed. So it
is paired: a process beside it, woken as often, does a work that stays the same, and the
limits are in units of that."""

import itertools
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import time
import unittest

import lab
import tools

SERVICES, DESTINATIONS = 64, 64  # the number of series is the product
ROUNDS, SECONDS = 5, 4
# A multiple of the reference's cost. It was 1.2 to 1.6 on one machine, and 1.6 to 2.2 on
# another that ran two of these tests. A top that does all its work twice takes more.
MOST = 3

# Twice a second, one row for each series is parsed and sorted.
REFERENCE = """
import json, time
row = {"service": "service00", "destination": "destination00", "tx_bytes": 1234567, "rx_bytes": 7654321}
text = json.dumps([dict(row, key=k * 7919 %% 4096) for k in range(%d)])
print("ready", flush=True)
while True:
    for _ in range(2):
        rows = json.loads(text)
        rows.sort(key=lambda row: row["key"])
    time.sleep(1)
""" % (SERVICES * DESTINATIONS)

# A datagram from each of the sockets, about once a second: each series moves between
# any two readings.
SENDER = """
import socket, time
sockets = []
for i in range(%d):
    for j in range(%d):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(0x6e74, 3, b"service%%02d" %% i)  # NM_SERVICE of abi.h
        s.setsockopt(0x6e74, 2, b"destination%%02d" %% j)  # NM_TAG
        s.connect(("10.88.0.2", 7001))
        sockets.append(s)
rounds = 0
while True:
    for k, s in enumerate(sockets):
        s.send(b"x" * (k * 7 %% 1000))
        if k %% 256 == 0:
            time.sleep(0.05)
    rounds += 1
    if rounds == 2:
        print("ready", flush=True)
""" % (SERVICES, DESTINATIONS)


def cpu_seconds(pid):
    """Of all its threads, in nanoseconds and not in ticks."""
    total = 0
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, thread), encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


class TopCostTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cloud = lab.Cloud()
        with cloud.inside():
            # Nobody reads: no answers, and none that it is unreachable.
            cls.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            cls.sink.bind(("10.88.0.2", 7001))
        cls.meter = lab.Meter("topcost")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({"max_series": 8192, "max_names": 1024})
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        os.environ["TMUX_TMPDIR"] = cls.directory

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-f", "/dev/null", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        return done.stdout.decode()

    def wait_screen(self, pattern):
        lab.wait_for(lambda: re.search(pattern, self.tmux("capture-pane", "-p", "-t", "top"), re.M), pattern)

    def measure(self, pids, pressed):
        """Percent of a CPU that each process takes; a key each second meanwhile."""
        before, begin = [cpu_seconds(pid) for pid in pids], time.monotonic()
        while time.monotonic() < begin + SECONDS:
            key = next(pressed)
            if key:
                self.tmux("send-keys", "-t", "top", key)
            time.sleep(1)
        took = time.monotonic() - begin
        return [100 * (cpu_seconds(pid) - was) / took for pid, was in zip(pids, before)]

    def test_with_4096_series_it_takes_little_of_a_cpu(self):
        sender = lab.start_service(self, "sender", SENDER)
        self.assertEqual(sender.stdout.readline(), "ready\n")
        self.addCleanup(self.tmux, "kill-server")
        command = "echo $$ > %s/pid; exec %s top --pin-dir %s" % (self.directory, tools.NETMETER, self.meter.pin_dir)
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", "sh -c '%s'" % command)
        self.wait_screen(r"^services  every 1 s  by rate")
        self.wait_screen(r"^service\d\d +\d")
        with open(self.directory + "/pid", encoding="ascii") as file:
            pid = int(file.read())
        shown = json.loads(lab.run(tools.NETMETER, "top", "--once", "--json", "--pin-dir", self.meter.pin_dir))
        moving = sum(row["tx_bytes_per_second"] > 0 for row in shown)
        self.assertGreaterEqual(moving, SERVICES * DESTINATIONS)
        reference = lab.start_service(self, "reference", REFERENCE)
        self.assertEqual(reference.stdout.readline(), "ready\n")
        for what, keys in (
            ("as it stands", ("",)),
            ("with a key a second", ("s", "Down", "Enter", "Down", "BSpace")),  # order, down, into a service, back
        ):
            pressed = itertools.cycle(keys)
            rounds = [self.measure((pid, reference.pid), pressed) for _ in range(ROUNDS)]
            # By rounds: one that another process disturbed took 2.3 times the reference.
            ratio = statistics.median(cost / unit for cost, unit in rounds)
            print("netmeter top, %d series that move, %s: %.2f times the reference; percent of a CPU %s" % (moving, what, ratio, rounds))
            self.assertLess(ratio, MOST)
        self.tmux("send-keys", "-t", "top", "q")
        lab.wait_for(lambda: not os.path.exists("/proc/%d" % pid), "the end")


if __name__ == "__main__":
    assert shutil.which("tmux"), "tmux is missing: test/install_packages.sh"
    lab.main(180)
