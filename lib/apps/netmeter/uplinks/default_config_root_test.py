#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""/etc/netmeter.yml is the configuration of the meter at /run/netmeter, if no other is
named. Both are this test's own here: those of the machine are not seen."""

import json
import os
import shutil
import subprocess
import unittest

import lab
import tools

FILE = "/etc/netmeter.yml"
PINS = "/run/netmeter"


def private_files(directory):
    """Another /etc and another /run, until this process ends."""
    lab.unshare(lab.CLONE_NEWNS)
    lab.run("mount", "--make-rprivate", "/")
    lab.run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("passwd", "group"):
        shutil.copy(os.path.join("/etc", name), directory)
    lab.run("mount", "--bind", directory, "/etc")


class DefaultConfigTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("default-config")
        cls.addClassCleanup(cls.meter.close)
        private_files(directory)
        cls.addClassCleanup(lab.run, lab.LOADER, "unload", "--quiet")

    def setUp(self):
        lab.run(lab.LOADER, "unload", "--quiet")
        self.write(services=["mme"])

    def write(self, **keys):
        with open(FILE, "w") as file:
            json.dump(dict(keys, cgroup=self.meter.cgroup, group=""), file)

    def load(self, *options):
        return lab.run(lab.LOADER, "load", *options).decode()

    def loaded(self, *options):
        return lab.run(lab.LOADER, "status", "--config", *options).decode()

    def result(self, action, came_from="", pins=PINS):
        return "netmeter-loader: %s: %s, for cgroup %s%s\n" % (pins, action, self.meter.cgroup, came_from)

    def test_the_advice_to_load_reads_the_file(self):
        """It said "already loaded, nothing to do", and never read the file."""
        self.assertIn(self.result("loaded", ", from " + FILE), self.load())
        self.write(services=["mme"], uplinks={"satellite": ["sta0"]})
        refused = subprocess.run([tools.NETMETER, "uplinks"], stderr=subprocess.PIPE, timeout=20).stderr.decode()
        advice = "(write uplinks into %s, and run: netmeter-loader load)\n" % FILE
        self.assertTrue(refused.endswith(advice), refused)
        text = self.load()
        self.assertIn(self.result("upgraded, counters kept", ", from " + FILE), text)
        self.assertIn("note: uplinks: satellite: sta0: no such interface\n", text)
        rows = lab.run(tools.NETMETER, "uplinks").decode()
        self.assertRegex(rows, r"(?m)^satellite +interface sta0: no such interface +- +- +- +-$")

    def test_options_alone_change_what_is_loaded(self):
        # If nothing is loaded, they change the file's.
        self.assertIn(self.result("loaded", ", from " + FILE), self.load("--max-series", "1000"))
        self.write(services=["sessiond"])
        self.assertIn(self.result("upgraded, counters kept"), self.load("--max-series", "2000"))
        self.assertIn("max_series: 2000\n", self.loaded())
        self.assertIn('services: ["mme"]\n', self.loaded())
        self.load()
        self.assertIn('services: ["sessiond"]\n', self.loaded())

    def test_the_file_is_read_for_no_other_meter(self):
        pins = "/run/second"
        options = ("--pin-dir", pins)
        try:
            text = self.load("--cgroup", self.meter.cgroup, "--group", "", *options)
            self.assertIn(self.result("loaded", pins=pins), text)
            self.assertNotIn("mme", self.loaded(*options))
        finally:
            lab.run(lab.LOADER, "unload", "--quiet", *options)
        self.assertIn(self.result("loaded", ", from " + FILE), self.load("--pin-dir", PINS))

    def test_without_the_file_a_load_keeps_what_is_loaded(self):
        self.load()
        text = self.load("--defaults")
        self.assertIn(self.result("upgraded, counters kept"), text)
        self.assertNotIn("mme", self.loaded())
        self.load()
        os.unlink(FILE)
        self.assertIn(self.result("already loaded, nothing to do"), self.load())
        self.assertIn("mme", self.loaded())

    def test_check_takes_the_same_file(self):
        self.assertIn("netmeter-loader: %s: no errors: cgroup, group, services; hash " % FILE, lab.run(lab.LOADER, "check").decode())

    def test_check_offers_an_uplink_for_the_default_route(self):
        def offer():
            lines = lab.run(lab.LOADER, "check").decode().splitlines()
            return [line.replace("netmeter-loader: note: no uplinks; the default route goes by ", "") for line in lines[1:]]

        for number, link in enumerate(("sat0", "lte0")):
            lab.run("ip", "link", "add", link, "type", "bridge")
            self.addCleanup(lab.run, "ip", "link", "delete", link)
            lab.run("ip", "address", "add", "10.77.%d.1/24" % number, "dev", link)
            lab.run("ip", "link", "set", link, "up")
        self.assertEqual(offer(), [])
        lab.run("ip", "route", "add", "192.0.2.0/24", "via", "10.77.1.2")
        lab.run("ip", "-6", "route", "add", "unreachable", "default")
        self.assertEqual(offer(), [])
        lab.run("ip", "route", "add", "default", "via", "10.77.0.2")
        self.assertEqual(offer(), ["sat0: uplinks: {wan: [sat0]} counts its bill"])
        lab.run("ip", "-6", "route", "replace", "default", "dev", "lte0", "metric", "10")
        both = "sat0 and lte0: uplinks: {wan: [sat0, lte0]} counts its bill"
        self.assertEqual(offer(), [both])
        lab.run("ip", "-6", "route", "flush", "default")
        lab.run("ip", "route", "replace", "default", "nexthop", "via", "10.77.0.2", "nexthop", "via", "10.77.1.2")
        self.assertEqual(offer(), [both])
        self.write(uplinks={"satellite": ["sat0"]})
        self.assertEqual(offer(), [])


if __name__ == "__main__":
    lab.main(300)
