#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""record_client.py h2|tls FILE COMMAND...: a seed file from a real client.

Runs COMMAND, in which {port} stands for a port of 127.0.0.1 that this program
listens on, and writes what the client sends first: all up to and with the
first request's frames (h2; cleartext), or with the ClientHello (tls).

The seeds of corpus/ were made so, NAME being any host name:

  h2   curl -sm2 --http2-prior-knowledge --resolve NAME:{port}:127.0.0.1 http://NAME:{port}/
       a Go program with http.Protocols.SetUnencryptedHTTP2(true)
       grpc-go's NewClient, grpcio's insecure_channel, libgrpc++'s
       CreateCustomChannel, each with its option for the default authority
  tls  curl -skm2 --resolve NAME:{port}:127.0.0.1 https://NAME:{port}/
       openssl s_client -connect 127.0.0.1:{port} -servername NAME
       python3 -c 'import socket, ssl; ssl.create_default_context().wrap_socket(
           socket.create_connection(("127.0.0.1", {port})), server_hostname="NAME")'
       a Go program with tls.Dial and ServerName

h2/block_* and tls/body_* are their header blocks and hellos, after the two
bytes that fuzz_h2.cc and fuzz_tls.cc want.
"""

import socket
import subprocess
import sys


def hello_complete(data):
    """Whether `data` holds a whole ClientHello."""
    handshake, at = b"", 0
    while len(data) >= at + 5:
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        handshake += data[at + 5 : at + 5 + length]
        at += 5 + length
    return len(handshake) >= 4 and len(handshake) >= 4 + int.from_bytes(handshake[1:4], "big")


def request_end(data):
    """Offset after the first header block, or 0."""
    at = 24
    while len(data) >= at + 9:
        length, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        at += 9 + length
        if kind in (1, 9) and flags & 4:
            return at if len(data) >= at else 0
    return 0


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("h2", "tls"):
        sys.exit(__doc__)
    kind, file, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    port = str(listener.getsockname()[1])
    client = subprocess.Popen(
        [word.replace("{port}", port) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    data = b""
    try:
        connection, _ = listener.accept()
        connection.settimeout(5)
        if kind == "h2":
            connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # SETTINGS: some wait for it
        while True:
            some = connection.recv(65536)
            if not some:
                break
            data += some
            if kind == "tls" and hello_complete(data):
                break
            if kind == "h2" and request_end(data):
                data = data[: request_end(data)]
                break
        connection.close()
    except TimeoutError:
        pass
    finally:
        listener.close()
        client.terminate()
        client.wait()
    if not data:
        sys.exit("nothing was sent")
    with open(file, "wb") as out:
        out.write(data)
    print(f"{file}: {len(data)} bytes")


if __name__ == "__main__":
    main()
