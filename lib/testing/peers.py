# SPDX-License-Identifier: BSD-3-Clause
"""What programs talk to: relays that count, servers, and a sniffer."""

import collections
import contextlib
import os
import select
import socket
import ssl
import struct
import threading


def listen(address, port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(64)
    return sock


class Connection:
    """What one client sent and was sent, in bytes of payload."""

    def __init__(self, port):
        self.port = port  # of the client
        self.received = self.sent = 0
        self.closed = False


class Relay:
    """Passes on what comes to the listener. target is an address, which is
    connected to from the namespace `inside`; or None: a greeting is sent, and
    everything that comes is forgotten."""

    def __init__(self, listener, target, inside=contextlib.nullcontext, greeting=b""):
        self.connections = []
        self._listener, self._target, self._inside = listener, target, inside
        self._greeting = greeting
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def quiet(self):
        """Whether every client is gone."""
        return all(connection.closed for connection in self.connections)

    def _accept(self):
        while True:
            try:
                client, peer = self._listener.accept()
            except OSError:
                return
            connection = Connection(peer[1])
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(client, connection), daemon=True).start()

    def _serve(self, client, connection):
        ends = {client: None}
        try:
            if self._target:
                with self._inside():
                    target = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                target.connect(self._target)
                ends = {client: target, target: client}
            else:
                # The client is on the first CPU.
                os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
                client.sendall(self._greeting)
                connection.sent += len(self._greeting)
            while ends:
                for source in select.select(list(ends), [], [])[0]:
                    data = source.recv(65536)
                    other = ends[source]
                    if source is client:
                        connection.received += len(data)
                    if not data:
                        del ends[source]
                        if other:
                            with contextlib.suppress(OSError):
                                other.shutdown(socket.SHUT_WR)
                    elif other:
                        other.sendall(data)
                        if other is client:
                            connection.sent += len(data)
        except OSError:  # a reset
            pass
        finally:
            client.close()
            if self._target:
                target.close()
            connection.closed = True


class Server:
    """Calls handle() for each connection, which closes it, in a thread of its own."""

    def __init__(self, listener, handle):
        self._listener, self._handle = listener, handle
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()


class TlsEcho(Server):
    """Answers a line with itself, then closes."""

    def __init__(self, listener, certificate, key):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        super().__init__(listener, self._serve)

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            client.settimeout(20)
            with self._context.wrap_socket(client, server_side=True) as tls:
                line = b""
                while not line.endswith(b"\n"):
                    data = tls.recv(65536)
                    if not data:
                        return
                    line += data
                tls.sendall(line)
                # No reset: the client closes first, or after our close_notify.
                tls = tls.unwrap()
                tls.shutdown(socket.SHUT_WR)
                while tls.recv(65536):
                    pass


class Packet:
    def __init__(self, data):
        self.bytes = struct.unpack_from("!H", data, 2)[0]
        header = (data[0] & 15) * 4
        self.sender = socket.inet_ntoa(data[12:16])
        self.source, self.target = struct.unpack_from("!HH", data, header)
        if data[9] != socket.IPPROTO_TCP:
            return
        self.seq, self.ack = struct.unpack_from("!II", data, header + 4)
        self.flags = data[header + 13]
        self.payload = self.bytes - header - (data[header + 12] >> 4) * 4

    fin = property(lambda self: bool(self.flags & 1))
    syn = property(lambda self: bool(self.flags & 2))
    rst = property(lambda self: bool(self.flags & 4))
    has_ack = property(lambda self: bool(self.flags & 16))


class Sniffer:
    """The packets on an interface of the calling thread's namespace, of TCP if
    nothing else is said."""

    OUTGOING = 4

    def __init__(self, interface, protocols=(socket.IPPROTO_TCP,)):
        self._protocols = protocols
        self._both = interface != "lo"  # there, each is seen twice
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        # SO_RCVBUFFORCE
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        self._socket.bind((interface, 3))
        self._stop = os.pipe()
        self.packets = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            ready = select.select([self._socket, self._stop[0]], [], [])[0]
            if self._socket not in ready:
                return
            data, (_, protocol, kind, _, _) = self._socket.recvfrom(128)
            if protocol != 0x800 or data[9] not in self._protocols:
                continue
            if self._both or kind == self.OUTGOING:
                self.packets.append(Packet(data))

    def close(self):
        os.close(self._stop[1])
        self._thread.join()
        os.close(self._stop[0])
        self._socket.close()

    def opening(self, client, server):
        """The sizes of the segments that a client sent before its server sent
        anything."""
        sizes = []
        for packet in self.packets:
            if (packet.source, packet.target) == (server, client) and packet.payload:
                break
            if (packet.source, packet.target) == (client, server) and packet.payload:
                sizes.append(packet.payload)
        return sizes

    def conversation(self, client, server):
        """{counter: (least, most)} of a client's socket. Between the two is
        what may have come after its end: acknowledgements of a connection in
        TIME_WAIT, and what reached a port that was closed. A client that ends
        with a reset has not acknowledged all that its server sent."""
        least, most = collections.Counter(), collections.Counter()
        ended = reset = False
        first = fin = None  # sequence numbers of the server
        for packet in self.packets:
            sent = (packet.source, packet.target) == (client, server)
            if not sent and (packet.source, packet.target) != (server, client):
                continue
            if not sent and packet.syn:
                first = packet.seq + 1
            if not sent and packet.fin:
                fin = packet.seq + packet.payload
            for counters in (most,) if ended else (most, least):
                counters["tx_bytes" if sent else "rx_bytes"] += packet.bytes
                counters["tx_packets" if sent else "rx_packets"] += 1
                if sent and packet.has_ack and first is not None:
                    acked = (packet.ack - first) % 2**32
                    if fin is not None and acked > (fin - first) % 2**32:
                        acked -= 1
                    counters["rx_payload_bytes"] = max(counters["rx_payload_bytes"], acked)
            ended = ended or sent and (packet.fin or packet.rst)
            reset = reset or sent and packet.rst
        if not reset:
            least["rx_payload_bytes"] = most["rx_payload_bytes"]
        return {key: (least[key], most[key]) for key in most}, reset
