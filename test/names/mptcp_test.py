# SPDX-License-Identifier: BSD-3-Clause
"""Connections of MPTCP name their destination as those of TCP do: by the server name
of TLS, and by the host of HTTP."""

import socket
import ssl
import unittest

import lab
import peers

HERE, THERE = lab.Cloud.HERE, lab.Cloud.THERE
MPTCP = 262  # IPPROTO_MPTCP

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


class Server(peers.Server):
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
        cls.certificate = lab.make_certificate(lab.temporary_directory(cls), "example.org")
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("mptcp")
        cls.addClassCleanup(cls.meter.close)

    def setUp(self):
        self.meter.load()
        self.addCleanup(self.meter.unload)
        self.sniffer = peers.Sniffer("gate")
        self.addCleanup(self.sniffer.close)

    def missing(self, found, direction):
        """How much more the link had than was counted; and how much that may be:
        the last packets of connections whose socket is gone."""
        packets = [p for p in self.sniffer.packets if (p.sender == HERE) == (direction == "tx")]
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
        context.load_cert_chain(*self.certificate)
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
        self.meter.run([lab.PYTHON, "-c", CLIENT], input="".join(x + "\n" for x in lines).encode())
        found = self.series()
        names = ("sni", "sni-by-tcp", "host", "host-by-tcp")
        keys = [("binary", "python3", n + ".example", "tcp", "direct") for n in names]
        self.assertEqual(set(found), set(keys))
        for key, size in zip(keys, (100000, 200000, 300000, 400000)):
            self.assertGreaterEqual(found[key]["tx_payload_bytes"], size)
        # By MPTCP, what it sends a second time counts, too.
        request = len("PUT / HTTP/1.1\r\nHost: host-by-tcp.example\r\n\r\n")
        self.assertEqual(found[keys[3]]["tx_payload_bytes"], 400000 + request)


if __name__ == "__main__":
    lab.main(240)
