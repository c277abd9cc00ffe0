#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The other end for gateway_service and demo.sh: a cloud of one port.

    cloud_stub.py [PORT]        9000 if not given

TCP   "UP n\\n" and n bytes     are received
      "DOWN n\\n"               is answered by n bytes
      "GET /n HTTP/1.x"        is answered by n bytes, as HTTP
UDP   any datagram             is sent back

The cloud is always the one that closes a TCP connection, so that TIME_WAIT
stays on this side.
"""

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
        if verb == "GET":
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


def main():
    address = ("0.0.0.0", int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
    tcp = TcpServer(address, Tcp)
    udp = socketserver.UDPServer(address, Udp)
    threading.Thread(target=udp.serve_forever, daemon=True).start()
    print("ready", flush=True)
    tcp.serve_forever()


if __name__ == "__main__":
    main()
