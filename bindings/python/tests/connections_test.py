# SPDX-License-Identifier: BSD-3-Clause
"""netmeter.connections on real sockets, without root and without a meter."""

import dataclasses
import os
import re
import socket
import subprocess
import sys
import unittest

import netmeter
from netmeter import _netmeter, connections


def connect():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    return listener, client, server


class ReadTest(unittest.TestCase):
    def setUp(self):
        self.listener, self.client, self.server = connect()
        for sock in (self.listener, self.client, self.server):
            self.addCleanup(sock.close)

    def test_tells_what_was_sent(self):
        self.client.sendall(bytes(5000))
        self.assertEqual(len(self.server.recv(5000, socket.MSG_WAITALL)), 5000)
        read = connections.read(self.client)
        self.assertEqual(read.fd, self.client.fileno())
        self.assertEqual(read.state, "ESTABLISHED")
        self.assertEqual((read.local_address, read.local_port), self.client.getsockname())
        self.assertEqual((read.remote_address, read.remote_port), self.client.getpeername())
        self.assertEqual(read.sent_bytes - read.retransmitted_bytes, 5000)
        self.assertEqual(connections.read(self.server.fileno()).received_bytes, 5000)
        self.assertGreater(read.rtt_us, 0)
        self.assertIs(type(read.tcp_info), bytes)
        self.assertGreaterEqual(len(read.tcp_info), 232)
        # These fields are at the ends of the tuple, so all fields are in order.
        info = self.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
        self.assertEqual(read.path_mtu, int.from_bytes(info[60:64], "little"))
        self.assertEqual(read.congestion_window_segments, int.from_bytes(info[80:84], "little"))
        self.assertEqual(read.busy_us, int.from_bytes(info[168:176], "little"))
        self.assertEqual(read.sent_segments, int.from_bytes(info[136:140], "little"))

    def test_errors_are_those_of_the_package(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            with self.assertRaisesRegex(netmeter.InvalidArgumentError, "no TCP socket"):
                connections.read(udp)
        with self.assertRaises(netmeter.InvalidArgumentError):
            connections.read(udp)  # closed
        with self.assertRaises(TypeError):
            connections.read("eth0")


class FlowsTest(unittest.TestCase):
    def test_fields_are_those_of_the_library(self):
        names = tuple(field.name for field in dataclasses.fields(connections.FlowRecord))
        self.assertEqual(names, _netmeter.FLOW_RECORD_FIELDS)

    def test_fields_of_a_connection_are_those_of_the_header(self):
        header = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "include/netmeter/connections.h")
        with open(header, encoding="utf-8") as file:
            body = file.read().partition("\nstruct Connection {")[2].partition("\n};")[0]
        members = re.findall(r"^  [a-z0-9_:]+ (\w+)(?: = \S+)?;", body, re.M)
        self.assertEqual(members, [field.name for field in dataclasses.fields(connections.Connection)])

    def test_stream_is_read_in_pieces(self):
        # record "flow"; kind "service"; service "mme"; transport of a newer netmeter;
        # partial 1; tx_bytes 300; label "site" "ulm"; a field of a newer netmeter
        message = b"\x0a\x04flow\x6a\x07service\x72\x03mme\x82\x01\x04quic\xd0\x01\x01\xf0\x01\xac\x02"
        message += b"\xe2\x02\x0b\x0a\x04site\x12\x03ulm\x98\x06\x05"
        stream = (bytes([len(message)]) + message) * 3
        decoder = connections.FlowDecoder()
        records = []
        for byte in stream:
            records += decoder.feed(bytes([byte]))
        self.assertEqual([(r.record, r.service, r.tx_bytes) for r in records], [("flow", "mme", 300)] * 3)
        for r in records:
            self.assertIs(r.kind, netmeter.Kind.SERVICE)
            self.assertIs(r.transport, netmeter.Transport.UNKNOWN)
            self.assertIs(r.path, netmeter.Path.UNKNOWN)
            self.assertIs(r.partial, True)
            self.assertEqual((r.host, r.labels), ("", {"site": "ulm"}))

    def run_example(self, *arguments, **options):
        command = [sys.executable, "examples/connections.py", *arguments]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, timeout=60, **options
        ).stdout.decode()

    def test_the_example_tells_of_its_own_connection(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            self.assertRegex(
                self.run_example("127.0.0.1", port),
                f"^ESTABLISHED 127.0.0.1:{port} rtt \\d+ us, retransmitted segments 0\n$",
            )

    def test_the_example_reads_records(self):
        message = b"\x0a\x04flow\x72\x03mme\xf0\x01\xac\x02"
        self.assertEqual(self.run_example("-", input=bytes([len(message)]) + message).split(), ["300", "0"])


if __name__ == "__main__":
    unittest.main()
