#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter flows --ipfix`: collectors have the bytes and packets that `netmeter flows --json`
prints of the same traffic, and netmeter-ipfix runs without privileges."""

import collections
import json
import os
import signal
import socket
import subprocess
import threading
import unittest

import collectors
import lab
import tools
from collectors import Sum
from flows_traffic import HERE, THERE, TCP, UDP, aborted, datagrams, echo, exchange, pings, refused, serve

# Where `netmeter` finds it.
BIN = os.path.dirname(lab.path("lib/apps/ipfix/netmeter-ipfix"))
THERE6 = "fd77:0::2"


def sums(rows, key):
    """{key(row): Sum} of what `netmeter flows --json` prints."""
    found = collections.defaultdict(lambda: Sum(0, 0))
    for row in rows:
        if row["record"] != "lost":
            old = found[key(row)]
            packets = row["tx_packets"] + row["rx_packets"]
            found[key(row)] = Sum(old.bytes + row["tx_bytes"] + row["rx_bytes"], old.packets + packets)
    return {key: value for key, value in found.items() if value.packets}


class FlowsIpfixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cls.cloud = lab.Cloud()
        cls.cloud.join_ipv6("gate", "cloud", 0)
        with cls.cloud.inside():
            servers = socket.create_server((THERE, TCP)), socket.create_server((THERE6, TCP), family=socket.AF_INET6)
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind((THERE, UDP))
        cls.add_lan()
        cls.meter = lab.Meter("ipfix")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({"uplinks": {"wan": ["gate"], "lan": ["lan0"]}, "forwarded_clients": ["lan"]})
        for server in servers:
            threading.Thread(target=serve, args=(server,), daemon=True).start()
        threading.Thread(target=echo, args=(udp,), daemon=True).start()

    @classmethod
    def add_lan(cls):
        """Behind this host, which forwards to the cloud."""
        cls.lan = lab.Network()
        cls.lan.join("lan0", "host0", 3)
        cls.lan.join_ipv6("lan0", "host0", 3)
        lab.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        cls.lan.run("ip", "route", "add", "default", "via", "10.77.3.1")
        cls.lan.run("ip", "-6", "route", "add", "default", "via", "fd77:3::1")
        cls.cloud.run("ip", "route", "add", "10.77.3.0/24", "via", HERE)
        cls.cloud.run("ip", "-6", "route", "add", "fd77:3::/64", "via", "fd77:0::1")

    def start(self, *options, path=BIN):
        """A follower; its stderr is in the file errors."""
        name = os.path.join(self.directory, self.id() + str(len(os.listdir(self.directory))))
        command = [tools.NETMETER, "flows", "--pin-dir", self.meter.pin_dir, *options]
        with open(name, "wb") as out, open(name + ".errors", "wb") as errors:
            follower = subprocess.Popen(command, stdout=out, stderr=errors, env={"PATH": path}, preexec_fn=lab.die_with_parent)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        follower.file = name
        return follower

    def follow(self, *options):
        """One that is attached."""
        follower = self.start(*options)
        lab.wait_for(lambda: "attached" in self.errors(follower) or follower.poll(), "the line on stderr")
        self.assertIsNone(follower.poll(), self.errors(follower))
        return follower

    @staticmethod
    def errors(follower):
        with open(follower.file + ".errors", encoding="utf-8") as file:
            return file.read()

    def finish(self, follower, status=0):
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(60), status, self.errors(follower))

    def child_of(self, follower):
        with open("/proc/%d/task/%d/children" % (follower.pid, follower.pid), encoding="ascii") as file:
            (child,) = file.read().split()
        return int(child)

    def test_collectors_have_what_the_records_have(self):
        nfcapd, nfcapd6, nfacctd = collectors.Nfcapd(self), collectors.Nfcapd(self, "::1"), collectors.Nfacctd(self)
        tcp = collectors.TcpCollector(self)
        records = self.follow("--follow", "--json")
        senders = [self.follow("--ipfix", one.address) for one in (nfcapd, nfcapd6, nfacctd)]
        over_tcp = tcp.start()
        senders.append(self.follow("--ipfix", tcp.address, "--ipfix-protocol", "tcp", "--ipfix-domain", "9"))
        self.meter.inside(exchange, 200)
        self.meter.inside(exchange, 100, 3000, (THERE6, TCP))
        self.meter.inside(aborted, 50)
        self.meter.inside(refused, 50)
        self.meter.inside(datagrams, 200)
        self.meter.inside(pings, 3)
        for follower in [*senders, records]:
            self.finish(follower)
        for sender in senders:
            self.assertEqual(len(self.errors(sender).splitlines()), 1, self.errors(sender))
        with open(records.file, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(sum(row["record"] == "flow" for row in rows), 601)
        ((_, wanted),) = sums(rows, lambda row: None).items()
        self.assertGreater(wanted.bytes, 500000)
        for collector in (nfcapd, nfcapd6):
            found = collector.stop()
            self.assertEqual(Sum(sum(row["in_bytes"] for row in found), sum(row["in_packets"] for row in found)), wanted)
            self.assertTrue(any(row.get("dst6_addr") == "fd77::2" for row in found))
        names = {}
        for row in nfacctd.stop(wanted.packets):
            key = tuple(row[name.lower()] for name in collectors.OWN_ELEMENTS)
            old = names.get(key, Sum(0, 0))
            names[key] = Sum(old.bytes + row["bytes"], old.packets + row["packets"])
        fields = ("service", "destination", "uplink", "kind", "client_name", "client_peer")
        of_names = lambda row: tuple(row.get(name, "") for name in fields)
        self.assertEqual(names, sums(rows, of_names))
        self.assertTrue(all(service for service, *_ in names))
        found = over_tcp()
        self.assertEqual(tcp.domain, 9)
        self.assertEqual(Sum(sum(row["octetDeltaCount"] for row in found), sum(row["packetDeltaCount"] for row in found)), wanted)

    def test_forwarded_flows_have_the_client_and_its_frames_address(self):
        collector, named = collectors.Nfcapd(self), collectors.Nfacctd(self)
        records = self.follow("--follow", "--json", "--forwarded")
        senders = [self.follow("--ipfix", one.address, "--forwarded", "--clients", "mac") for one in (collector, named)]
        with self.lan.inside():
            exchange(30)
            exchange(20, 3000, (THERE6, TCP))
            datagrams(10)
        self.meter.inside(exchange, 10)
        for follower in [*senders, records]:
            self.finish(follower)
        with open(records.file, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        ((_, wanted),) = sums(rows, lambda row: None).items()
        found = collector.stop()
        self.assertEqual(Sum(sum(row["in_bytes"] for row in found), sum(row["in_packets"] for row in found)), wanted)
        lan, gate = socket.if_nametoindex("lan0"), socket.if_nametoindex("gate")
        ways = collections.Counter((row["input_snmp"], row["output_snmp"]) for row in found)
        self.assertEqual(ways, {(lan, gate): 60, (gate, lan): 60, (0, gate): 10, (gate, 0): 10})
        macs = {(row["input_snmp"], row.get("in_src_mac"), row.get("out_dst_mac")) for row in found if lan in (row["input_snmp"], row["output_snmp"])}
        none, client = "00:00:00:00:00:00", "02:00:00:00:03:02"
        self.assertEqual(macs, {(lan, client, none), (gate, none, client)})
        names = collections.defaultdict(lambda: Sum(0, 0))
        for row in named.stop(wanted.packets):
            key = row["servicename"], row["uplinkname"], row["servicekind"]
            names[key] = Sum(names[key].bytes + row["bytes"], names[key].packets + row["packets"])
        self.assertEqual(names, sums(rows, lambda row: (row["service"], row["uplink"], row["kind"])))
        self.assertIn(("lan0", "wan", "forwarded"), names)

    def test_the_sender_is_nobody_without_capabilities(self):
        collector = collectors.Nfcapd(self)
        follower = self.follow("--ipfix", collector.address)
        child = self.child_of(follower)

        def status():
            with open("/proc/%d/status" % child, encoding="ascii") as file:
                return dict(line.rstrip("\n").split(":\t") for line in file)

        lab.wait_for(lambda: status()["NoNewPrivs"] == "1", "its privileges to go")
        found = status()
        self.assertEqual(set(found["Uid"].split()), {"65534"})
        self.assertEqual(found["Groups"].split(), [found["Gid"].split()[0]])
        self.assertEqual({int(found[one], 16) for one in ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")}, {0})
        self.finish(follower)

    def test_a_collector_that_is_killed_stops_no_follower(self):
        collector = collectors.Nfcapd(self)
        follower = self.follow("--ipfix", collector.address)
        self.meter.inside(exchange, 5)
        collector.stop()
        lab.wait_for(lambda: self.meter.inside(exchange, 1) or "Connection refused" in self.errors(follower), "the refusal")
        self.finish(follower, status=1)
        self.assertRegex(self.errors(follower), r"netmeter-ipfix: \d+ data records were not sent\n$")

    def test_without_its_sender_a_follower_ends(self):
        follower = self.follow("--ipfix", "127.0.0.1:4739")
        os.kill(self.child_of(follower), signal.SIGKILL)
        self.assertEqual(follower.wait(60), 1)
        follower = self.start("--ipfix", "127.0.0.1")
        self.assertEqual(follower.wait(60), 2)
        self.assertIn("netmeter-ipfix: expected HOST:PORT", self.errors(follower))
        follower = self.start("--ipfix", "127.0.0.1:4739", path="/nonexistent")
        self.assertEqual(follower.wait(60), 1)
        self.assertEqual(self.errors(follower), "netmeter: netmeter-ipfix is not installed (apt install netmeter-ipfix)\n")


if __name__ == "__main__":
    lab.main(280)
