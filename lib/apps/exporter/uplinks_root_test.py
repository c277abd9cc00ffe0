#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""netmeter_uplink_bytes_total and netmeter_forwarded_bytes_total on a gateway with two
uplinks and a LAN: they equal `netmeter uplinks` and the interfaces, by each way of
publishing, for root and for a member of the group, without history and budgets. No
counter goes down when a load moves an interface."""

import collections
import os
import re
import shutil
import subprocess

import lab
import tools
from gateway import HEADER, MEASURED, SERVICE

GROUP = "54321"
MEMBER = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=" + GROUP]
COUNTED, FORWARDED = "netmeter_uplink_bytes_total", "netmeter_forwarded_bytes_total"
LINKS = {"satellite": "sat0", "lte": "wwan3", "lan": "lan0"}


class UplinkMetricsTest(tools.GatewayTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.load({"uplinks": cls.UPLINKS, "forwarded_clients": ["lan"]}, GROUP)
        # The directory is one in which a member of the group may execute them.
        os.chmod(cls.directory, 0o755)
        cls.exporter, cls.service = (
            shutil.copy(lab.path("lib/apps/exporter/" + name), cls.directory) for name in ("netmeter-exporter", "host_service")
        )

    def page(self, *reader, options=()):
        """{(family, uplink, interface, direction): value}, and the text."""
        none = ["--budgets", "off", "--database", "/nonexistent"]
        page = tools.scrape(*reader, self.exporter, "--pin-dir", self.meter.pin_dir, *none, *options)
        pattern = r'(?m)^(\w+)\{uplink="(\w+)",interface="(\w+)",direction="(\w+)"\} (\d+)$'
        return {tuple(labels): int(value) for *labels, value in re.findall(pattern, page)}, page

    def steady(self, read):
        """What read() returns while no cable has a packet, and the cables' counters."""
        result = None

        def cables():
            return {link: count for link, count in lab.counters().items() if link != "lo"}

        def read_steadily():
            nonlocal result
            links = cables()
            result = read(), links
            return cables() == links

        lab.wait_for(read_steadily, "cables without packets")
        return result

    def balances(self):
        """{(family, uplink, direction): bytes}, as `netmeter uplinks` has them."""
        sums = {}
        for uplink, row in self.balance().items():
            for way in ("tx", "rx"):
                one = row[way]
                if uplink != "other":
                    sums[COUNTED, uplink, way] = one["interface_bytes"] - HEADER * one["interface_packets"]
                if one["forwarded_bytes"]:
                    sums[FORWARDED, uplink, way] = one["forwarded_bytes"]
        return sums

    @staticmethod
    def sums_of(page):
        sums = collections.Counter()
        for (family, uplink, _, way), value in page.items():
            sums[family, uplink, way] += value
        return {key: value for key, value in sums.items() if value or key[0] == COUNTED}

    def serve(self):
        """{way of publishing: as page()}; the counters of one process."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = collections.defaultdict(dict)
        while line := self.process.stdout.readline().strip():
            by, family, *labels, value = line.split(" ")
            if family in (COUNTED, FORWARDED):
                found[by][(family, *labels)] = int(value)
        return found

    def test_1_each_publisher_has_what_the_library_has(self):
        service = lab.start_service(self, "backup", SERVICE)
        self.ask(service, "10.77.1.2", 100000)
        self.ask(service, "10.77.2.2", 30000)
        self.lan.run(lab.PYTHON, "-c", SERVICE, input=b"10.77.1.2 7000 50000\n")
        command = [*MEMBER, self.service, self.meter.pin_dir]
        type(self).process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lab.die_with_parent
        )
        for end in (self.process.wait, self.process.kill, self.process.stdin.close, self.process.stdout.close):
            self.addClassCleanup(end)

        def read():
            pages = [self.page()[0], self.page(*MEMBER)[0], self.page(options=["--omit-registered"])[0]]
            return pages, self.serve(), self.balances()

        (pages, served, balances), links = self.steady(read)
        self.assertEqual(sorted(served), ["magma", "prometheus", "visitor"])
        for page in [*pages, *served.values()]:
            self.assertEqual(page, pages[0])
        self.assertEqual(self.sums_of(pages[0]), balances)
        for uplink, link in LINKS.items():
            for way in ("tx", "rx"):
                bytes, packets = (now - was for now, was in zip(links[link][way], self.before[link][way]))
                self.assertEqual(pages[0][COUNTED, uplink, link, way], bytes - HEADER * packets)
        if MEASURED:
            self.assertGreater(pages[0][FORWARDED, "satellite", "lan0", "rx"], 100000)

    def test_2_without_them_the_other_families_stay(self):
        # The maps of uplinks are those of another network namespace.
        for text in (
            lab.run(*self.lan.enter, lab.PYTHON, "-c", SCRAPE, self.exporter, self.meter.pin_dir).decode(),
            self.page(options=["--families", "netmeter_wire_bytes_total"])[1],
        ):
            self.assertRegex(text, r"(?m)^netmeter_up 1$")
            self.assertNotIn(COUNTED, text)
            self.assertNotIn(FORWARDED, text)
        estimate = lab.run(self.exporter, "--estimate", "--pin-dir", self.meter.pin_dir, "--families", COUNTED).decode()
        metrics = re.search(r"(?m)^--families +(\d+)", estimate)[1]
        self.assertEqual(int(metrics), 1 + 2 * len(LINKS))  # and netmeter_up

    def test_3_no_counter_goes_down_when_a_load_moves_an_interface(self):
        ways = [("wwan3", way) for way in ("tx", "rx")]

        def read(counters):
            (page, served), _ = self.steady(lambda: (self.page()[0], self.serve()))
            for by in served:
                gone = {key: value for key, value in served[by].items() if key not in page}
                # Increments are never taken back.
                self.assertEqual({**page, **(gone if by == "visitor" else {})}, served[by], by)
            for key in set(page) & set(counters):
                self.assertGreaterEqual(page[key], counters[key], key)
            return page

        first = read({})
        for key in ways:
            self.assertGreater(first[(COUNTED, "lte", *key)], 0)
        service = lab.start_service(self, "backup", SERVICE)
        moved = first
        for uplinks in ({"satellite": ["sat0", "wwan3"], "lan": ["lan0"]}, self.UPLINKS):
            self.meter.load({"uplinks": uplinks}, GROUP)
            self.ask(service, "10.77.2.2", 10000)
            moved = read(moved)
            for key in ways:
                self.assertGreaterEqual(moved[(COUNTED, "satellite", *key)], 10000)
        for key in ways:
            self.assertGreater(moved[(COUNTED, "lte", *key)], first[(COUNTED, "lte", *key)])
        lab.run("ip", "link", "delete", "wwan3")
        # Its counters end in the uplink that it was in last.
        left = read(moved)
        self.assertEqual(
            {key: value for key, value in left.items() if key[0] == COUNTED and key[2] == "wwan3"},
            {(COUNTED, "satellite", *key): moved[(COUNTED, "satellite", *key)] for key in ways},
        )


# The page, from within a network namespace.
SCRAPE = """
import re, subprocess, sys, urllib.request
exporter = subprocess.Popen(
    [sys.argv[1], "--listen", "127.0.0.1:0", "--pin-dir", sys.argv[2]], stderr=subprocess.PIPE, text=True
)
try:
    url = re.search(r"http://\\S+", exporter.stderr.readline())[0]
    print(urllib.request.urlopen(url, timeout=20).read().decode())
finally:
    exporter.kill()
"""

if __name__ == "__main__":
    lab.main(120)
