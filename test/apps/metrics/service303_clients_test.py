#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Clients of gRPC in Python, old and new, against the exporter's
Service303, whose server is not gRPC's. Each calls all methods, one that is not
there, GetMetrics with a compressed request, with one that is too long, with a
deadline that has passed, and 40 times at once; and prints a line for each call.
All have to print the same. The table is full: a reply has some 4 MB.

Needs PyPI, once; then what is below ~/.cache/netmeter."""

import os
import subprocess
import tempfile
import unittest

import clients
import lab
import metrics_lab as m

HERE = os.path.join("test", "apps", "metrics")
WITH_FAKE_METER = os.path.abspath(os.path.join("bindings", "python", "tests", "with_fake_meter"))
# Beside Debian's.
GRPCIO = (clients.OLD_GRPCIO, "")
FILLERS = 4500


class Service303ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        script = os.path.abspath(os.path.join(HERE, "service303_client.py"))
        cls.clients = {"grpcio of Debian": [lab.PYTHON, script]}
        for version in GRPCIO:
            cls.clients["grpcio" + version] = [clients.make_venv("grpcio", version), script]
        pin_dir = tempfile.mkdtemp(prefix="netmeter-test-")
        cls.addClassCleanup(os.rmdir, pin_dir)
        cls.exporter = subprocess.Popen(
            [WITH_FAKE_METER, pin_dir, str(FILLERS), m.EXPORTER, "--pin-dir", pin_dir]
            + ["--service303-families", "default"]
            + ["--listen", "off", "--service303", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
        )
        cls.addClassCleanup(m.end, cls.exporter)
        line = m.await_line(cls.exporter, "netmeter-exporter: serving ", cls.exporter.stderr)
        cls.address = line.split()[-1]

    def test_all_clients_have_the_same_replies(self):
        for name, command in self.clients.items():
            with self.subTest(name):
                output = subprocess.run(
                    command + [self.address], stdout=subprocess.PIPE, check=True, timeout=120
                ).stdout.decode()
                lines = output.splitlines()
                got = dict(line.split(": ", 1) for line in lines)
                print(name, "GetMetrics:", got["GetMetrics"])
                for method in ("SetLogLevel", "SetLogVerbosity"):
                    self.assertEqual(got[method], "code 12, %s is not implemented" % method)
                self.assertEqual(got["ReloadServiceConfig"], "2 bytes")
                self.assertEqual(got["GetOperationalStates"], "0 bytes")
                self.assertEqual(got["unknown"], "code 12, there is no /other.Service/Method")
                self.assertRegex(got["GetServiceInfo"], r"^\d\d bytes$")
                metrics = int(got["GetMetrics"].split()[0])
                self.assertGreater(metrics, 3000000)
                self.assertLess(metrics, 4194304)
                self.assertEqual(got["gzip"], got["GetMetrics"])
                self.assertEqual(got["long"], "code 8, the message has more than 65536 bytes")
                self.assertEqual(got["deadline"], "code 4")
                self.assertEqual(lines.count("at once: %d bytes" % metrics), 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
