# SPDX-License-Identifier: BSD-3-Clause
"""A gateway for root tests in Python: two uplinks to one internet, a LAN behind it, and a
meter with these uplinks. All cables are without offloads and ARP, so each packet is real.

    class BillTest(gateway.GatewayTest):
        @classmethod
        def setUpClass(cls):
            super().setUpClass()
            cls.load({"uplinks": cls.UPLINKS})

    lan 10.77.3.2 -- lan0 .1   gateway   sat0  10.77.1.1 -- .2 internet
                                         wwan3 10.77.2.1 -- .2"""

import json
import os
import unittest

import lab

HEADER = 14  # of Ethernet

# Whether this kernel can count what is forwarded; elsewhere it is unnamed traffic.
MEASURED = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 4)

# Reads lines "ADDRESS PORT SIZE": sends SIZE bytes on one connection for each address,
# while it reads twice SIZE.
SERVICE = """
import socket, sys, threading
sockets = {}
for line in sys.stdin:
    address, port, size = line.split()
    if address not in sockets:
        sockets[address] = socket.create_connection((address, int(port)))
    s, left = sockets[address], 2 * int(size)
    sender = threading.Thread(target=s.sendall, args=(bytes(int(size)),))
    sender.start()
    while left:
        left -= len(s.recv(65536)) or sys.exit("ended early")
    sender.join()
    print("answered", flush=True)
"""

# Answers each byte with two, at some ports.
ANSWERER = """
import socket, sys, threading
def answer(connection):
    while data := connection.recv(65536):
        connection.sendall(2 * data)
def accept(server):
    while True:
        threading.Thread(target=answer, args=(server.accept()[0],)).start()
for port in map(int, sys.argv[1:] or [7000]):
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=accept, args=(server,)).start()
print("ready", flush=True)
"""

# Takes datagrams, and answers none.
SINK = """
import socket
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("::", 9))
print("ready", flush=True)
while True:
    server.recv(65536)
"""

# Sends 100 datagrams, which have 1000 bytes with their headers.
SEND = """
import socket, sys
six = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(100):
    s.sendto(bytes(952 if six else 972), (sys.argv[1], 9))
"""
SENT = 100000


def keep_neighbours(*runs):
    """No ARP for known neighbours from now on. runs: lab.run, or a Network's."""
    for run in runs:
        for one in json.loads(run("ip", "-4", "-json", "neighbour", "show")):
            words = [one["dst"], "lladdr", one["lladdr"], "dev", one["dev"], "nud", "permanent"]
            run("ip", "neighbour", "replace", *words)


class GatewayTest(unittest.TestCase):
    UPLINKS = {"satellite": ["sat0"], "lte": ["wwan*"], "lan": ["lan0"]}

    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cls.internet = lab.Network()
        cls.lan = lab.Network()
        cls.internet.join("sat0", "there0", 1)
        cls.internet.join("wwan3", "there1", 2)
        cls.lan.join("lan0", "host0", 3)
        lab.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        cls.lan.run("ip", "route", "add", "default", "via", "10.77.3.1")
        cls.internet.run("ip", "route", "add", "10.77.3.0/24", "via", "10.77.1.1")
        cls.internet.serve(cls, ANSWERER)

    @classmethod
    def add_ipv6(cls):
        """To the LAN, and to the internet by sat0."""
        cls.internet.join_ipv6("sat0", "there0", 1)
        cls.lan.join_ipv6("lan0", "host0", 3)
        lab.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
        cls.lan.run("ip", "-6", "route", "add", "default", "via", "fd77:3::1")
        cls.internet.run("ip", "-6", "route", "add", "fd77:3::/64", "via", "fd77:1::1")

    @classmethod
    def add_tunnel(cls):
        """By the satellite: 10.78.0.1 -- vx0 -- .2"""
        tunnel = "type vxlan id 7 local 10.77.1.%d remote 10.77.1.%d dstport 4789"
        for run, own, other in ((lab.run, 1, 2), (cls.internet.run, 2, 1)):
            run("ip", "link", "add", "vx0", *(tunnel % (own, other)).split())
            run("sysctl", "-qw", "net.ipv6.conf.vx0.disable_ipv6=1")
            run("ethtool", "-K", "vx0", "tso", "off", "gso", "off", "gro", "off")
            run("ip", "address", "add", "10.78.0.%d/24" % own, "dev", "vx0")
            # With 1500, the tunnel drops TCP's first packets, which are too long for it.
            run("ip", "link", "set", "vx0", "mtu", "1400", "up")

    @classmethod
    def add_bridge(cls):
        lab.run("ip", "link", "add", "br0", "type", "bridge")
        lab.run("ip", "address", "add", "10.80.0.1/24", "dev", "br0")
        lab.run("ip", "link", "set", "br0", "up")

    @classmethod
    def add_container(cls, number):
        """A network behind the bridge."""
        pod = lab.Network()
        port = "port%d" % number
        lab.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pod.path)
        lab.run("ip", "link", "set", port, "master", "br0", "up")
        pod.run("ip", "address", "add", "10.80.0.%d/24" % number, "dev", "eth0")
        pod.run("ip", "link", "set", "eth0", "up")
        pod.run("ip", "route", "add", "default", "via", "10.80.0.1")
        return pod

    @classmethod
    def load(cls, config, group=""):
        cls.config = config
        cls.meter = lab.Meter(cls.__name__.lower())
        cls.addClassCleanup(cls.meter.close)
        # What was counted before the load is no part of it.
        cls.before = lab.counters()
        cls.meter.load(config, group)

    def steady(self, read):
        """What read() returns while no interface counts a packet, and their counters."""
        result = None

        def read_steadily():
            nonlocal result
            links = lab.counters()
            result = read(), links
            return lab.counters() == links

        lab.wait_for(read_steadily, "interfaces that count nothing")
        return result

    def ask(self, service, address, size, port=7000):
        """service: a process that runs SERVICE."""
        service.stdin.write("%s %d %d\n" % (address, port, size))
        service.stdin.flush()
        self.assertEqual(service.stdout.readline(), "answered\n")
