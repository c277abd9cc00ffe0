#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The other end for the examples and demo.sh: a cloud in small.

    cloud_stub.py [PORT]                    9000 if not given
    cloud_stub.py PORT CERTIFICATE KEY      and gRPC over TLS on port 443

TCP   "UP n\\n" and n bytes     are received
      "GET /n HTTP/1.x"        is answered by n bytes, as HTTP
UDP   any datagram             is sent back
gRPC  /cloud.Stub/Upload       answers nothing
      /cloud.Stub/Download     answers as many bytes as the request says

The cloud is always the one that closes a plain TCP connection, so that
TIME_WAIT stays on this side. Needs for gRPC: python3-grpcio
"""

import concurrent.futures
import socketserver
import sys
import threading

BLOCK = bytes(64 * 1024)


class Tcp(socketserver.StreamRequestHandler):
    timeout = 10

    def handle(self):
        verb, argument = self.rfile.readline(1024).decode().split()[:2]
        size = int(argument.lstrip("/"))
        if verb == "UP":
            while size > 0 and (data := self.rfile.read(min(size, len(BLOCK)))):
                size -= len(data)
            return
        while self.rfile.readline(1024).strip():
            pass
        # No Content-Length: the client reads until we close.
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while size > 0:
            self.wfile.write(BLOCK[:size])
            size -= len(BLOCK)


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(data, self.client_address)


class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve_grpc(certificate, key):
    """All of the cloud's gRPC services, whatever their :authority."""
    import grpc  # pylint: disable=import-outside-toplevel

    methods = {
        "Upload": lambda request, _: b"",
        "Download": lambda request, _: bytes(int(request)),
    }
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("cloud.Stub", handlers),))
    with open(key, "rb") as key_file, open(certificate, "rb") as certificate_file:
        credentials = grpc.ssl_server_credentials([(key_file.read(), certificate_file.read())])
    if not server.add_secure_port("0.0.0.0:443", credentials):
        sys.exit("cloud_stub.py: cannot listen on port 443")
    server.start()
    return server


def main():
    address = ("0.0.0.0", int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
    tcp = TcpServer(address, Tcp)
    udp = socketserver.UDPServer(address, Udp)
    threading.Thread(target=udp.serve_forever, daemon=True).start()
    server = serve_grpc(*sys.argv[2:4]) if len(sys.argv) > 3 else None
    print("ready", flush=True)
    tcp.serve_forever()
    del server  # which lives as long as we do


if __name__ == "__main__":
    main()
