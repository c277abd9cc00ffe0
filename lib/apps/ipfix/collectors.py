# SPDX-License-Identifier: BSD-3-Clause
"""Real collectors of IPFIX, and what they got: nfcapd (nfdump) and nfacctd (pmacct), which
listen on UDP, and the decoder of python3-ipfix behind a TCP socket.

    collector = Nfcapd(test)
    ... send to collector.address ...
    sums(collector.stop())

Each ends with its test."""

import collections
import contextlib
import glob
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import ipfix.ie
import ipfix.reader

Sum = collections.namedtuple("Sum", "bytes packets")

BUFFER = 2_000_000  # of a collector's socket: a busy host delays its process

OWN_ELEMENTS = ("serviceName", "destinationName", "uplinkName", "serviceKind", "clientName", "clientPeer")


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("%s: not in %d seconds" % (what, seconds))
        time.sleep(0.02)


def free_port(host, kind):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as one:
        one.bind((host, 0))
        return one.getsockname()[1]


def address_of(host, port):
    return ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)


class _Udp:
    """A collector that is a program, with a directory of its own."""

    def __init__(self, test, host="127.0.0.1", port=None):
        self.host, self.port = host, port or free_port(host, socket.SOCK_DGRAM)
        self.address = address_of(host, self.port)
        # Programs that leave root need to reach it.
        self.directory = tempfile.mkdtemp(prefix="netmeter-test.")
        os.chmod(self.directory, 0o755)
        test.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        wait_for(lambda: self.process.poll() is not None or self._socket(), "the collector's socket")
        assert self.process.poll() is None, self.log()

    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def _socket(self):
        """(bytes that wait, datagrams that had no room), or None."""
        for name in ("udp", "udp6"):
            with open("/proc/net/" + name, encoding="ascii") as file:
                for line in list(file)[1:]:
                    fields = line.split()
                    if int(fields[1].split(":")[1], 16) == self.port:
                        return int(fields[4].split(":")[1], 16), int(fields[-1])
        return None

    def read_all(self):
        """Waits until it has read what was sent."""
        wait_for(lambda: self._socket()[0] == 0, "the collector to read")
        assert self._socket()[1] == 0, "the collector's socket had no room"

    def finish(self, signal):
        self.read_all()
        self.process.send_signal(signal)
        self.process.wait(60)


class Nfcapd(_Udp):
    def command(self):
        family = "-6" if ":" in self.host else "-4"
        return ["nfcapd", family, "-b", self.host, "-p", str(self.port), "-w", self.directory, "-t", "86400", "-B", str(BUFFER)]

    def stop(self):
        """The records, as nfdump prints them."""
        self.finish(15)
        assert "Sequence Errors: 0, Bad Packets: 0" in self.log(), self.log()
        (name,) = glob.glob(os.path.join(self.directory, "nfcapd.*"))
        text = subprocess.run(["nfdump", "-r", name, "-o", "json"], check=True, stdout=subprocess.PIPE, timeout=60).stdout
        return [] if b"No matching flows" in text else json.loads(text)


class Nfacctd(_Udp):
    def command(self):
        at = lambda name: os.path.join(self.directory, name)
        with open(at("elements"), "w", encoding="ascii") as file:
            for number, name in enumerate(OWN_ELEMENTS, 1):
                file.write("name=%s field_type=32473:%d len=vlen semantics=str\n" % (name, number))
        with open(at("config"), "w", encoding="ascii") as file:
            file.write(
                "nfacctd_ip: %s\nnfacctd_port: %d\nnfacctd_pipe_size: %d\nplugins: print\nprint_output: json\nprint_output_file: %s\n"
                "print_output_file_append: true\nprint_refresh_time: 1\nprint_cache_entries: 1021\naggregate_primitives: %s\naggregate: proto,%s\n"
                % (self.host, self.port, BUFFER, at("out"), at("elements"), ",".join(OWN_ELEMENTS))
            )
        return ["/usr/sbin/nfacctd", "-f", at("config")]

    def rows(self):
        """Those that are written whole."""
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(self.directory, "out"), encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        return []

    def stop(self, packets):
        """Rows of each protocol and names, one or more for each second. packets: what it has
        to have. What its plugin has not read yet is lost when the daemon ends."""
        wait_for(lambda: sum(row["packets"] for row in self.rows()) >= packets, "what nfacctd prints")
        self.finish(2)
        return self.rows()


class TcpCollector:
    """Each connection is decoded by python3-ipfix, an implementation other than libfixbuf."""

    def __init__(self, test, host="127.0.0.1", port=0, enterprise=32473):
        ipfix.ie.use_iana_default()
        for number, name in enumerate(OWN_ELEMENTS, 1):
            ipfix.ie.for_spec("%s%s(%d/%d)<string>" % (name, enterprise if enterprise != 32473 else "", enterprise, number))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, port), family=family)
        self.address = address_of(host, self.listener.getsockname()[1])
        test.addCleanup(self.listener.close)

    def accept(self):
        self.listener.settimeout(60)
        connection = self.listener.accept()[0]
        connection.settimeout(60)
        return connection

    def read(self):
        """The records of the next connection, until its end."""
        with self.accept() as connection, connection.makefile("rb") as stream:
            reader = ipfix.reader.from_stream(stream)
            rows = list(reader.namedict_iterator())
            self.domain = reader.msg.odid
            return rows

    def start(self):
        """read() in a thread; its result by join()."""
        rows = []
        thread = threading.Thread(target=lambda: rows.extend(self.read()), daemon=True)
        thread.start()

        def join():
            thread.join(60)
            assert not thread.is_alive()
            return rows

        return join
