#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter uplinks` on a real meter: two uplinks, a LAN behind them, services of the
gateway and packets that it forwards, on cables whose every packet is real. The sum of
the rows is what the interface counted, to the byte."""

import json
import os
import socket
import subprocess
import unittest

import lab

HEADER = 14  # of Ethernet
KEYS = ("interface", "local", "forwarded")

SERVICE = """
import socket, sys
left, right = sys.argv[1:3]
sockets = {}
for line in sys.stdin:
    address, size = line.split()
    if address not in sockets:
        sockets[address] = socket.create_connection((address, 7000))
    s = sockets[address]
    s.sendall(bytes(int(size)))
    got = 0
    while got < 2 * int(size):
        got += len(s.recv(65536))
    print("answered", flush=True)
"""

# Answers each byte with two.
ANSWERER = """
import socket, sys, threading
def answer(connection):
    while True:
        data = connection.recv(65536)
        if not data:
            return
        connection.sendall(2 * data)
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


class Network:
    """Another network namespace, by its name in /run/netns."""

    def __init__(self, test, name):
        self.name = "netmeter-%s-%d" % (name, os.getpid())
        lab.run("ip", "netns", "add", self.name)
        test.addClassCleanup(lab.run, "ip", "netns", "delete", self.name)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *arguments):
        return lab.run("ip", "netns", "exec", self.name, *arguments)

    def start(self, test, *arguments):
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *arguments], stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent
        )
        test.addClassCleanup(process.wait)
        test.addClassCleanup(process.kill)
        test.addClassCleanup(process.stdout.close)
        return process

    def join(self, here, there, network):
        """A cable without offloads, without IPv6 and without ARP."""
        lab.run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.name)
        for run, link, own, other in ((lab.run, here, 1, 2), (self.run, there, 2, 1)):
            run("sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=1" % link)
            run("ethtool", "-K", link, "tso", "off", "gso", "off", "gro", "off")
            run("ip", "link", "set", link, "address", "02:00:00:00:%02x:%02x" % (network, own))
            run("ip", "address", "add", "10.77.%d.%d/24" % (network, own), "dev", link)
            run("ip", "link", "set", link, "up")
            mac = "02:00:00:00:%02x:%02x" % (network, other)
            run("ip", "neighbour", "replace", "10.77.%d.%d" % (network, other), "lladdr", mac, "dev", link, "nud", "permanent")


def counters():
    """{link: {"tx": (bytes, packets), "rx": ...}} as the interfaces have it."""
    return {
        link["ifname"]: {way: (link["stats64"][way]["bytes"], link["stats64"][way]["packets"]) for way in ("tx", "rx")}
        for link in json.loads(lab.run("ip", "-json", "-statistics", "link", "show"))
    }


class UplinksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cls.internet = Network(cls, "internet")
        cls.lan = Network(cls, "lan")
        cls.internet.join("sat0", "there0", 1)
        cls.internet.join("wwan3", "there1", 2)
        cls.lan.join("lan0", "host0", 3)
        lab.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        cls.lan.run("ip", "route", "add", "default", "via", "10.77.3.1")
        cls.internet.run("ip", "route", "add", "10.77.3.0/24", "via", "10.77.1.1")
        cls.meter = lab.Meter("uplinks")
        cls.addClassCleanup(cls.meter.close)
        # What was counted before the load is no part of it.
        cls.before = counters()
        cls.meter.load({"uplinks": {"satellite": ["sat0"], "lte": ["wwan*"], "lan": ["lan0"]}})
        answerer = cls.internet.start(cls, lab.PYTHON, "-c", ANSWERER)
        assert answerer.stdout.readline() == b"ready\n"

    def uplinks(self, *options, **more):
        return lab.run(lab.LIST, "uplinks", "--pin-dir", self.meter.pin_dir, *options, **more)

    def balance(self):
        return {row["uplink"]: row for row in json.loads(self.uplinks("--json"))}

    def wait_still(self):
        """Until no late acknowledgement changes it."""
        last = None

        def still():
            nonlocal last
            now, last = last, counters()
            return now == last

        lab.wait_for(still)

    def ask(self, service, address, size):
        service.stdin.write("%s %d\n" % (address, size))
        service.stdin.flush()
        self.assertEqual(service.stdout.readline(), "answered\n")

    def forward(self, size):
        """A client of the LAN has this from the internet, by the satellite."""
        client = (
            "import socket; s = socket.create_connection(('10.77.1.2', 7000)); s.sendall(bytes(%d)); n = 0\n"
            "while n < 2 * %d: n += len(s.recv(65536))" % (size, size)
        )
        self.lan.run(lab.PYTHON, "-c", client)

    def test_1_the_rows_are_what_the_interface_counted(self):
        service = lab.start_service(self, "backup", SERVICE, "left", "right")
        self.ask(service, "10.77.1.2", 100000)
        self.ask(service, "10.77.2.2", 30000)
        self.forward(50000)
        self.wait_still()
        balance, links = self.balance(), counters()
        self.assertEqual(list(balance), ["lan", "lte", "satellite"])
        series = json.loads(lab.run(lab.LIST, "list", "--json", "--pin-dir", self.meter.pin_dir))
        for uplink, link in (("satellite", "sat0"), ("lte", "wwan3"), ("lan", "lan0")):
            row = balance[uplink]
            self.assertEqual(row["interfaces"], [link])
            self.assertIsNone(row["unknown"])
            for way in ("tx", "rx"):
                one = row[way]
                was, now = self.before[link][way], links[link][way]
                self.assertEqual(one["interface_bytes"], now[0] - was[0], (uplink, way))
                self.assertEqual(one["interface_packets"], now[1] - was[1], (uplink, way))
                for unit in ("bytes", "packets"):
                    local = sum(s["%s_%s" % (way, unit)] for s in series if s["uplink"] == uplink)
                    self.assertEqual(one["local_" + unit], local, (uplink, way))
                self.assertEqual(one["link_header_bytes"], HEADER * one["local_packets"])
                rest = one["interface_bytes"] - one["local_bytes"] - one["link_header_bytes"]
                self.assertEqual(one["forwarded_bytes"], rest)
                self.assertEqual(one["forwarded_packets"], one["interface_packets"] - one["local_packets"])
        # All that passed the LAN was forwarded, and went out by the satellite.
        lan, satellite = balance["lan"], balance["satellite"]
        self.assertEqual((lan["tx"]["local_bytes"], lan["rx"]["local_bytes"]), (0, 0))
        self.assertGreater(lan["tx"]["forwarded_bytes"], 100000)
        self.assertEqual(lan["tx"]["forwarded_bytes"], satellite["rx"]["forwarded_bytes"])
        self.assertEqual(lan["rx"]["forwarded_bytes"], satellite["tx"]["forwarded_bytes"])
        self.assertEqual(balance["lte"]["tx"]["forwarded_bytes"], 0)
        self.assertGreater(balance["lte"]["rx"]["local_bytes"], 60000)

    def test_2_the_table_says_the_same(self):
        table = self.uplinks("--bytes").decode()
        balance = self.balance()
        self.assertRegex(table, r"(?m)^UPLINK +WHAT +TX +RX")
        for uplink, link in (("satellite", "sat0"), ("lte", "wwan3")):
            tx, rx = balance[uplink]["tx"], balance[uplink]["rx"]
            for what, key in (("interface " + link, "interface"), ("local", "local"), ("forwarded", "forwarded")):
                numbers = " +".join(
                    str(one["%s_%s" % (key, unit)]) for unit in ("bytes", "packets") for one in (tx, rx)
                )
                self.assertRegex(table, "(?m)^%s +%s +%s$" % (uplink, what, numbers))
            self.assertRegex(
                table, "(?m)^%s +link headers +%d +%d +- +-$" % (uplink, tx["link_header_bytes"], rx["link_header_bytes"])
            )

    def test_3_top_and_sockets_have_the_uplink(self):
        service = lab.start_service(self, "mover", SERVICE, "left", "right")
        self.ask(service, "10.77.1.2", 5000)
        self.ask(service, "10.77.2.2", 5000)
        command = [lab.LIST, "sockets", "--pin-dir", self.meter.pin_dir, "--service", "mover"]
        rows = json.loads(lab.run(*command, "--json", "--state", "established"))
        found = {row["remote_address"]: row["uplink"] for row in rows}
        self.assertEqual(found, {"10.77.1.2": "satellite", "10.77.2.2": "lte"})
        only = json.loads(lab.run(*command, "--json", "--uplink", "lte"))
        self.assertEqual([row["remote_address"] for row in only], ["10.77.2.2"])
        self.assertRegex(lab.run(*command).decode().splitlines()[0], "  DESTINATION +UPLINK +TCPI_RTT ")
        command = [lab.LIST, "top", "--pin-dir", self.meter.pin_dir, "--once", "--interval", "0.1"]
        rows = json.loads(lab.run(*command, "--json"))
        self.assertEqual(sorted(row["uplink"] for row in rows if row["name"] == "mover"), ["lte", "satellite"])
        self.assertRegex(lab.run(*command).decode(), r"(?m)^mover +satellite +")

    def test_4_where_nothing_forwards_the_rest_is_remainder(self):
        lab.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
        try:
            for row in self.balance().values():
                self.assertNotIn("forwarded_bytes", row["tx"])
                self.assertIn("remainder_bytes", row["tx"])
            self.assertIn("remainder", self.uplinks().decode())
        finally:
            lab.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def test_5_what_cannot_be_known_is_not_a_number(self):
        self.internet.join("wwan9", "there9", 9)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", ("10.77.9.2", 9))  # of nobody in the meter
        self.meter.run([lab.PYTHON, "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.77.9.2', 9))"])
        self.assertEqual(self.balance()["lte"]["interfaces"], ["wwan3", "wwan9"])
        lab.run("ip", "link", "delete", "wwan9")
        row = self.balance()["lte"]
        self.assertIsNone(row["tx"]["forwarded_bytes"])
        self.assertEqual(row["unknown"], "wwan9 has gone, and what it had counted with it")
        self.assertRegex(self.uplinks().decode(), "(?m)^lte: forwarded is not known: wwan9 has gone")

    def test_6_wrong_use_is_one_line(self):
        def fails(*command):
            done = subprocess.run(command, capture_output=True, timeout=20)
            self.assertEqual((done.returncode, done.stdout, done.stderr.decode().count("\n")), (1, b"", 1), done.stderr)
            return done.stderr.decode()

        command = [lab.LIST, "uplinks", "--pin-dir", self.meter.pin_dir]
        self.assertIn("another network namespace", fails("ip", "netns", "exec", self.lan.name, *command))
        self.assertIn("Permission denied", fails("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command))
        other = lab.Meter("none")
        self.addCleanup(other.close)
        other.load()
        self.assertIn("the meter has no uplinks", fails(lab.LIST, "uplinks", "--pin-dir", other.pin_dir))


if __name__ == "__main__":
    lab.main(120)
