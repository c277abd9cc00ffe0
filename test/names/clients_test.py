# SPDX-License-Identifier: BSD-3-Clause
"""Real clients name their destinations: gRPC in C++, Python and Go and curl on
the way to a real nghttpx, by :authority; openssl, Go and a curl with
Chrome's post-quantum BoringSSL over TLS, by SNI. A relay in front of each server counts what every channel carried, and a
sniffer its packets: the meter has to say the same, under the right names.

Needs PyPI and the Go module proxy, once: what comes from there is kept in
netmeter/ below $XDG_CACHE_HOME or ~/.cache."""

import collections
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import clients
import lab
import peers

SINK_PORT, GREETING_PORT = 8445, 8446
TLS_PORT = 443
NGHTTPX, GRPC, TLS = ("127.0.0.1", 18443), ("127.0.0.1", 50051), ("127.0.0.1", 10443)

# The first with wheels, and the newest.
GRPCIO = {"pygrpcold": clients.OLD_GRPCIO, "pygrpcnew": ""}
# A curl that greets as Chrome does: with GREASE, extensions in any order and
# X25519MLKEM768, whose share of the key alone has 1216 bytes.
CURL_CFFI = "==0.16.3"

PROGRAMS = ("grpc-cpp", "grpc-go", "go-tls", "curl-h2", "curl-local", "curl-unknown", "openssl-sni", "openssl-without")
CONFIG = {
    "services": list(PROGRAMS),
    "proxy_ports": [lab.PROXY_PORT, SINK_PORT, GREETING_PORT],
    "destination_suffixes": [".local", "-cloud.example"],
}

PYTHON_GRPC = """import sys
import grpc
for argument in sys.argv[2:]:
    authority, size = argument.split("=")
    request = bytes(int(size))
    options = [("grpc.default_authority", authority)]
    with grpc.insecure_channel(sys.argv[1], options=options) as channel:
        call = channel.unary_unary("/test.Names/Echo")
        for _ in range(2):
            assert call(request, timeout=20) == request
print(grpc.__version__)
"""

PYTHON_CHROME = """import io, sys
import curl_cffi
from curl_cffi import CurlInfo, CurlOpt
host, port = sys.argv[1].split(":")
for name in sys.argv[2:]:
    curl, answer = curl_cffi.Curl(), io.BytesIO()
    curl.impersonate("chrome136")
    url = "https://%s:%s/%s" % (name, port, "x" * 3000)
    resolve = "%s:%s:%s" % (name, port, host)
    curl.setopt(CurlOpt.URL, url.encode())
    curl.setopt(CurlOpt.RESOLVE, [resolve])
    curl.setopt(CurlOpt.PROXY, b"")
    curl.setopt(CurlOpt.TIMEOUT, 20)
    curl.setopt(CurlOpt.SSL_VERIFYPEER, 0)
    curl.setopt(CurlOpt.SSL_VERIFYHOST, 0)
    # The cloud answers with the request.
    curl.setopt(CurlOpt.HTTP09_ALLOWED, 1)
    curl.setopt(CurlOpt.WRITEDATA, answer)
    curl.perform()
    assert answer.getvalue().startswith(b"GET /xxx"), answer.getvalue()[:100]
    curl.close()
print(*curl_cffi.__curl_version__.split()[:2])
"""

# Connects, sends what it is told, says so, and waits for its end.
PYTHON_RAW = """import os, socket, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sock = socket.socket()
host, port = sys.argv[1].split(":")
result = sock.connect_ex((host, int(port)))
if result == 0:
    sock.sendall(sys.stdin.buffer.read())
print(result, flush=True)
if sys.argv[2] == "stay":
    time.sleep(60)
"""


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        # What needs the network comes first.
        cls.pythons = {service: clients.make_venv("grpcio", GRPCIO[service]) for service in GRPCIO}
        chrome = clients.make_venv("curl_cffi", CURL_CFFI)
        cls.pythons.update((service, chrome) for service in cls.CHROMES.values())
        cls.go, cls.go_version = clients.build_go_client(lab.path("test/names/go_client"), cls.directory)
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.start_servers()
        cls.rows = []
        cls.addClassCleanup(cls.print_rows)
        for service in GRPCIO:
            lab.make_package(cls.directory, service, PYTHON_GRPC)
        for service in cls.CHROMES.values():
            lab.make_package(cls.directory, service, PYTHON_CHROME)
        for service in ("idle", "unnamed", "greeted"):
            lab.make_package(cls.directory, service, PYTHON_RAW)
        cls.meter = lab.Meter("clients")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load(CONFIG)

    @classmethod
    def start_servers(cls):
        in_cloud = cls.cloud.inside
        certificate = lab.make_certificate(cls.directory, "cloud.example")
        client = lab.path("test/names/grpc_client")
        cls.start(client, "serve", "%s:%d" % GRPC)
        cls.start(
            *("nghttpx", "--conf=/dev/null", "--workers=1", "--no-ocsp"),
            "--frontend=%s,%d;no-tls" % NGHTTPX,
            "--backend=%s,%d;;proto=h2;no-tls" % GRPC,
        )
        for server in (NGHTTPX, GRPC):
            lab.wait_for(lambda: cls.answers(server), "%s:%d" % server)
        cls.proxy = peers.Relay(peers.listen("127.0.0.1", lab.PROXY_PORT), NGHTTPX)
        cls.sink = peers.Relay(peers.listen("127.0.0.1", SINK_PORT), None)
        listener = peers.listen("127.0.0.1", GREETING_PORT)
        cls.greeting = peers.Relay(listener, None, greeting=b"x" * 42)
        with in_cloud():
            tls = peers.TlsEcho(peers.listen(*TLS), *certificate)
            listener = peers.listen(lab.Cloud.THERE, TLS_PORT)
        cls.direct = peers.Relay(listener, TLS, in_cloud)
        cls.sniffers = {"proxy": peers.Sniffer("lo"), "direct": peers.Sniffer("gate")}
        for server in (cls.proxy, cls.sink, cls.greeting, cls.direct, tls, *cls.sniffers.values()):
            cls.addClassCleanup(server.close)

    @classmethod
    def start(cls, *arguments):
        log = tempfile.TemporaryFile()
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, preexec_fn=lab.die_with_parent)

        def stop():
            process.kill()
            process.wait()
            log.close()

        cls.addClassCleanup(stop)

    @staticmethod
    def answers(address):
        with socket.socket() as sock:
            return sock.connect_ex(address) == 0

    @classmethod
    def print_rows(cls):
        lab.print_table(
            "sent over each channel, against what the meter says (%s)" % cls.go_version,
            (
                *("client", "destination", "path", "payload sent", "seen", "received", "seen"),
                *("wire bytes sent", "seen", "received", "seen", ""),
            ),
            cls.rows,
        )

    # --- A client and what it did -----------------------------------------------

    def program(self, service, path):
        """The program by the name of a service."""
        link = os.path.join(self.directory, service)
        os.symlink(shutil.which(path), link)
        return link

    def python(self, service, *arguments):
        return [self.pythons.get(service, lab.PYTHON), "-m", "magma.%s.main" % service, *arguments]

    def environment(self):
        return dict(os.environ, PYTHONPATH=self.directory, PYTHONDONTWRITEBYTECODE="1")

    def run_client(self, arguments, relay, path, service, destinations, **options):
        """Runs a client that opens one connection for each destination, in
        this order."""
        first = len(relay.connections)
        out = self.meter.run(arguments, env=self.environment(), cwd=self.directory, **options)
        for number in range(first, first + len(destinations)):
            self.ended(relay, number)
        lab.wait_for(relay.quiet, "their ends")
        connections = relay.connections[first:]
        self.assertEqual(len(connections), len(destinations), service)
        self.expect(service, path, list(zip(destinations, connections)), relay)
        return out.decode(errors="replace").strip()

    def of_service(self, service):
        return {key: row for key, row in self.meter.series().items() if key[1] == service}

    def settled(self, service):
        """Its series, when nothing moves any more."""
        last = None
        for _ in range(100):
            now = self.of_service(service)
            if now == last and now and not any(key[0] == "pending" for key in now):
                return now
            last = now
            time.sleep(0.05)
        self.fail("%s is still %s" % (service, last))

    def expect(self, service, path, channels, relay):
        port = relay._listener.getsockname()[1]
        found = self.settled(service)
        keys = {("service", service, name, "tcp", path) for name, _ in channels}
        rows = []
        for key in sorted(keys):
            mine = [channel for name, channel in channels if name == key[2]]
            seen = found.get(key, dict.fromkeys(lab.COUNTERS, 0))
            wire, good = collections.Counter(), True
            for connection in mine:
                counters, reset = self.sniffers[path].conversation(connection.port, port)
                for counter, (least, most) in counters.items():
                    wire[counter, 0] += least
                    wire[counter, 1] += most
                if not reset:
                    got = counters.get("rx_payload_bytes", (0, 0))[1]
                    good = good and connection.sent == got
            sent = sum(connection.received for connection in mine)
            good = good and seen["tx_payload_bytes"] == sent
            cells = [sent, seen["tx_payload_bytes"]]
            for counter in ("rx_payload_bytes", "tx_bytes", "rx_bytes", "tx_packets", "rx_packets"):
                least, most = wire[counter, 0], wire[counter, 1]
                good = good and least <= seen[counter] <= most
                cells.append("%d" % most if least == most else "%d..%d" % (least, most))
                cells.append(seen[counter])
            word = "good" if good else "WRONG"
            rows.append((service, key[2] or "(none)", path, *cells[:8], word))
        self.rows.extend(rows)
        self.assertEqual(set(found), keys)
        for row in rows:
            self.assertEqual(row[-1], "good", row)

    # --- :authority on the way to the proxy ----------------------------------------

    TWO = ("streamer-cloud.example=3000", "metricsd-cloud.example=40000")

    def test_grpc_cpp(self):
        client = self.program("grpc-cpp", lab.path("test/names/grpc_client"))
        arguments = [client, "127.0.0.1:8443", *self.TWO, "mobilityd.local=77"]
        names = ["streamer", "metricsd", "mobilityd"]
        self.run_client(arguments, self.proxy, "proxy", "grpc-cpp", names)

    def test_grpc_python(self):
        versions = []
        for service in GRPCIO:
            arguments = self.python(service, "127.0.0.1:8443", *self.TWO)
            names = ["streamer", "metricsd"]
            versions.append(self.run_client(arguments, self.proxy, "proxy", service, names))
        print("grpcio", *versions)
        self.assertEqual("==" + versions[0], clients.OLD_GRPCIO)
        self.assertNotEqual(versions[0], versions[1])

    def test_grpc_go(self):
        arguments = [self.program("grpc-go", self.go), "grpc", "127.0.0.1:8443", *self.TWO]
        names = ["streamer", "metricsd"]
        self.run_client(arguments, self.proxy, "proxy", "grpc-go", names)

    def curl(self, service, host, size, *options):
        body = os.path.join(self.directory, "body-" + service)
        with open(body, "wb") as file:
            # One message of gRPC.
            file.write(struct.pack("!BI", 0, size) + bytes(size))
        return [
            *(self.program(service, "curl"), "-sS", "--noproxy", "*", "-o", "/dev/null"),
            *("-H", "content-type: application/grpc", "-H", "te: trailers"),
            *("--max-time", "20", "--connect-to", "::127.0.0.1:8443", *options),
            *("--data-binary", "@" + body, "http://%s:8443/test.Names/Echo" % host),
        ]

    def test_curl_h2(self):
        for service, host, name in (
            ("curl-h2", "streamer-cloud.example", "streamer"),
            ("curl-local", "mobilityd.local", "mobilityd"),
            ("curl-unknown", "www.example.org", "www.example.org"),
        ):
            arguments = self.curl(service, host, 5000, "--http2-prior-knowledge")
            self.run_client(arguments, self.proxy, "proxy", service, [name])

    # --- SNI -----------------------------------------------------------------------

    def openssl(self, service, *options):
        return [
            *(self.program(service, "openssl"), "s_client", "-quiet", *options),
            *("-connect", "%s:%d" % (lab.Cloud.THERE, TLS_PORT)),
        ]

    def test_openssl(self):
        for service, options, name in (
            ("openssl-sni", ["-servername", "bootstrapper-cloud.example"], "bootstrapper"),
            ("openssl-without", ["-noservername"], ""),
        ):
            out = self.run_client(
                self.openssl(service, *options),
                *(self.direct, "direct", service, [name]),
                input=b"x" * 3000 + b"\n",
                status=None,
            )
            self.assertIn("x" * 3000, out)

    def test_go_tls(self):
        target = "%s:%d" % (lab.Cloud.THERE, TLS_PORT)
        names = ["streamer-cloud.example=5000", "fluentd-cloud.example=60"]
        arguments = [self.program("go-tls", self.go), "tls", target, *names]
        self.run_client(arguments, self.direct, "direct", "go-tls", ["streamer", "fluentd"])

    # {MTU: service}
    CHROMES = {1500: "chrome", 1280: "chrome1280", 576: "chrome576"}

    def set_mtu(self, mtu):
        lab.run("ip", "link", "set", "gate", "mtu", str(mtu))
        self.cloud.run("ip", "link", "set", "cloud", "mtu", str(mtu))

    def test_post_quantum_hello_is_longer_than_a_segment(self):
        self.addCleanup(self.set_mtu, 1500)
        target = "%s:%d" % (lab.Cloud.THERE, TLS_PORT)
        for mtu, service in self.CHROMES.items():
            self.set_mtu(mtu)
            first = len(self.direct.connections)
            arguments = self.python(service, target, "streamer-cloud.example", "metricsd-cloud.example")
            version = self.run_client(arguments, self.direct, "direct", service, ["streamer", "metricsd"])
            for connection in self.direct.connections[first:]:
                hello = self.sniffers["direct"].opening(connection.port, TLS_PORT)
                print("%s, MTU %d: hello in segments of" % (version, mtu), hello)
                self.assertGreater(sum(hello), 1500)
                self.assertGreaterEqual(len(hello), sum(hello) // (mtu - 52))
                self.assertGreaterEqual(len(hello), 2)

    # --- Connections that never say a name ------------------------------------------

    def raw(self, service, target, then, data=b""):
        client = self.meter.start(
            self.python(service, target, then), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment()
        )
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        client.stdin.write(data)
        client.stdin.close()
        return client, int(client.stdout.readline())

    def ended(self, relay, number):
        """The relay's connection of this number, when it has ended.

        Regression: a client may have connected, and be dead, before the relay has
        accepted it. A relay without a connection is quiet, too, and the test of the
        idle connection found none, once in many runs of a busy machine."""
        lab.wait_for(lambda: len(relay.connections) > number and relay.connections[number].closed, "its end")
        return relay.connections[number]

    def test_idle_connection_is_pending_until_its_end(self):
        first = len(self.sink.connections)
        client, result = self.raw("idle", "127.0.0.1:%d" % SINK_PORT, "stay")
        self.assertEqual(result, 0)
        found = self.of_service("idle")
        self.assertEqual(set(found), {("pending", "idle", "", "tcp", "proxy")})
        (row,) = found.values()
        # SYN, SYN-ACK, ACK
        self.assertEqual([row[counter] for counter in lab.COUNTERS], [112, 60, 2, 1, 0, 0])
        client.send_signal(signal.SIGKILL)
        client.wait()
        connection = self.ended(self.sink, first)
        self.expect("idle", "proxy", [("", connection)], self.sink)

    def test_server_that_speaks_first_on_another_cpu_is_pending_too(self):
        # Regression: if its series was new on a CPU, the first packet that a pending
        # connection received there went at once to the series without a name, and so did
        # all later ones. When the name was known, the pending amount was subtracted from
        # the pending series again: below 0.
        first = len(self.greeting.connections)
        client, result = self.raw("greeted", "127.0.0.1:%d" % GREETING_PORT, "stay")
        self.assertEqual(result, 0)
        lab.wait_for(
            lambda: self.greeting.connections[first:] and self.greeting.connections[first].sent, "the greeting"
        )
        # SYN, SYN-ACK, ACK; 42 bytes, ACK
        expected = {("pending", "greeted", "", "tcp", "proxy"): [164, 154, 3, 2, 0, 42]}

        def found():
            rows = self.of_service("greeted")
            return {key: [row[counter] for counter in lab.COUNTERS] for key, row in rows.items()}

        lab.wait_for(lambda: found() == expected, expected)
        client.kill()
        client.wait()
        connection = self.ended(self.greeting, first)
        self.expect("greeted", "proxy", [("", connection)], self.greeting)

    def test_16_kib_without_a_name_are_enough(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        frame = bytes([0, 4, 0, 0xFA, 0, 0, 0, 0, 0]) + bytes(1024)
        # :authority, which comes too late
        headers = b"\x82\x84\x86\x41\x16streamer-cloud.example"
        late = bytes([0, 0, len(headers), 1, 5, 0, 0, 0, 1]) + headers
        first = len(self.sink.connections)
        target = "127.0.0.1:%d" % SINK_PORT
        client, result = self.raw("unnamed", target, "stay", preface + 17 * frame + late)
        self.assertEqual(result, 0)
        # While it is open.
        found = self.settled("unnamed")
        self.assertEqual(set(found), {("service", "unnamed", "", "tcp", "proxy")})
        client.kill()
        client.wait()
        connection = self.ended(self.sink, first)
        self.expect("unnamed", "proxy", [("", connection)], self.sink)


if __name__ == "__main__":
    lab.main(540)
