#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter uplinks` on a real meter: two uplinks, a LAN behind them, services of the
gateway and packets that it forwards, on cables whose every packet is real. The sum of
the rows is what the interface counted, to the byte."""

import contextlib
import json
import os
import re
import socket
import subprocess
import unittest

import lab
import tools
from gateway import HEADER, MEASURED, SEND, SENT, SERVICE, keep_neighbours


GROUP = "54321"

# The row that has what is forwarded.
FORWARDED = "forwarded" if MEASURED else "unnamed"


def check_sum(test, one, what):
    """The rows of one direction are what the interface counted."""
    for unit in ("bytes", "packets"):
        rows = ["local_" + unit, "unnamed_" + unit] + (["forwarded_" + unit] if MEASURED else [])
        headers = one["layer2_header_bytes"] if unit == "bytes" else 0
        test.assertEqual(sum(one[row] for row in rows) + headers, one["interface_" + unit], what)
    packets = one["local_packets"] + (one["forwarded_packets"] if MEASURED else 0)
    test.assertEqual(one["layer2_header_bytes"], HEADER * packets, what)


class UplinksTest(tools.GatewayTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.load({"uplinks": cls.UPLINKS}, group=GROUP)
        cls.addClassCleanup(cls.meter.load)  # close() unloads

    def forward(self, size):
        """A client of the LAN has this from the internet, by the satellite."""
        self.lan.run(lab.PYTHON, "-c", SERVICE, input=b"10.77.1.2 7000 %d\n" % size)

    def test_1_the_rows_are_what_the_interface_counted(self):
        service = lab.start_service(self, "backup", SERVICE)
        self.ask(service, "10.77.1.2", 100000)
        self.ask(service, "10.77.2.2", 30000)
        self.forward(50000)
        (balance, series), links = self.steady(lambda: (self.balance(), self.list_series()))
        self.assertEqual(list(balance), ["lan", "lte", "satellite"])
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
                check_sum(self, one, (uplink, way))
                # Nothing is unnamed here, because there is no ARP on this link.
                if MEASURED:
                    self.assertEqual((one["unnamed_bytes"], one["unnamed_packets"]), (0, 0), (uplink, way))
        # All that passed the LAN was forwarded, and went out by the satellite.
        lan, satellite = balance["lan"], balance["satellite"]
        self.assertEqual((lan["tx"]["local_bytes"], lan["rx"]["local_bytes"]), (0, 0))
        forwarded = FORWARDED + "_bytes"
        self.assertGreater(lan["tx"][forwarded], 100000)
        self.assertEqual(lan["tx"][forwarded], satellite["rx"][forwarded])
        self.assertEqual(lan["rx"][forwarded], satellite["tx"][forwarded])
        self.assertEqual(balance["lte"]["tx"][forwarded], 0)
        self.assertEqual(satellite["forwarded_unknown"] is None, MEASURED)
        self.assertGreater(balance["lte"]["rx"]["local_bytes"], 60000)

    def test_2_the_table_says_the_same(self):
        list_forwarded = [tools.NETMETER, "list", "--pin-dir", self.meter.pin_dir, "--kind", "forwarded"]

        def read():
            listed = [lab.run(*list_forwarded, option).decode() for option in ("--bytes", "--json")]
            return self.uplinks("--bytes").decode(), self.balance(), *listed

        (table, balance, forwarded, forwarded_json), _ = self.steady(read)
        self.assertRegex(table, r"(?m)^UPLINK +WHAT +TX +RX")
        for uplink, link in (("satellite", "sat0"), ("lte", "wwan3")):
            tx, rx = balance[uplink]["tx"], balance[uplink]["rx"]
            for what, key in (("interface " + link, "interface"), ("local", "local"), (FORWARDED, FORWARDED)):
                numbers = " +".join(
                    str(one["%s_%s" % (key, unit)]) for unit in ("bytes", "packets") for one in (tx, rx)
                )
                self.assertRegex(table, "(?m)^%s +%s +%s$" % (uplink, what, numbers))
            self.assertRegex(
                table, "(?m)^%s +layer-2 headers +%d +%d +- +-$" % (uplink, tx["layer2_header_bytes"], rx["layer2_header_bytes"])
            )

        # It was in no row of netmeter list.
        if MEASURED:
            satellite = balance["satellite"]
            numbers = " +".join(str(satellite[way]["forwarded_" + unit]) for unit in ("bytes", "packets") for way in ("tx", "rx"))
            self.assertRegex(forwarded, "(?m)^forwarded +lan0 .* satellite +%s " % numbers)
            rows = json.loads(forwarded_json)
            sent = [row["tx_bytes"] for row in rows if (row["name"], row["uplink"]) == ("lan0", "satellite")]
            self.assertEqual((sent, {row["kind"] for row in rows}), ([satellite["tx"]["forwarded_bytes"]], {"forwarded"}))
            command = [tools.NETMETER, "top", "--once", "--interval", "0.1", "--pin-dir", self.meter.pin_dir]
            self.assertRegex(lab.run(*command).decode(), "(?m)^lan0 +satellite .* forwarded *$")
            cost = lab.run(tools.NETMETER, "cost", "--all", "--filter", "nm_forward4", "--seconds", "1", "--columns", "type")
            self.assertRegex(cost.decode(), "(?m)^netfilter *$")  # it was "32"

    def test_2_what_cannot_be_read_is_not_silently_missing(self):
        # A member of the group had another "total, satellite" than root, and "(no such
        # series)"; --json lacked rows that the table had. It reads all now, except in
        # another network namespace.
        options = ["--pin-dir", self.meter.pin_dir]
        member = ["setpriv", "--reuid=65534", "--regid=" + GROUP, "--clear-groups"]

        def rows(*before):
            return json.loads(lab.run(*before, tools.NETMETER, "list", *options, "--json"))

        def table(*before):
            return lab.run(*before, tools.NETMETER, "list", *options, "--watch", "0.1", "--count", "1").decode()

        for reader in ([], member):
            self.assertEqual("forwarded" in {row["kind"] for row in rows(*reader)}, MEASURED)
            self.assertEqual({row.get("sum_lacks") for row in rows(*reader) if row["uplink"]}, {None if MEASURED else "forwarded"})
            self.assertRegex(table(*reader), "(?m)^ +total, satellite +(?!without)" if MEASURED else "total, satellite +without forwarded ")
        self.assertEqual({row.get("sum_lacks") for row in rows(*self.lan.enter) if row["uplink"]}, {"forwarded"})
        self.assertRegex(table(*self.lan.enter), "total, satellite +without forwarded ")
        top = json.loads(lab.run(*self.lan.enter, tools.NETMETER, "top", "--once", "--interval", "0.1", "--json", *options))
        self.assertEqual({row.get("sum_lacks") for row in top if row["uplink"]}, {"forwarded"})
        refused = subprocess.run(
            [*self.lan.enter, tools.NETMETER, "list", *options, "--kind", "forwarded"], capture_output=True, text=True, timeout=20, check=False
        )
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("another network namespace", refused.stderr)

    def test_3_top_and_sockets_have_the_uplink(self):
        service = lab.start_service(self, "mover", SERVICE)
        self.ask(service, "10.77.1.2", 5000)
        self.ask(service, "10.77.2.2", 5000)
        command = [tools.NETMETER, "sockets", "--pin-dir", self.meter.pin_dir, "--service", "mover"]
        rows = json.loads(lab.run(*command, "--json", "--state", "established"))
        found = {row["remote_address"]: row["uplink"] for row in rows}
        self.assertEqual(found, {"10.77.1.2": "satellite", "10.77.2.2": "lte"})
        only = json.loads(lab.run(*command, "--json", "--uplink", "lte"))
        self.assertEqual([row["remote_address"] for row in only], ["10.77.2.2"])
        self.assertRegex(lab.run(*command).decode().splitlines()[0], "  DESTINATION +UPLINK +TCPI_RTT ")
        command = [tools.NETMETER, "top", "--pin-dir", self.meter.pin_dir, "--once", "--interval", "0.1"]
        rows = json.loads(lab.run(*command, "--json"))
        self.assertEqual(sorted(row["uplink"] for row in rows if row["name"] == "mover"), ["lte", "satellite"])
        self.assertRegex(lab.run(*command).decode(), r"(?m)^mover +satellite +")

    def test_4_why_it_is_not_measured_is_said(self):
        text = self.uplinks().decode()
        self.assertEqual("forwarded is unnamed: " in text, not MEASURED, text)
        self.assertNotIn("shorter time", text)
        self.assertEqual(bool(re.search(r"(?m)^lan +forwarded +- +- +- +-$", text)), not MEASURED, text)

    def test_5_what_cannot_be_known_is_not_a_number(self):
        self.internet.join("wwan9", "there9", 9)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", ("10.77.9.2", 9))  # of a process outside of the meter
        self.meter.run([lab.PYTHON, "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.77.9.2', 9))"])
        self.assertEqual(self.balance()["lte"]["interfaces"], ["wwan3", "wwan9"])
        index = str(socket.if_nametoindex("wwan9"))
        lab.run("ip", "link", "delete", "wwan9")
        row = self.balance()["lte"]
        self.assertIsNone(row["tx"]["unnamed_bytes"])
        self.assertEqual(row["unknown"], "wwan9 has gone, and what it had counted with it")
        self.assertRegex(self.uplinks().decode(), "(?m)^lte: unnamed is not known: wwan9 has gone")
        # It said that wwan9 was called eth9 now, and counted for two uplinks.
        lab.run("ip", "link", "add", "eth9", "index", index, "type", "bridge")
        row = self.balance()["lte"]
        why = "interface %s was wwan9 and is eth9 now: renamed, or another one with its number" % index
        self.assertEqual((row["unknown"], row["interfaces"]), (why, ["wwan3"]))
        lab.run("ip", "link", "delete", "eth9")

    def test_6_bpftool_shows_names_as_text(self):
        """They were lists of decimal bytes."""

        def dump(pin):
            text = lab.run("bpftool", "--json", "map", "dump", "pinned", os.path.join(self.meter.pin_dir, pin))
            return [element["formatted"] for element in json.loads(text)]

        service = lab.start_service(self, "shown", SERVICE)
        self.ask(service, "10.77.1.2", 1)
        self.assertIn("satellite", [name["value"]["bytes"] for name in dump("names")])
        self.assertIn("shown", [process["value"]["bytes"] for process in dump("processes")])
        self.assertIn("shown", [name["key"]["bytes"] for name in dump("name_ids")])
        self.assertIn("lan0", [name["key"]["name"] for name in dump("uplink_names")])
        self.assertIn("sat0", [interface["value"]["name"] for interface in dump("interfaces")])

    def test_7_wrong_use_is_one_line(self):
        def fails(*command):
            done = subprocess.run(command, capture_output=True, timeout=20)
            self.assertEqual((done.returncode, done.stdout, done.stderr.decode().count("\n")), (1, b"", 1), done.stderr)
            return done.stderr.decode()

        command = [tools.NETMETER, "uplinks", "--pin-dir", self.meter.pin_dir]
        self.assertIn("another network namespace", fails(*self.lan.enter, *command))
        self.assertIn("Permission denied", fails("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command))
        other = lab.Meter("none")
        self.addCleanup(other.close)
        other.load()
        self.assertIn("the meter has no uplinks", fails(tools.NETMETER, "uplinks", "--pin-dir", other.pin_dir))


class ForwardedTest(tools.GatewayTest):
    """What is forwarded is measured, and the unnamed traffic is what nobody had: to the byte,
    with GSO packets, both families, a firewall, and a connection that moves."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One address of the internet, by whichever uplink the gateway chooses.
        cls.internet.run("ip", "address", "add", "10.88.0.1/32", "dev", "lo")
        cls.internet.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
        lab.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
        cls.add_ipv6()
        cls.move("1")
        cls.load({"uplinks": cls.UPLINKS})

    @classmethod
    def move(cls, network):
        """Both directions take this cable from now on."""
        lab.run("ip", "route", "replace", "10.88.0.1/32", "via", "10.77.%s.2" % network)
        cls.internet.run("ip", "route", "replace", "10.77.3.0/24", "via", "10.77.%s.1" % network)

    def check_all(self, remainder=0):
        """Every row of every uplink; returns {uplink: row}."""
        balance, _ = self.steady(self.balance)
        for uplink, row in balance.items():
            if uplink == "other":
                continue
            self.assertIsNone(row["unknown"], row)
            for way in ("tx", "rx"):
                check_sum(self, row[way], (uplink, way))
                if MEASURED and uplink != "other":
                    self.assertEqual(row[way]["unnamed_packets"], remainder, (uplink, way, row))
        return balance

    def start_client(self):
        """A service of the LAN."""
        return self.lan.start(self, lab.PYTHON, "-c", SERVICE, stdin=subprocess.PIPE, text=True)

    @staticmethod
    def forwarded(balance):
        return {(uplink, way): row[way][FORWARDED + "_bytes"] for uplink, row in balance.items() for way in ("tx", "rx")}

    def test_1_a_forwarded_connection_moves_between_uplinks(self):
        client = self.start_client()
        service = lab.start_service(self, "backup", SERVICE)
        self.ask(service, "10.77.1.2", 40000)
        self.ask(client, "10.88.0.1", 200000)
        first = self.forwarded(self.check_all())
        self.move("2")
        self.addCleanup(self.move, "1")
        self.ask(client, "10.88.0.1", 300000)
        second = self.forwarded(self.check_all())
        if not MEASURED:
            return
        self.assertGreater(first["satellite", "rx"], 400000)
        self.assertEqual(first["lte", "rx"], 0)
        self.assertGreater(second["lte", "rx"], 600000)
        for ways in (("tx", "rx"), ("rx", "tx")):
            self.assertEqual(second["lan", ways[0]], second["satellite", ways[1]] + second["lte", ways[1]])

    def check_gso_packets(self, address):
        def passed():
            """GSO packets as one."""
            with open("/proc/net/snmp6") as file:
                six = int(re.search(r"Ip6OutForwDatagrams\s+(\d+)", file.read()).group(1))
            with open("/proc/net/snmp") as file:
                names, values = [line.split() for line in file if line.startswith("Ip:")]
            return six + int(values[names.index("ForwDatagrams")])

        (before, datagrams), _ = self.steady(lambda: (self.balance(), passed()))
        self.ask(self.start_client(), address, 3000000)
        (after, datagrams_now), _ = self.steady(lambda: (self.balance(), passed()))
        datagrams = datagrams_now - datagrams
        if not MEASURED:
            return
        for uplink in ("satellite", "lan"):
            for way in ("tx", "rx"):
                one = {key: after[uplink][way][key] - before[uplink][way][key] for key in (
                    "interface_bytes", "interface_packets", "forwarded_bytes", "forwarded_packets", "local_bytes")}
                self.assertEqual(one["local_bytes"], 0)
                self.assertEqual(one["interface_packets"], one["forwarded_packets"], (address, uplink, way))
                # With GRO, a veth counts what it receives without its Ethernet header.
                headers = HEADER * one["forwarded_packets"] if way == "tx" else 0
                self.assertEqual(one["interface_bytes"], one["forwarded_bytes"] + headers, (address, uplink, way))
                self.assertGreater(one["forwarded_bytes"], 3000000)
        self.assertLess(2 * datagrams, sum(after["lan"][way]["forwarded_packets"] - before["lan"][way]["forwarded_packets"] for way in ("tx", "rx")))

    def test_2_super_packets_weigh_what_goes_over_the_link(self):
        """GRO joins what comes in, and the stack cuts it again before it leaves."""
        links = ("sat0", "wwan3", "lan0")
        for link in links:
            lab.run("ethtool", "-K", link, "gro", "on")
        try:
            for address in ("10.88.0.1", "fd77:1::2"):
                self.check_gso_packets(address)
        finally:
            for link in links:
                lab.run("ethtool", "-K", link, "gro", "off")

    def test_3_what_a_firewall_drops_is_not_forwarded(self):
        if not MEASURED:
            return
        # Both families: the last packet of an IPv6 connection of the test before was
        # forwarded between the two readings.
        for tables in ("iptables", "ip6tables"):
            lab.run(tables, "-A", "FORWARD", "-j", "DROP")
        try:
            before = self.forwarded(self.steady(self.balance)[0])
            self.lan.run(
                lab.PYTHON, "-c",
                "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "for port in (9, 9, 9): s.sendto(bytes(100), ('10.88.0.1', port))",
            )
            self.assertEqual(self.forwarded(self.balance()), before)
        finally:
            for tables in ("iptables", "ip6tables"):
                lab.run(tables, "-F", "FORWARD")

    def test_4_an_upgrade_keeps_counting_and_the_history_has_it(self):
        client = self.start_client()
        self.ask(client, "10.88.0.1", 100000)
        before = self.forwarded(self.steady(self.balance)[0])
        self.meter.load(dict(self.config, max_series=8192))
        self.ask(client, "10.88.0.1", 100000)
        database = os.path.join(lab.temporary_directory(self), "history.db")
        record = [tools.NETMETER, "record", "--pin-dir", self.meter.pin_dir, "--database", database]
        balance = self.steady(lambda: (lab.run(*record), self.balance())[1])[0]
        after = self.forwarded(balance)
        usage = json.loads(lab.run(tools.NETMETER, "usage", "--database", database, "--kind", "forwarded", "--by", "uplink", "--json"))
        if not MEASURED:
            return
        self.assertGreater(after["satellite", "rx"], before["satellite", "rx"] + 200000)
        rows = {row["uplink"]: row for row in usage["rows"]}
        for uplink in ("satellite", "lan"):
            for way in ("tx", "rx"):
                self.assertEqual(rows[uplink][way + "_bytes"], after[uplink, way])
        # By service it has the name of the interface at the other side.
        usage = json.loads(lab.run(tools.NETMETER, "usage", "--database", database, "--uplink", "satellite", "--json"))
        self.assertEqual([row["service"] for row in usage["rows"] if row["kind"] == "forwarded"], ["lan0"])

    def test_5_without_uplinks_it_ends_and_with_them_again_it_says_so(self):
        if not MEASURED:
            return
        self.meter.load({"uplinks": {}})
        self.assertFalse(os.path.exists(os.path.join(self.meter.pin_dir, "link_forward4")))
        status = json.loads(lab.run(lab.LOADER, "status", "--json", "--pin-dir", self.meter.pin_dir))
        self.assertNotIn("forwarded", status["features"])
        self.meter.load(self.config)
        status = json.loads(lab.run(lab.LOADER, "status", "--json", "--pin-dir", self.meter.pin_dir))
        self.assertTrue(status["features"]["forwarded"]["active"])

    def test_6_a_lost_pin_is_damage_that_a_load_repairs(self):
        # Nothing forwarded was counted any more, and status said "loaded".
        if not MEASURED:
            return
        client = self.start_client()
        for pin in ("forwarders", "forwarded_by", "forwarded"):
            os.remove(os.path.join(self.meter.pin_dir, pin))
            status = subprocess.run([lab.LOADER, "status", "--json", "--pin-dir", self.meter.pin_dir], stdout=subprocess.PIPE, check=False)
            self.assertEqual(json.loads(status.stdout)["missing_maps"], [pin])
            self.meter.load(self.config)
            lab.run(lab.LOADER, "status", "--pin-dir", self.meter.pin_dir)
            before = self.forwarded(self.balance())
            self.ask(client, "10.88.0.1", 100000)
            after = self.forwarded(self.steady(self.balance)[0])
            self.assertGreater(after["satellite", "rx"], before["satellite", "rx"] + 200000, pin)


# Answers each datagram with one of 500 bytes, with its headers.
ANSWER_SHORT = """
import socket
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("::", 9))
print("ready", flush=True)
while True:
    _, peer = server.recvfrom(65536)
    server.sendto(bytes(472 if peer[0].startswith("::ffff:") else 452), peer)
"""
# Sends datagrams of 1000 bytes from an address, and waits for as many answers.
ASK_FROM = """
import socket, sys
own, peer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
six = ":" in peer
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
s.settimeout(60)
for _ in range(count):
    s.sendto(bytes(952 if six else 972), (peer, 9))
    s.recv(65536)
"""


@unittest.skipUnless(MEASURED, "before Linux 6.4")
class ClientsTest(tools.GatewayTest):
    """Forwarded traffic by the address of a client behind this host, whatever NAT makes of
    it; and strangers add no rows."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.add_ipv6()
        cls.lan.run("ip", "address", "add", "10.77.3.3/24", "dev", "host0")
        for address in ("10.77.3.3", "10.77.3.99"):
            lab.run("ip", "neighbour", "replace", address, "lladdr", "02:00:00:00:03:02", "dev", "lan0", "nud", "permanent")
        lab.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.77.3.0/24", "-o", "sat0", "-j", "MASQUERADE")
        cls.internet.serve(cls, ANSWER_SHORT)
        cls.load({"uplinks": cls.UPLINKS, "forwarded_clients": ["lan"]})

    def ask_from(self, own, peer, count):
        self.lan.run(lab.PYTHON, "-c", ASK_FROM, own, peer, str(count))

    def rows(self):
        """{(uplink, interface, client): (sent, received)}"""
        table = lab.run(tools.NETMETER, "list", "--bytes", "--kind", "forwarded", "--pin-dir", self.meter.pin_dir).decode()
        row = r"(?m)^forwarded +(\S+) +(\S+) +other +direct +(\S+) +(\d+) +(\d+) "
        return {(uplink, link, client): (int(tx), int(rx)) for link, client, uplink, tx, rx in re.findall(row, table)}

    def test_each_client_has_what_it_sent_and_received(self):
        self.ask_from("10.77.3.2", "10.77.1.2", 10)
        self.ask_from("10.77.3.3", "10.77.1.2", 4)
        self.ask_from("10.77.3.3", "10.77.2.2", 1)  # leaves by the other uplink
        self.ask_from("fd77:3::2", "fd77:1::2", 2)
        # To addresses that sent nothing: they get no rows.
        probe = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(972), ('10.77.3.99', 9))"
        self.internet.run(lab.PYTHON, "-c", probe)
        expected = {
            ("satellite", "lan0", "10.77.3.2"): (10000, 5000),
            ("satellite", "lan0", "10.77.3.3"): (4000, 2500),
            ("satellite", "lan0", "fd77:3::2"): (2000, 1000),
            ("satellite", "lan0", "-"): (0, 1000),
            ("lte", "lan0", "10.77.3.3"): (1000, 0),
            ("lan", "sat0", "-"): (9500, 16000),
            ("lan", "wwan3", "-"): (0, 1000),
        }
        self.assertEqual(self.steady(self.rows)[0], expected)
        # An upgrade goes on. Without the key, further packets have no client.
        self.meter.load(dict(self.config, max_series=8192))
        self.ask_from("10.77.3.2", "10.77.1.2", 1)
        self.meter.load(dict(self.config, forwarded_clients=[]))
        self.ask_from("10.77.3.2", "10.77.1.2", 1)
        expected["satellite", "lan0", "10.77.3.2"] = (11000, 5500)
        expected["satellite", "lan0", "-"] = (1000, 1500)
        expected["lan", "sat0", "-"] = (10500, 18000)
        self.assertEqual(self.steady(self.rows)[0], expected)
        self.check_history(expected)

    def test_top_has_each_forwarded_packet_once_in_its_total(self):
        # Rates by both interfaces added up to 200 %, and JSON had no forwarded traffic.
        self.meter.load(self.config)
        self.lan.start(type(self), lab.PYTHON, "-c", ASK_FROM, "10.77.3.2", "10.77.1.2", "1000000000")
        command = [tools.NETMETER, "top", "--once", "--pin-dir", self.meter.pin_dir]
        rows = json.loads(lab.run(*command, "--json"))
        forwarded = [row for row in rows if row["kind"] == "forwarded" and row["tx_bytes_per_second"]]
        self.assertEqual({row["uplink"] for row in forwarded}, {"lan", "satellite"})
        self.assertEqual({row["share"] for row in forwarded if row["uplink"] == "lan"}, {None})
        # A packet between two looks may be of no client yet, which is a row of its own.
        self.assertGreater(sum(row["share"] or 0 for row in forwarded), 0.9)
        self.assertEqual({row["uplink"] for row in rows if row["share"] is None} - {""}, {"lan"})
        self.assertAlmostEqual(sum(row["share"] or 0 for row in rows), 1)
        head = r"^total of lte \+ satellite: sent \S+/s, .*\nresent .*, in no total: lan(, no uplink)?\nNAME "
        self.assertRegex(lab.run(*command).decode(), head)

    def check_history(self, rows):
        database = os.path.join(self.directory, "history.db")
        lab.run(tools.NETMETER, "record", "--pin-dir", self.meter.pin_dir, "--database", database)
        command = [tools.NETMETER, "usage", "--database", database, "--uplink", "satellite", "--json"]
        clients = json.loads(lab.run(*command, "--kind", "forwarded", "--by", "destination"))["rows"]
        self.assertEqual(
            {row["destination"]: (row["tx_bytes"], row["rx_bytes"]) for row in clients},
            {client.replace("-", "forwarded"): row for (uplink, _, client), row in rows.items() if uplink == "satellite"},
        )
        sums = [sum(row[way] for key, row in rows.items() if key[0] == "satellite") for way in (0, 1)]
        services = [row for row in json.loads(lab.run(*command))["rows"] if row["kind"] == "forwarded"]
        self.assertEqual([(row["service"], row["tx_bytes"], row["rx_bytes"]) for row in services], [("lan0", *sums)])
        budgets = os.path.join(self.directory, "budgets.yml")
        with open(budgets, "w") as file:
            file.write("budgets: [{name: phone, limit: 1 MB, destination: 10.77.3.3, kind: forwarded, uplink: satellite}]")
        state = json.loads(lab.run(tools.NETMETER, "budget", "--database", database, "--budgets", budgets, "--json"))
        self.assertEqual(state[0]["used_bytes"], sum(rows["satellite", "lan0", "10.77.3.3"]))
        self.check_devices(database, rows)

    def check_devices(self, database, rows):
        """All addresses of the LAN here are one device's."""
        leases = os.path.join(self.directory, "leases")
        with open("docs/peers.md", encoding="utf-8") as file:
            command = re.search(r"uplinks_root_test.py -->\n```sh\n(.*?)```", file.read(), re.S).group(1)
        command = command.replace("usage", "usage --json --database " + database).replace("/var/lib/misc/dnsmasq.leases", leases)
        mine = {client: sum(row) for (uplink, _, client), row in rows.items() if uplink == "satellite"}
        unnamed = mine.pop("-")
        environment = {**os.environ, "PATH": os.path.dirname(os.path.abspath(tools.NETMETER)) + ":" + os.environ["PATH"]}
        device = "02:00:00:00:03:02"
        for text, name in (("", None), ("1795950000 02:00:00:00:03:02 10.77.3.2 phone 01:02\n", "phone")):
            with open(leases, "w") as file:
                file.write(text)
            found = json.loads(lab.run("sh", "-c", command, env=environment))["rows"]
            self.assertEqual(
                [(row["destination"], row.get("client_name"), row["tx_bytes"] + row["rx_bytes"]) for row in found],
                [(device, name, sum(mine.values())), ("forwarded", None, unnamed)],
            )


HOLD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int socket(int family, int type, int protocol) {
  int (*real)(int, int, int) = dlsym(RTLD_NEXT, "socket");
  if (family == AF_NETLINK && protocol == NETLINK_ROUTE) {
    close(open(getenv("HELD"), O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 2000 && access(getenv("GO"), F_OK) != 0; i++) usleep(10000);
  }
  return real(family, type, protocol);
}
"""


class MoveTest(tools.GatewayTest):
    """A load moves an interface to another uplink."""

    A = {"uplinks": {"a": ["sat0"], "b": ["wwan3"]}}
    B = {"uplinks": {"a": ["wwan3"], "b": ["sat0"]}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.load(cls.A)

    def send(self):
        self.meter.run([lab.PYTHON, "-c", SEND, "10.77.1.2"])

    def sent(self):
        """{uplink: packets of its interfaces}, if all is known."""
        balance = self.balance()
        self.assertEqual([balance[name]["unknown"] for name in "ab"], [None, None])
        return {name: balance[name]["tx"]["interface_packets"] for name in "ab"}

    def test_0_an_interface_without_packets_moves_and_comes_back(self):
        # The load dropped the first stay in b, because it had counted nothing, and the
        # programs added one from 0: b had each packet twice.
        self.send()  # by sat0
        for config in (self.B, self.A, {"uplinks": {}}, self.A):
            self.meter.load(config)
        before = self.sent()
        self.meter.run([lab.PYTHON, "-c", SEND, "10.77.2.2"])
        after = self.sent()
        self.assertEqual((after["a"], after["b"]), (before["a"], before["b"] + SENT // 1000))

    def test_1_a_read_in_between_begins_again(self):
        # It had the uplinks of before, and the interfaces of after: what the next uplink
        # counted was the former one's, and the next read took it back.
        self.send()
        library, held, go = (os.path.join(self.directory, name) for name in ("hold.so", "held", "go"))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=HOLD, text=True, check=True, timeout=60)
        env = {**os.environ, "LD_PRELOAD": library, "HELD": held, "GO": go}
        command = [tools.NETMETER, "uplinks", "--json", "--pin-dir", self.meter.pin_dir]
        reader = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent)
        self.addCleanup(reader.kill)
        lab.wait_for(lambda: os.path.exists(held), "the read of interfaces")
        self.meter.load(self.B)
        self.send()
        with open(go, "w"):
            pass
        rows = json.loads(reader.communicate(timeout=30)[0])
        found = {row["uplink"]: row["tx"]["interface_packets"] for row in rows if row["uplink"] in "ab"}
        self.assertEqual(found, self.sent())

    def test_2_after_a_killed_load_the_next_one_ends_the_former_stay(self):
        # Both uplinks counted what the interface did, for good.
        config = os.path.join(self.directory, "config.yml")
        command = [lab.LOADER, "load", "--verbose", "--pin-dir", self.meter.pin_dir, "--cgroup", self.meter.cgroup, "--group", "", "--config", config]

        def is_killed():
            self.meter.load(self.A)
            with open(config, "w") as file:
                json.dump(self.B, file)
            load = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=lab.die_with_parent)
            for line in load.stderr:
                if "/listeners: map" in line:
                    load.kill()
                    break
            load.stderr.close()
            load.wait()
            return "a load was interrupted" in str(self.balance()["a"]["unknown"])

        self.assertTrue(any(is_killed() for _ in range(20)))
        self.meter.load(self.B)
        before = self.sent()
        self.send()
        after = self.sent()
        self.assertEqual((after["a"], after["b"]), (before["a"], before["b"] + SENT // 1000))


class LoadTest(tools.GatewayTest):
    """No total goes back at a load."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.load({"uplinks": cls.UPLINKS})

    def load_again(self):
        self.meter.load(dict(self.config, proxy_ports=[lab.PROXY_PORT + 1]))
        self.meter.load(self.config)

    def test_an_interface_that_no_program_has_seen_keeps_its_count(self):
        self.internet.join("wwan8", "there8", 8)
        self.internet.run(lab.PYTHON, "-c", SEND, "10.77.8.1")  # to no socket
        before, _ = self.steady(lambda: self.balance()["lte"])
        self.assertGreaterEqual(before["rx"]["unnamed_bytes"], SENT)
        self.load_again()
        self.assertEqual(self.steady(lambda: self.balance()["lte"])[0], before)

    def test_forwarded_traffic_of_an_interface_that_has_gone_keeps_its_name(self):
        guest = lab.Network()
        guest.join("tap7", "guest0", 7)
        guest.run("ip", "route", "add", "default", "via", "10.77.7.1")
        guest.run(lab.PYTHON, "-c", SEND, "10.77.1.2")

        def sent():
            rows = json.loads(lab.run(tools.NETMETER, "list", "--json", "--pin-dir", self.meter.pin_dir))
            return {(row["name"], row["uplink"]): row["tx_bytes"] for row in rows if row["kind"] == "forwarded"}

        before, _ = self.steady(sent)
        self.assertEqual(before.get(("tap7", "satellite"), 0), SENT if MEASURED else 0)
        lab.run("ip", "link", "delete", "tap7")
        unknown = self.balance()["other"]["unknown"]
        self.load_again()
        self.assertEqual(sent(), before)
        self.assertEqual(self.balance()["other"]["unknown"], unknown)


class UnnamedTest(tools.GatewayTest):
    """Alternative names match; and what counts nothing is a row that says why."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.internet.join("port1", "there4", 4)
        cls.internet.join("late2", "there5", 5)
        cls.add_name("sat0", "the-satellite-dish-on-the-roof")
        lab.run("ip", "link", "add", "br0", "type", "bridge")
        lab.run("ip", "link", "set", "port1", "master", "br0")
        cls.load(
            {
                "uplinks": {
                    "satellite": ["the-satellite-dish-on-the-roof"],
                    "lan": ["port1"],
                    "lte": ["sta0", "the-modem-of-the-lorry"],
                }
            }
        )

    @staticmethod
    def add_name(link, name):
        lab.run("ip", "link", "property", "add", "dev", link, "altname", name)

    def not_counted(self):
        return {
            (uplink, one["interface"]): one["why"] for uplink, row in self.balance().items() for one in row["not_counted"]
        }

    def test_alternative_names_match_and_the_rest_is_said(self):
        service = lab.start_service(self, "climber", SERVICE)
        self.ask(service, "10.77.1.2", 100000)
        self.ask(service, "10.77.5.2", 1000)
        satellite = self.balance()["satellite"]
        self.assertEqual(satellite["interfaces"], ["sat0"])
        self.assertGreater(satellite["rx"]["local_bytes"], 200000)
        port = "a port of bridge br0: its packets count as those of br0"
        missing = {
            ("lan", "port1"): port,
            ("lte", "sta0"): "no such interface",
        }
        self.assertEqual(self.not_counted(), missing)
        self.assertRegex(self.uplinks().decode(), "(?m)^lan +interface port1: %s +- +- +- +-$" % port)
        # A name that is given later waits for a load.
        self.add_name("late2", "the-modem-of-the-lorry")
        self.assertEqual(self.balance()["lte"]["interfaces"], [])
        self.meter.load(self.config)
        self.ask(service, "10.77.5.2", 1000)
        lte = self.balance()["lte"]
        self.assertEqual(lte["interfaces"], ["late2"])
        self.assertGreater(lte["rx"]["local_bytes"], 2000)
        self.assertEqual(sorted(self.not_counted()), [("lan", "port1"), ("lte", "sta0")])


# Answers each datagram, at each address of its namespace.
ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    server.sendto(*server.recvfrom(65536))
"""

# Asks that for some answers.
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for _ in range(int(sys.argv[2])):
    s.sendto(bytes(100), (sys.argv[1], 7))
    s.recv(1000)
"""

# A peer at the other end of a tun device: sends each packet back to its sender. rawip has
# the type of a modem's raw IP link (rmnet, MHI): ARPHRD_RAWIP, by TUNSETLINK.
TUN = """
import fcntl, os, struct, sys
fd = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH", sys.argv[1].encode(), 0x1001))
if sys.argv[1] == "rawip":
    fcntl.ioctl(fd, 0x400454CD, 519)
print("ready", flush=True)
while True:
    packet = os.read(fd, 65536)
    os.write(fd, packet[:12] + packet[16:20] + packet[12:16] + packet[22:24] + packet[20:22] + packet[24:])
"""


class HeaderTest(unittest.TestCase):
    """Each kind of device counts a layer-2 header of its own, or none: with the right one
    no byte of 20 datagrams in each direction is unnamed."""

    # By kind: how both ends are made, by `ip link add NAME`. OWN and PEER are addresses.
    KINDS = {
        "vxlan": "type vxlan id 7 local OWN remote PEER dstport 4789",
        "geneve": "type geneve id 7 remote PEER",
        "gre": "type gre local OWN remote PEER",
        "gretap": "type gretap local OWN remote PEER",
        "ipip": "type ipip local OWN remote PEER",
        "ip6gre": "type ip6gre local OWN remote PEER",
        "ip6gretap": "type ip6gretap local OWN remote PEER",
        "ip6tnl": "type ip6tnl mode ipip6 local OWN remote PEER",
        "vlan": "link CABLE type vlan id 7",
        "ipvlan": "link CABLE type ipvlan mode l2",
    }
    EVERYWHERE = {"veth", "gro", "macvlan", "bridge", "vxlan", "tun", "rawip"}

    def add(self, link, kind, run, cable, here, there, address):
        options = self.KINDS[kind].replace("OWN", here).replace("PEER", there).replace("CABLE", cable)
        run("ip", "link", "add", link, *options.split())
        self.prepare(run, link, address)

    def prepare(self, run, link, address, *options):
        run("sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=1" % link)
        run("ip", "address", "add", address + "/24", "dev", link)
        run("ip", "link", "set", link, "up", *options)

    def make(self, kind, number):
        """A link of this kind; the address of its other end."""
        cable, far = "%s-c" % kind, "%s-f" % kind
        here, there = ("10.77.%d.%d" % (number, end) for end in (1, 2))
        inner, other = ("10.78.%d.%d" % (number, end) for end in (1, 2))
        if kind in ("tun", "rawip"):
            lab.run("ip", "tuntap", "add", "mode", "tun", kind)
            process = subprocess.Popen(
                [lab.PYTHON, "-c", TUN, kind], stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent
            )
            for cleanup in (process.stdout.close, process.wait, process.kill):
                self.addCleanup(cleanup)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            self.prepare(lab.run, kind, inner)
            return other
        self.far.join(kind if kind in ("veth", "gro") else cable, far, number)
        if kind == "gro":
            lab.run("ethtool", "-K", kind, "gro", "on")
        if kind in ("veth", "gro"):
            return there
        if kind.startswith("ip6"):
            self.far.join_ipv6(cable, far, number)
            here, there = ("fd77:%d::%d" % (number, end) for end in (1, 2))
        if kind == "bridge":
            lab.run("ip", "address", "flush", "dev", cable)
            # Without snooping, which makes a bridge send packets of its own.
            lab.run("ip", "link", "add", kind, "type", "bridge", "mcast_snooping", "0")
            lab.run("ip", "link", "set", cable, "master", kind)
            self.prepare(lab.run, kind, here, "address", "02:00:00:00:%02x:01" % number)
            return there
        if kind == "macvlan":
            lab.run("ip", "link", "add", kind, "link", cable, "type", "macvlan", "mode", "bridge")
            self.prepare(lab.run, kind, inner)
            self.far.run("ip", "address", "add", other + "/24", "dev", far)
            return other
        self.add(kind, kind, lab.run, cable, here, there, inner)
        self.add(kind, kind, self.far.run, far, there, here, other)
        return other

    def test_each_kind_has_its_header(self):
        lab.private_network()
        self.far = lab.Network()
        self.far.serve(type(self), ECHO)
        addresses = {}
        for number, kind in enumerate(sorted(self.EVERYWHERE | set(self.KINDS)), 1):
            try:
                addresses[kind] = self.make(kind, number)
            except RuntimeError as error:
                # This kernel does not have the kind.
                if kind in self.EVERYWHERE:
                    raise
                print(kind, error)
        for address in addresses.values():
            lab.run(lab.PYTHON, "-c", ASK, address, "1")
        keep_neighbours(lab.run, self.far.run)
        kinds = sorted(addresses)
        most = 10  # a meter has room for 14 uplinks
        for i in range(0, len(kinds), most):
            self.check({kind: addresses[kind] for kind in kinds[i : i + most]})

    def check(self, addresses):
        with contextlib.closing(lab.Meter("kinds")) as meter:
            meter.load({"uplinks": {kind: [kind] for kind in addresses}})
            for address in addresses.values():
                meter.run([lab.PYTHON, "-c", ASK, address, "20"])
            text = lab.run(tools.NETMETER, "uplinks", "--pin-dir", meter.pin_dir, "--json")
        balance = {row["uplink"]: row for row in json.loads(text)}
        for kind in addresses:
            row = balance[kind]
            for way in ("tx", "rx"):
                self.assertEqual(row[way]["local_packets"], 20, (kind, way))
                self.assertEqual(row[way]["interface_packets"], 20, (kind, way))
                if kind == "gro":
                    self.assertIn("layer-2 headers of different or unknown sizes", row["unknown"])
                    continue
                self.assertIsNone(row["unknown"], kind)
                rest = "unnamed" if "unnamed_bytes" in row[way] else "forwarded"
                self.assertEqual(row[way][rest + "_bytes"], 0, (kind, way))


if __name__ == "__main__":
    lab.main(120)
