#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Services in the meter's group read their uplinks without root, in each language: on a
gateway with two uplinks, a tunnel in one of them, and traffic that it forwards. They have
what this package and `ip -s link` have, to the byte."""

import os
import re
import unittest

import lab
import netmeter
from consumers import ABSEIL, ROOT, WARNINGS, Consumers, run
from gateway import HEADER, MEASURED, SERVICE, GatewayTest

GROUP = "54321"
MEMBER = ["setpriv", "--reuid=65534", "--regid=" + GROUP, "--clear-groups"]

# Shows the meter at its usual place, where the examples look for it.
AT_HOME = 'mount --bind "$0" /mnt && mount -t tmpfs none /run && mkdir /run/netmeter && mount --move /mnt /run/netmeter && exec "$@"'

LINE = re.compile(
    r"(?m)^(\S+) (sent|received) (\d+) bytes: local (\d+), forwarded (\d+), layer-2 headers (\d+), unnamed (\d+)$"
)
KEYS = ("interface_bytes", "local_bytes", "forwarded_bytes", "layer2_header_bytes", "unnamed_bytes")


class UplinksOfServicesTest(GatewayTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(cls.directory, 0o755)
        cls.add_tunnel()
        # For the datagrams of the example in C++.
        lab.run("ip", "route", "add", "192.0.2.0/24", "via", "10.77.1.2")
        cls.load({"uplinks": {**cls.UPLINKS, "site": ["vx0"]}}, group=GROUP)
        cls.addClassCleanup(cls.meter.load)  # close() unloads
        installed = Consumers(cls.directory)
        # A member may not read the folder of the tests.
        cls.environment = {**installed.environment, "PYTHONPATH": os.path.dirname(cls.copy("bindings/python/netmeter", "python/netmeter"))}
        options = installed.pkg_config("--cflags", "--libs")
        compilers = {"cc": ("gcc", "-std=c99"), "cpp": ("g++", "-std=c++14", *ABSEIL)}
        cls.programs = {"Python": [lab.PYTHON, cls.copy("examples/uplinks.py", "uplinks.py")]}
        cls.programs["from source"] = [cls.copy("examples/uplinks", "uplinks")]
        for name, (compiler, *more) in compilers.items():
            program = os.path.join(cls.directory, "uplinks_" + name)
            file = os.path.join(ROOT, "examples/uplinks." + {"cc": "c", "cpp": "cc"}[name])
            run([compiler, *WARNINGS, file, *options, *more, "-o", program])
            cls.programs[name] = [program]

    @classmethod
    def copy(cls, source, to):
        to = os.path.join(cls.directory, to)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        lab.run("cp", "-rL", os.path.join(ROOT, source), to)
        lab.run("chmod", "-R", "a+rX", cls.directory)
        return to

    def balance(self):
        with netmeter.Meter.open(self.meter.pin_dir) as meter:
            return {uplink.name: uplink for uplink in meter.read_uplinks()}

    def read(self, program):
        """{(uplink, "sent"): {key: bytes}}, and the whole output."""
        command = ["unshare", "--mount", "sh", "-c", AT_HOME, self.meter.pin_dir, *MEMBER, *program]
        output = self.meter.run(command, env=self.environment).decode()
        return {match[:2]: dict(zip(KEYS, map(int, match[2:]))) for match in LINE.findall(output)}, output

    def test_each_language_has_what_the_interfaces_have(self):
        service = lab.start_service(self, "backup", SERVICE)
        self.ask(service, "10.77.1.2", 100000)
        self.ask(service, "10.77.2.2", 30000)
        self.ask(service, "10.78.0.2", 20000)  # by the tunnel, and so by the satellite
        self.lan.run(lab.PYTHON, "-c", SERVICE, input=b"10.77.1.2 7000 %d\n" % 50000)
        for name, program in self.programs.items():
            with self.subTest(name):
                rows, output = self.read(program)
                # The program in C++ sends a datagram before it reads.
                balance, links = self.steady(self.balance)
                if "my share" not in output:
                    rows, _ = self.read(program)
                self.assertEqual({uplink for uplink, _ in rows}, {"satellite", "lte", "lan", "site"})
                for uplink, link in (("satellite", "sat0"), ("lte", "wwan3"), ("lan", "lan0"), ("site", "vx0")):
                    for word, way in (("sent", "tx"), ("received", "rx")):
                        one = rows[uplink, word]
                        counts = getattr(balance[uplink], way)
                        self.assertEqual(one, {key: getattr(counts, key) for key in KEYS}, (uplink, way))
                        was, now = self.before[link][way], links[link][way]
                        self.assertEqual(one["interface_bytes"], now[0] - was[0], (uplink, way))
                        # Less layer-2 headers.
                        wire = one["local_bytes"] + one["forwarded_bytes"] + one["unnamed_bytes"]
                        self.assertEqual(wire + one["layer2_header_bytes"], one["interface_bytes"], (uplink, way))
                if MEASURED:
                    self.assertEqual(rows["lan", "sent"]["unnamed_bytes"], 0)
                    self.assertEqual(rows["lan", "sent"]["forwarded_bytes"], rows["satellite", "received"]["forwarded_bytes"])
                # The tunnel's packets have no socket on the satellite.
                self.assertGreater(balance["satellite"].tx.unnamed_packets, 0)
                self.assertEqual(balance["satellite"].tx.layer2_header_bytes % HEADER, 0)

    def test_a_service_has_its_share(self):
        for number, name in enumerate(("from source", "cpp"), 1):
            rows, output = self.read(self.programs[name])
            share = re.search(r"(?m)^my share of the satellite: (\d+) of (\d+)$", output)
            self.assertIsNotNone(share, output)
            self.assertGreaterEqual(int(share[1]), 33 * number)
            self.assertEqual(int(share[1]) % 33, 0)
            self.assertEqual(int(share[2]), sum(
                rows["satellite", way]["interface_bytes"] - rows["satellite", way]["layer2_header_bytes"] for way in ("sent", "received")))

    def test_who_is_not_in_the_group_reads_nothing(self):
        def read():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            self.balance()

        with self.assertRaisesRegex(netmeter.PermissionDeniedError, "run as root or as a member of group " + GROUP):
            lab.in_child(read)


if __name__ == "__main__":
    unittest.main()
