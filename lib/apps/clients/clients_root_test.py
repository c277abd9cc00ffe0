#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Clients behind a gateway by MAC address, by lease of dnsmasq and by WireGuard peer: rows
become fewer, and no byte is lost."""

import csv
import json
import os
import socket
import subprocess
import unittest

import lab
import tools
from gateway import MEASURED

# Sends datagrams of 1000 bytes, with their headers, from an address. None is answered.
SEND_FROM = """
import socket, sys
own, peer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
six = ":" in peer
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
for _ in range(count):
    s.sendto(bytes(952 if six else 972), (peer, 9))
"""

GROUP = "54321"
MEMBER = ["setpriv", "--reuid=65534", "--regid=" + GROUP, "--clear-groups"]

PHONE = "02:00:00:00:03:02"
TABLET = "02:00:00:00:03:03"


@unittest.skipUnless(MEASURED, "before Linux 6.4")
class ClientsTest(tools.GatewayTest):
    def send(self, own, peer, count):
        """Over the satellite. Returns once that was counted."""
        sent = sum(self.rows().values()) + 1000 * count
        self.lan.run(lab.PYTHON, "-c", SEND_FROM, own, peer, str(count))
        lab.wait_for(lambda: sum(self.rows().values()) == sent, "%d bytes" % sent)

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def list_command(self, *options):
        return [tools.NETMETER, "list", "--kind", "forwarded", "--pin-dir", self.meter.pin_dir, *options]

    def rows(self, *options):
        """{(client, its name): sent} on the satellite, whose clients only send."""
        rows = json.loads(lab.run(*self.list_command("--uplink", "satellite", "--json", *options)))
        found = {(row["destination"], row.get("client_name")): row["tx_bytes"] for row in rows}
        self.assertEqual(len(found), len(rows))
        return found

    def flows(self, own, options):
        """The record of a forwarded flow from this address."""
        command = [tools.NETMETER, "flows", "--forwarded", "--follow", "--json", "--pin-dir", self.meter.pin_dir, *options]
        follower = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lab.die_with_parent
        )
        try:
            self.assertIn("attached", follower.stderr.readline())
            self.send(own, "10.77.1.2", 1)
            follower.terminate()
            records = [json.loads(line) for line in follower.communicate(timeout=60)[0].splitlines()]
        finally:
            follower.kill()
            follower.communicate()
        (record,) = [r for r in records if r["record"] == "flow" and r["local_address"] == own and r["protocol"] == "udp"]
        self.assertEqual((record["kind"], record["tx_bytes"]), ("forwarded", 1000))
        return record.get("client_mac"), record.get("client_peer"), record.get("client_name")

    def fails(self, *command):
        done = subprocess.run(command, capture_output=True, timeout=60, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        return done.stderr


class NeighboursTest(ClientsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.add_ipv6()
        cls.lan.run("ip", "address", "add", "10.77.3.3/24", "dev", "host0")
        cls.set_tablet(TABLET)
        cls.load({"uplinks": cls.UPLINKS, "forwarded_clients": ["lan"]}, GROUP)

    @staticmethod
    def set_tablet(mac):
        lab.run("ip", "neighbour", "replace", "10.77.3.3", "lladdr", mac, "dev", "lan0", "nud", "permanent")

    def test_1_addresses_of_one_device_are_one_row(self):
        self.send("10.77.3.2", "10.77.1.2", 10)
        self.send("fd77:3::2", "fd77:1::2", 5)
        self.send("10.77.3.3", "10.77.1.2", 3)
        self.assertEqual(
            self.rows(), {("10.77.3.2", None): 10000, ("fd77:3::2", None): 5000, ("10.77.3.3", None): 3000}
        )
        self.assertEqual(self.rows("--clients", "mac"), {(PHONE, None): 15000, (TABLET, None): 3000})
        self.assertEqual(self.rows("--clients", "address,mac"), self.rows())
        self.assertEqual(self.rows("--clients", "mac", "--destination", PHONE), {(PHONE, None): 15000})
        # Any user reads the neighbours.
        rows = json.loads(lab.run(*MEMBER, *self.list_command("--clients", "mac", "--uplink", "satellite", "--json")))
        self.assertEqual({row["destination"]: row["tx_bytes"] for row in rows}, {PHONE: 15000, TABLET: 3000})

    def test_2_a_client_has_its_name(self):
        ethers = self.file("ethers", PHONE + " phone\n")
        hosts = self.file("hosts", "10.77.3.3 tablet\n")
        names = ["--client-names", ethers, "--client-names", hosts]
        self.assertEqual(self.rows("--clients", "mac", *names), {(PHONE, "phone"): 15000, (TABLET, "tablet"): 3000})
        # ethers(5) has no addresses, but the kernel knows whose they are.
        self.assertEqual(self.rows(*names)["10.77.3.3", "tablet"], 3000)
        self.assertEqual(self.rows(*names)["10.77.3.2", "phone"], 10000)
        table = lab.run(*self.list_command("--clients", "mac", *names)).decode()
        self.assertRegex(table, r"(?m)^forwarded +lan0 +%s \(phone\) +other " % PHONE)
        text = lab.run(*self.list_command("--clients", "mac", "--csv", *names)).decode()
        named = {row["client_name"]: row["tx_bytes"] for row in csv.DictReader(text.splitlines()) if row["client_name"]}
        self.assertEqual(named, {"phone": "15000", "tablet": "3000"})

    # An uplink's neighbour claimed an address of the LAN, and had its row.
    def test_2_a_neighbour_elsewhere_is_another_one(self):
        elsewhere = ["10.77.3.3", "lladdr", PHONE, "dev", "sat0", "nud", "permanent"]
        lab.run("ip", "neighbour", "replace", *elsewhere)
        try:
            self.assertEqual(self.rows("--clients", "mac"), {(PHONE, None): 15000, (TABLET, None): 3000})
        finally:
            lab.run("ip", "neighbour", "del", "10.77.3.3", "dev", "sat0")

    def test_3_an_address_without_a_neighbour_keeps_its_row(self):
        lab.run("ip", "neighbour", "del", "10.77.3.3", "dev", "lan0")
        try:
            self.assertEqual(self.rows("--clients", "mac"), {(PHONE, None): 15000, ("10.77.3.3", None): 3000})
            leases = self.file("leases", "1795950000 %s 10.77.3.3 tablet *\n" % TABLET)
            found = self.rows("--clients", "mac", "--client-names", leases)
            self.assertEqual(found, {(PHONE, None): 15000, (TABLET, "tablet"): 3000})
        finally:
            self.set_tablet(TABLET)

    def test_4_wrong_use_is_one_line(self):
        self.assertIn("not 'ip'", self.fails(*self.list_command("--clients", "mac,ip")))
        wrong = self.file("wrong", "# names\nphone\n")
        self.assertIn(wrong + ":2: expected", self.fails(*self.list_command("--client-names", wrong)))

    def test_5_top_has_clients_too(self):
        names = self.file("ethers", PHONE + " phone\n")
        command = [tools.NETMETER, "top", "--once", "--interval", "0.1", "--json", "--pin-dir", self.meter.pin_dir]
        rows = json.loads(lab.run(*command, "--clients", "mac", "--client-names", names))
        found = [
            (row["destination"], row.get("client_name"), row["tx_bytes"])
            for row in rows
            if (row["kind"], row["uplink"]) == ("forwarded", "satellite")
        ]
        self.assertEqual(sorted(found), [(PHONE, "phone", 15000), (TABLET, None, 3000)])

    def test_6_a_lease_of_dnsmasq_has_device_and_name(self):
        leases = os.path.join(self.directory, "dnsmasq.leases")
        server = subprocess.Popen(
            ["dnsmasq", "--conf-file=/dev/null", "--keep-in-foreground", "--port=0", "--no-ping", "--user=root", "--pid-file="]
            + ["--interface=lan0", "--bind-interfaces", "--dhcp-range=10.77.3.50,10.77.3.59,1h", "--dhcp-leasefile=" + leases],
            preexec_fn=lab.die_with_parent,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        # A client repeats its request until the server is there.
        self.lan.run("udhcpc", "-i", "host0", "-f", "-q", "-t", "20", "-T", "1", "-n", "-x", "hostname:phone", "-s", "/bin/true")

        def lease():
            if not os.path.exists(leases):
                return None
            with open(leases, encoding="utf-8") as file:
                return file.read().split()

        lab.wait_for(lease, "a lease")
        _, mac, address, name = lease()[:4]
        self.assertEqual((mac, name), (PHONE, "phone"))
        self.lan.run("ip", "address", "add", address + "/24", "dev", "host0")
        before = self.rows("--clients", "mac", "--client-names", leases)
        self.send(address, "10.77.1.2", 2)
        self.assertEqual(self.rows()[address, None], 2000)
        after = self.rows("--clients", "mac", "--client-names", leases)
        self.assertEqual(after.pop((PHONE, "phone")), before.pop((PHONE, "phone")) + 2000)
        self.assertEqual(after, before)


    def test_7_the_history_has_who_had_an_address(self):
        """A telephone leaves, and another device gets its address."""
        database = os.path.join(self.directory, "history.db")

        def record(*options):
            lab.run(tools.NETMETER, "record", "--pin-dir", self.meter.pin_dir, "--database", database, *options)

        def usage(*options):
            command = [tools.NETMETER, "usage", "--database", database, "--uplink", "satellite", "--json"]
            read = json.loads(lab.run(*command, "--kind", "forwarded", "--by", "destination", *options))
            self.assertEqual(read["sum"]["tx_bytes"], sum(self.rows().values()))
            self.assertEqual(read["sum"]["tx_bytes"], sum(row["tx_bytes"] for row in read["rows"]))
            return {(row["destination"], row.get("client_name")): row["tx_bytes"] for row in read["rows"]}

        record()
        addresses = usage()
        self.assertEqual(addresses, self.rows())
        self.send("10.77.3.3", "10.77.1.2", 1)
        record("--clients", "mac")
        self.send("10.77.3.3", "10.77.1.2", 2)
        self.set_tablet("02:00:00:00:03:04")
        record("--clients", "mac")
        lab.run("ip", "neighbour", "del", "10.77.3.3", "dev", "lan0")
        self.send("10.77.3.3", "10.77.1.2", 4)
        wrong = self.file("wrong", "phone\n")
        record("--clients", "mac", "--client-names", wrong)
        # What was recorded by address stays.
        addresses["10.77.3.3", None] += 4000
        addresses.update({(TABLET, None): 1000, ("02:00:00:00:03:04", None): 2000})
        self.assertEqual(usage(), addresses)
        budgets = self.file("budgets.yml", "budgets: [{name: tablet, limit: 1 MB, destination: '%s', uplink: satellite, direction: tx}]" % TABLET)
        state = json.loads(lab.run(tools.NETMETER, "budget", "--database", database, "--budgets", budgets, "--json"))
        self.assertEqual(state[0]["used_bytes"], 1000)
        # What was recorded by address, and under the MAC address.
        self.set_tablet(TABLET)
        names = self.file("ethers", TABLET + " tablet\n")
        merged = usage("--clients", "mac", "--client-names", names)
        self.assertEqual(merged[TABLET, "tablet"], addresses["10.77.3.3", None] + 1000)
        self.assertEqual(merged["02:00:00:00:03:04", None], 2000)
        self.assertEqual(sum(merged.values()), sum(addresses.values()))
        text = lab.run(
            tools.NETMETER, "usage", "--database", database, "--kind", "forwarded", "--by", "destination", "--csv", "--client-names", names
        ).decode()
        self.assertEqual(
            {row["client_name"] for row in csv.DictReader(text.splitlines()) if row["destination"] == TABLET}, {"tablet"}
        )
        self.assertIn("need --by destination", self.fails(tools.NETMETER, "usage", "--database", database, "--clients", "mac"))

    def test_8_flows_have_clients_too(self):
        names = self.file("ethers", PHONE + " phone\n")
        self.assertEqual(self.flows("10.77.3.2", []), (None, None, None))
        self.assertEqual(self.flows("10.77.3.2", ["--client-names", names]), (None, None, "phone"))
        self.assertEqual(self.flows("10.77.3.2", ["--clients", "mac"]), (PHONE, None, None))
        hosts = self.file("hosts", "10.77.3.2 camera\n")
        found = self.flows("10.77.3.2", ["--clients", "mac", "--client-names", names, "--client-names", hosts])
        self.assertEqual(found, (PHONE, None, "camera"))
        flows = [tools.NETMETER, "flows", "--duration", "1", "--pin-dir", self.meter.pin_dir]
        self.assertIn("need --forwarded", self.fails(*flows, "--clients", "mac"))

    def test_9_a_client_is_forgotten_and_no_byte(self):
        database = os.path.join(self.directory, "forget.db")
        history = ["--database", database]
        forget = [tools.NETMETER, "forget", *history, "--destination", "10.77.3.3"]

        def record():
            lab.run(tools.NETMETER, "record", "--pin-dir", self.meter.pin_dir, *history)

        def usage(*options):
            read = json.loads(lab.run(tools.NETMETER, "usage", *history, "--json", "--by", *options))
            return read["sum"], {row.get("destination"): row["tx_bytes"] for row in read["rows"]}

        def is_in_a_file():
            return [end for end in ("", "-wal") if b"10.77.3.3" in open(database + end, "rb").read()]

        record()
        self.send("10.77.3.3", "10.77.1.2", 2)
        record()
        total, rows = usage("destination")
        hours = usage("hour")
        # As somebody who may read only.
        os.chmod(self.directory, 0o755)
        os.chmod(database, 0o644)
        self.assertIn("Permission denied (run as root)", self.fails("setpriv", "--reuid=65534", "--clear-groups", *forget))
        said = lab.run(*forget).decode()
        self.assertIn(" of hours and days: the name is `forgotten` now\nthe meter still has the name: ", said)
        rows["forgotten"] = rows.pop("10.77.3.3")
        self.assertEqual((usage("destination"), usage("hour")), ((total, rows), hours))
        record()
        self.assertEqual(usage("destination"), (total, rows))
        # What the client sends afterwards is recorded once, and forgotten as well.
        self.send("10.77.3.3", "10.77.1.2", 1)
        record()
        self.assertEqual(usage("destination")[1], {**rows, "10.77.3.3": 1000})
        lab.run(lab.LOADER, "load", "--restart", "--quiet", "--pin-dir", self.meter.pin_dir)
        record()
        total = usage("destination")[0]
        self.assertTrue(is_in_a_file())
        self.assertNotIn("still", lab.run(*forget).decode())
        self.assertEqual(is_in_a_file(), [])
        rows["forgotten"] += 1000
        self.assertEqual(usage("destination"), (total, rows))
        self.assertIn("has no destination '10.77.3.3'", self.fails(*forget))


class WireGuardTest(ClientsTest):
    """Peers of wireguard-go, which wg(8) shows as it shows those of the kernel."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Sockets of wireguard-go are those of the host.
        cls.server, cls.client, cls.other = ("nm%s%d" % (end, os.getpid()) for end in "sco")
        cls.keys = {name: lab.run("wg", "genkey").decode() for name in ("server", "client", "other", "third")}
        cls.public = {name: lab.run("wg", "pubkey", input=key.encode()).decode().strip() for name, key in cls.keys.items()}
        cls.start_device(cls.server, cls.keys["server"])
        cls.start_device(cls.other, cls.keys["other"])
        with cls.lan.inside():
            cls.start_device(cls.client, cls.keys["client"])
        lab.run("ip", "address", "add", "10.99.0.1/24", "dev", cls.server)
        cls.lan.run("ip", "address", "add", "10.99.0.2/24", "dev", cls.client)
        cls.lan.run("ip", "address", "add", "10.99.0.7/32", "dev", cls.client)
        lab.run(
            "wg", "set", cls.server, "listen-port", "51820",
            "peer", cls.public["client"], "allowed-ips", "10.99.0.2/32,10.99.0.4/30",
            "peer", cls.public["third"], "allowed-ips", "10.99.0.0/24",
        )  # fmt: skip
        cls.lan.run("wg", "set", cls.client, "peer", cls.public["server"], "allowed-ips", "0.0.0.0/0", "endpoint", "10.77.3.1:51820")
        # The way to the internet of another VPN, which has all addresses.
        lab.run("wg", "set", cls.other, "peer", cls.public["third"], "allowed-ips", "0.0.0.0/0,::/0")
        cls.lan.run("ip", "route", "add", "10.77.1.0/24", "dev", cls.client)
        uplinks = {"satellite": ["sat0"], "vpn": [cls.server], "lan": ["lan0"]}
        cls.load({"uplinks": uplinks, "forwarded_clients": ["vpn", "lan"]}, GROUP)

    @classmethod
    def start_device(cls, name, key):
        path = os.path.join(cls.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(key)
        process = subprocess.Popen(["wireguard-go", "-f", name], preexec_fn=lab.die_with_parent, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)  # it removes its socket

        def listens():
            with socket.socket(socket.AF_UNIX) as client:
                return client.connect_ex("/var/run/wireguard/%s.sock" % name) == 0

        # wg removes a socket that refuses it, as this one does for a moment.
        lab.wait_for(listens, "wireguard-go", seconds=60)
        lab.run("wg", "set", name, "private-key", path)
        lab.run("ip", "link", "set", name, "up")

    def test_1_a_peer_has_the_longest_prefix(self):
        self.send("10.99.0.2", "10.77.1.2", 4)
        self.send("10.99.0.7", "10.77.1.2", 2)
        self.assertEqual(self.rows(), {("10.99.0.2", None): 4000, ("10.99.0.7", None): 2000})
        client = self.public["client"]
        self.assertEqual(self.rows("--clients", "wireguard"), {(client, None): 6000})
        names = self.file("peers", client + " annas-laptop\n")
        found = self.rows("--clients", "mac,wireguard", "--client-names", names)
        self.assertEqual(found, {(client, "annas-laptop"): 6000})

    def test_2_another_interface_gives_no_peer(self):
        """The peer of another VPN had every client of the LAN."""
        self.lan.run("ip", "route", "replace", "10.77.1.0/24", "via", "10.77.3.1")
        self.send("10.77.3.2", "10.77.1.2", 1)
        self.assertEqual(self.rows("--clients", "wireguard")["10.77.3.2", None], 1000)
        # The history does not know the interface.
        database = os.path.join(self.directory, "history.db")
        lab.run(tools.NETMETER, "record", "--pin-dir", self.meter.pin_dir, "--database", database)
        command = [tools.NETMETER, "usage", "--database", database, "--uplink", "satellite", "--json", "--kind", "forwarded"]
        rows = json.loads(lab.run(*command, "--by", "destination", "--clients", "wireguard"))["rows"]
        found = {row["destination"]: row["tx_bytes"] for row in rows}
        self.assertEqual(found, {self.public["client"]: 6000, "10.77.3.2": 1000})

    def test_3_flows_have_peers_too(self):
        self.lan.run("ip", "route", "replace", "10.77.1.0/24", "dev", self.client)
        names = self.file("peers", self.public["client"] + " annas-laptop\n")
        found = self.flows("10.99.0.2", ["--clients", "mac,wireguard", "--client-names", names])
        self.assertEqual(found, (None, self.public["client"], "annas-laptop"))

    def test_4_who_may_not_ask_is_told(self):
        self.assertIn("wg show all allowed-ips: ", self.fails(*MEMBER, *self.list_command("--clients", "wireguard")))
        without = ["env", "PATH=" + self.directory, "/usr/bin/env"]
        self.assertIn("wg is not installed", self.fails(*without, *self.list_command("--clients", "wireguard")))


if __name__ == "__main__":
    lab.main(seconds=300)
