#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""examples/limit.sh: a service whose budget is used up sends less, until it is off."""

import os
import socket
import subprocess
import unittest

import lab
import tools

SENDS = """
import socket, sys
one, dropped = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
for i in range(%d):
    try:
        one.sendto(bytes(1000), (%r, 7000))
    except PermissionError:
        dropped += 1
print(dropped)
"""


class LimitTest(unittest.TestCase):
    def test_a_service_is_limited_when_its_budget_is_used_up(self):
        directory = lab.temporary_directory(LimitTest)
        lab.private_network()
        cloud = lab.Cloud()
        with cloud.inside():
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.bind((lab.Cloud.THERE, 7000))
        self.addCleanup(receiver.close)
        meter = lab.Meter("limit")
        self.addCleanup(meter.close)
        meter.load()
        database, budgets = (os.path.join(directory, name) for name in ("history.db", "budgets.yml"))
        with open(budgets, "w", encoding="utf-8") as file:
            file.write("budgets: [{name: python, limit: 100 kB, service: python3}]\n")
        script = lab.path("examples/limit.sh")
        cgroup = os.path.basename(meter.cgroup)

        def send(count):
            return int(meter.run([lab.PYTHON, "-c", SENDS % (count, lab.Cloud.THERE)]))

        def budget():
            lab.run(tools.NETMETER, "record", "--pin-dir", meter.pin_dir, "--database", database)
            return subprocess.run(
                [tools.NETMETER, "budget", "--database", database, "--budgets", budgets, "--run-as", "root",
                 "--run", "%s %s 1kb/s" % (script, cgroup)],
                stdout=subprocess.DEVNULL, timeout=60, check=False).returncode

        self.assertEqual(send(90), 0)
        self.assertEqual(budget(), 3)  # 80 %: not limited
        self.assertEqual(send(20), 0)
        self.assertEqual(budget(), 4)
        self.addCleanup(subprocess.run, [script, cgroup, "off"], check=False)
        self.assertGreater(send(100), 50)
        self.assertEqual(send_elsewhere(), 0)
        lab.run(script, cgroup, "off")
        self.assertEqual(send(100), 0)


def send_elsewhere():
    """Of another cgroup."""
    return int(lab.run(lab.PYTHON, "-c", SENDS % (100, lab.Cloud.THERE)))


if __name__ == "__main__":
    lab.main(60)
