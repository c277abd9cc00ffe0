#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter flows --forwarded` on a gateway: what its lines say, and that they add up to the
row of `netmeter list`. test/apps/live has all kinds of traffic."""

import json
import os
import re
import signal
import subprocess
import unittest

import gateway
import lab
import tools

# A request on a connection that stays open, for each line of input.
CLIENT = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    s.sendall(line.encode())
    left = 2 * len(line)
    while left:
        left -= len(s.recv(left)) or sys.exit("ended early")
    print("answered", flush=True)
"""
COUNTERS = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
ATTACHED = "netmeter: attached: connections that begin now are seen from their beginning\n"
CONFIG = {
    "uplinks": gateway.GatewayTest.UPLINKS,
    "forwarded_clients": ["lan"],
    "http_ports": [7000],
    "destinations": [{"name": "ruled", "address": "10.77.2.0/24"}],
}


@unittest.skipUnless(gateway.MEASURED, "netfilter programs need Linux 6.4")
class ForwardedFlowsTest(tools.GatewayTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.meter = lab.Meter("forwarded-flows")
        cls.addClassCleanup(cls.meter.close)
        gateway.keep_neighbours(lab.run, cls.lan.run, cls.internet.run)

    def setUp(self):
        self.meter.load(CONFIG)

    def flows(self, *options):
        return [tools.NETMETER, "flows", "--forwarded", "--follow", "--json", "--pin-dir", self.meter.pin_dir, *options]

    def follow(self, *options):
        follower = subprocess.Popen(
            self.flows(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lab.die_with_parent
        )
        self.addCleanup(follower.communicate)
        self.addCleanup(follower.kill)
        self.assertEqual(follower.stderr.readline(), ATTACHED)
        return follower

    def finish(self, follower):
        follower.send_signal(signal.SIGINT)
        out, errors = follower.communicate(timeout=30)
        self.assertEqual((follower.returncode, errors), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def row(self, uplink="satellite"):
        """Of the LAN's clients, at this uplink."""
        rows = json.loads(lab.run(tools.NETMETER, "list", "--json", "--pin-dir", self.meter.pin_dir))
        wanted = [row for row in rows if (row["kind"], row["name"], row["uplink"]) == ("forwarded", "lan0", uplink)]
        return [sum(row[counter] for row in wanted) for counter in COUNTERS]

    def client(self, address="10.77.1.2", port=7000):
        process = self.lan.start(type(self), lab.PYTHON, "-c", CLIENT, address, str(port), stdin=subprocess.PIPE)
        self.addCleanup(process.kill)

        def ask(line):
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"answered\n")

        process.ask = ask
        return process

    def end(self, client):
        client.stdin.close()
        client.wait(20)

    def check_sum(self, before, rows, uplink="satellite"):
        after = self.row(uplink)
        mine = [row for row in rows if row["uplink"] == uplink and row["kind"] == "forwarded"]
        self.assertEqual([sum(row[counter] for row in mine) for counter in COUNTERS], [b - a for a, b in zip(before, after)])

    def test_a_client_and_its_peer(self):
        before = self.row()
        follower = self.follow()
        client = self.client()
        client.ask("GET / HTTP/1.1\r\nHost: shop.example\r\n\r")
        self.end(client)
        lab.wait_for(lambda: self.row()[2] >= before[2] + 5, "the end of the connection")
        # A record on its own, a second after the last packet.
        line = json.loads(follower.stdout.readline())
        rows = [line, *self.finish(follower)]
        self.check_sum(before, rows)
        expected = {
            "record": "flow",
            "protocol": "tcp",
            "local_address": "10.77.3.2",
            "remote_address": "10.77.1.2",
            "remote_port": 7000,
            "interface_name": "sat0",
            "kind": "forwarded",
            "service": "lan0",
            "destination": "shop.example",
            "uplink": "satellite",
            "client_interface_name": "lan0",
            "client_uplink": "lan",
            "opened_by": "local",
            "end": "fin",
            "closed_by": "local",
            "partial": 0,
        }
        self.assertEqual({name: line.get(name) for name in expected}, expected)
        self.assertGreater(line["handshake_ns"], 0)
        self.assertNotIn("tx_payload_bytes", line)
        self.assertNotIn("process", line)

    # The rule names all of the other uplink's peers. The client has no name to read.
    def test_a_rule_names_the_destination(self):
        before = self.row("lte")
        follower = self.follow()
        client = self.client("10.77.2.2")
        client.ask("hello")
        self.end(client)
        rows = self.finish(follower)
        self.check_sum(before, rows, "lte")
        self.assertEqual({row["destination"] for row in rows if row["uplink"] == "lte"}, {"ruled"})

    def test_an_open_connection_has_records_while_it_lives(self):
        before = self.row()
        client = self.client()
        client.ask("before")
        old = self.row()
        follower = self.follow("--active", "0.3")
        records = []
        for text in ("one", "two"):
            client.ask(text)
            records.append(json.loads(follower.stdout.readline()))
        rows = records + self.finish(follower)
        self.assertNotEqual(before, old)
        self.check_sum(old, rows)
        self.assertEqual([(row["end"], row["part"], row["partial"]) for row in records], [("active", 0, 1), ("active", 1, 1)])
        self.end(client)

    def test_a_port_and_an_address_choose(self):
        follower = self.follow("--port", "7000", "--address", "10.77.3.0/24")
        client = self.client()
        client.ask("wanted")
        self.end(client)
        self.lan.run(lab.PYTHON, "-c", gateway.SEND, "10.77.1.2")
        rows = self.finish(follower)
        self.assertEqual({row.get("remote_port") for row in rows if row["record"] == "flow"}, {7000})

    # One flow has room. The others are counted by client, as without flows.
    def test_what_has_no_room_is_a_line(self):
        before = self.row()
        follower = self.follow("--max-flows", "1")
        first, second = self.client(), self.client()
        for client in first, second:
            client.ask("hello")
        follower.send_signal(signal.SIGINT)
        out, errors = follower.communicate(timeout=30)
        rows = [json.loads(line) for line in out.splitlines()]
        self.check_sum(before, rows)
        reasons = [row.get("reason") for row in rows if row["kind"] == "forwarded"]
        self.assertEqual(sorted(reasons, key=str), [None, "table_full"])
        self.assertIn("the table of flows was full", errors)
        for client in first, second:
            self.end(client)

    def refuse(self, enter, message):
        done = subprocess.run([*enter, *self.flows()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "netmeter: " + message + "\n"))

    def test_without_forwarded_traffic_one_line_says_so(self):
        self.refuse(
            self.lan.enter,
            "the meter counts forwarded traffic in another network namespace (run this in that of netmeter-loader)",
        )
        self.meter.load({})
        self.refuse([], "the meter does not count forwarded traffic: the loaded configuration has no uplinks")

    def test_nothing_is_left(self):
        # Others of this host may follow flows, too.
        programs = lambda: {p["id"] for p in json.loads(lab.run("bpftool", "-j", "prog", "show"))}
        follower = self.follow()
        own = set()
        for fd in os.listdir("/proc/%d/fdinfo" % follower.pid):
            with open("/proc/%d/fdinfo/%s" % (follower.pid, fd)) as file:
                own.update(int(id) for id in re.findall(r"^prog_id:\s+(\d+)$", file.read(), re.MULTILINE))
        self.assertGreater(len(own), 4)
        self.assertLessEqual(own, programs())
        follower.kill()
        follower.wait(20)
        lab.wait_for(lambda: not own & programs(), "the end of its programs")


if __name__ == "__main__":
    lab.main(seconds=240)
