# SPDX-License-Identifier: BSD-3-Clause
"""A cloud on loopback: a server on the proxy port, which is the only port of
loopback that a meter counts."""

import contextlib
import socketserver
import threading

import lab


class _Cloud(socketserver.StreamRequestHandler):
    """ "UP n\\n" and n bytes; or "DOWN n\\n", answered by n bytes."""

    def handle(self):
        verb, size = self.rfile.readline().decode().split()
        if verb == "UP":
            self.rfile.read(int(size))
        else:
            self.wfile.write(bytes(int(size)))


class _CloudServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextlib.contextmanager
def cloud():
    """A server on the proxy port, which closes every connection itself."""
    with _CloudServer(("127.0.0.1", lab.PROXY_PORT), _Cloud) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
