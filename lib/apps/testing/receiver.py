# SPDX-License-Identifier: BSD-3-Clause
"""A receiver of exports: an HTTP or HTTPS server in threads of the test, which keeps what it
has confirmed and can be told to fail.

    receiver = Receiver(certificate=lab.make_certificate(...), token="secret")
    receiver.fault = answer(500, "no room")
    ...
    receiver.fault = None
    newest(receiver.requests)   # {key: row}

Process is the same in a process that can be killed. It keeps the bodies as files."""

import collections
import contextlib
import gzip
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading

# What identifies a row, beside host_id and row. A field that a row lacks is none.
KEYS = {
    "hour": ("day", "hour", "uplink", "kind", "service", "destination", "transport", "path"),
    "day": ("day", "uplink", "kind", "service", "destination", "transport", "path"),
    "sample": ("start", "uplink"),
    "gap": ("number",),
    "host": ("meter",),
    "budget": ("budget", "from", "to"),
    "cost": ("plan", "from", "to", "uplink"),
}

Request = collections.namedtuple("Request", "path headers body")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        receiver = self.server.receiver
        if receiver.fault:
            receiver.faults += 1
            receiver.fault(self)
            return
        self.take()

    def take(self):
        receiver = self.server.receiver
        request = Request(self.path, self.headers, self.read_body())
        if receiver.token and self.headers["Authorization"] != "Bearer " + receiver.token:
            self.answer(401, "no such token")
            return
        receiver.keep(request)
        self.answer(200)

    def read_body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status, text="", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def reset(self):
        """What the other side sees when the process of a server is killed."""
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())

    def log_message(self, *_):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def get_request(self):
        connection, address = super().get_request()
        if self.context:
            # The handshake is in the connection's own thread.
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request, client_address):
        """A client that goes away, or does not trust the certificate, is no error here."""


class Receiver:
    def __init__(self, certificate=None, token=None, address="127.0.0.1", port=0):
        """certificate: paths of a certificate and its key."""
        self.token = token
        self.fault = None  # called with the handler in place of taking a piece
        self.faults = 0
        self.requests = []
        self._server = _Server((address, port), _Handler)
        self._server.receiver = self
        self._server.context = None
        if certificate:
            self._server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._server.context.load_cert_chain(*certificate)
        self.port = self._server.server_address[1]
        self.url = "%s://%s:%d/" % ("https" if certificate else "http", address, self.port)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def keep(self, request):
        self.requests.append(request)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Process:
    def __init__(self, directory, port, certificate, token):
        """It keeps each body in a file of the directory before it confirms it."""
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), directory, str(port), *certificate, token], stdout=subprocess.PIPE
        )
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def kept(directory):
    """The bodies that a Process has confirmed, and perhaps one more, in their order."""
    requests = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".gz"):
            with open(os.path.join(directory, name), "rb") as file:
                requests.append(Request("", {}, file.read()))
    return requests


def rows_of(request):
    return [json.loads(line) for line in gzip.decompress(request.body).splitlines()]


def newest(requests):
    """{key: row}: what a store has that keeps the row with the highest version."""
    rows = {}
    for request in requests:
        for row in rows_of(request):
            key = (row["host_id"], row["row"], *(row[name] for name in KEYS[row["row"]]))
            if key not in rows or row["version"] >= rows[key]["version"]:
                rows[key] = row
    return rows


def _main(directory, port, certificate, key, token):
    receiver = Receiver((certificate, key), token, port=int(port))
    lock = threading.Lock()

    def keep(request):
        with lock:
            path = os.path.join(directory, "%06d" % len(os.listdir(directory)))
            with open(path, "wb") as file:
                file.write(request.body)
            os.rename(path, path + ".gz")

    receiver.keep = keep
    print("ready", flush=True)
    threading.Event().wait()


# --- Faults -----------------------------------------------------------------------------


def answer(status, text="", **headers):
    def fault(handler):
        handler.read_body()
        handler.answer(status, text, **headers)

    return fault


def full(pieces):
    """After some more pieces."""
    left = [pieces]

    def fault(handler):
        left[0] -= 1
        if left[0] >= 0:
            handler.take()
        else:
            answer(507, "Code: 243. DB::Exception: Not enough space")(handler)

    return fault


def killed_while_receiving(handler):
    handler.rfile.read(int(handler.headers["Content-Length"]) // 2)
    handler.reset()


def killed_before_the_answer(handler):
    """The receiver has the rows, and the sender does not know."""
    handler.server.receiver.keep(Request(handler.path, handler.headers, handler.read_body()))
    handler.reset()


def silent(handler):
    """Until the sender gives up."""
    handler.read_body()
    handler.rfile.read()


def no_http(handler):
    handler.read_body()
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.close_connection = True


def endless(status):
    def fault(handler):
        handler.read_body()
        handler.wfile.write(b"HTTP/1.1 %d Endless\r\n\r\n" % status)
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"all is well\n" * 5000)
        handler.close_connection = True

    return fault


if __name__ == "__main__":
    _main(*sys.argv[1:])
