#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""netmeter-ipfix: what real collectors get of a stream of flow records, over UDP and TCP,
and what happens without them. flows_ipfix_root_test.py has the flows of real traffic."""

import collections
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import termios
import time
import unittest

import collectors
import protobuf_stream
from collectors import Sum

PROGRAM = os.path.abspath("lib/apps/ipfix/netmeter-ipfix")
FLOW = protobuf_stream.schema(os.path.abspath("lib/flows/flows.proto")).Flow

START_NS = 1_790_000_000_123_000_000


def varint(number):
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def flow(i, **fields):
    """The i-th flow."""
    ipv6 = i % 3 == 0
    return FLOW(
        **{
            **dict(
                record="flow",
                start_ns=START_NS,
                end_ns=START_NS + i * 1_000_000,
                protocol="tcp" if i % 2 else "udp",
                family="ipv6" if ipv6 else "ipv4",
                local_address="2001:db8::1" if ipv6 else "192.0.2.1",
                local_port=1024 + i % 60000,
                remote_address="2001:db8::%x" % (2 + i % 60000) if ipv6 else "203.0.113.%d" % (i % 256),
                remote_port=443,
                interface=3,
                kind="service",
                service="subscriberdb",
                destination="streamer" if i % 5 else "",
                transport="tcp" if i % 2 else "udp",
                uplink="wan%d" % (i % 2),
                end="fin" if i % 2 else "idle",
                tx_tcp_flags=27 if i % 2 else 0,
                rx_tcp_flags=19 if i % 2 else 0,
                tx_bytes=1000 + i,
                rx_bytes=0 if i % 7 == 0 else (1 << 33) + i,
                tx_packets=10 + i % 3,
                rx_packets=0 if i % 7 == 0 else 20,
            ),
            **fields,
        }
    )


def forwarded(i):
    client = dict(client_interface=5, client_mac="02:00:00:00:03:01", client_name="tv", client_peer="b" * 43 + "=")
    return flow(i, kind="forwarded", service="lan0", **client)


# Traffic that is in no flow.
REMAINDER = FLOW(
    record="remainder", start_ns=START_NS, end_ns=START_NS, kind="service", service="mme", transport="icmp",
    tx_bytes=840, rx_bytes=84, tx_packets=10, rx_packets=1, reason="no_flow", records=0,
)  # fmt: skip
LOST = FLOW(record="lost", start_ns=START_NS, end_ns=START_NS, records=5)


def stream(messages):
    return b"".join(varint(len(data)) + data for data in (m.SerializeToString() for m in messages))


def sums(messages, key):
    """{key(message, tx): Sum} of the directions with packets."""
    found = collections.defaultdict(lambda: Sum(0, 0))
    for m in messages:
        for tx in (True, False):
            size, packets = (m.tx_bytes, m.tx_packets) if tx else (m.rx_bytes, m.rx_packets)
            if packets:
                one = found[key(m, tx)]
                found[key(m, tx)] = Sum(one.bytes + size, one.packets + packets)
    return dict(found)


def total(messages):
    return sums(messages, lambda m, tx: None)[None]


def received(rows):
    """Of nfdump."""
    return Sum(sum(row["in_bytes"] for row in rows), sum(row["in_packets"] for row in rows))


PROTOCOLS = {"tcp": 6, "udp": 17, "": 1}


def ends(m, tx):
    """What tells flows apart."""
    local, remote = (m.local_address or "0.0.0.0", m.local_port), (m.remote_address or "0.0.0.0", m.remote_port)
    return (PROTOCOLS[m.protocol], *((*local, *remote) if tx else (*remote, *local)))


class NetmeterIpfixTest(unittest.TestCase):
    def start(self, address, *options):
        """A process; the file .errors gets its stderr."""
        errors = tempfile.TemporaryFile("w+")
        self.addCleanup(errors.close)
        process = subprocess.Popen([PROGRAM, *options, address], stdin=subprocess.PIPE, stderr=errors)
        process.errors = errors
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def errors(process):
        return os.pread(process.errors.fileno(), 1 << 16, 0).decode()

    @staticmethod
    def write(process, messages):
        """Waits until it has sent them, or given them up."""
        process.stdin.write(stream(messages))
        process.stdin.flush()

        def waits_for_more():
            with open("/proc/%d/syscall" % process.pid, encoding="ascii") as file:
                is_reading = file.read().startswith("0 0x0 ")
            left = fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, bytes(4))
            return is_reading and left == bytes(4)

        collectors.wait_for(waits_for_more, "all to be sent")

    def finish(self, process, data=b"", status=0):
        """What it wrote to stderr."""
        process.communicate(data, timeout=100)
        self.assertEqual(process.returncode, status, self.errors(process))
        return self.errors(process)

    def send(self, messages, address, *options):
        self.assertEqual(self.finish(self.start(address, *options), stream(messages)), "")

    def recover(self, process):
        """Sends a flow again and again until the collector takes it."""
        while "it works again" not in self.errors(process):
            self.write(process, [flow(1)])
            time.sleep(0.1)
            self.assertIsNone(process.poll())

    def test_nfdump_has_each_flow(self):
        messages = [flow(i) for i in range(2000)] + [REMAINDER, LOST]
        for host in ("127.0.0.1", "::1"):
            collector = collectors.Nfcapd(self, host)
            self.send(messages, collector.address)
            found = collections.defaultdict(lambda: Sum(0, 0))
            for row in collector.stop():
                addresses = [row.get("%s%d_addr" % (end, v)) for end in ("src", "dst") for v in (4, 6)]
                source, destination = [one for one in addresses if one] or ["0.0.0.0"] * 2
                key = (row["proto"], source, row.get("src_port", 0), destination, row.get("dst_port", 0))
                found[key] = Sum(found[key].bytes + row["in_bytes"], found[key].packets + row["in_packets"])
            self.assertEqual(dict(found), sums(messages, ends))

    def test_nfacctd_sums_up_names(self):
        messages = [flow(i) for i in range(500)] + [flow(1, service="süß", destination="d" * 64), forwarded(1), REMAINDER]
        collector = collectors.Nfacctd(self)
        self.send(messages, collector.address)
        found = collections.defaultdict(lambda: Sum(0, 0))
        for row in collector.stop(total(messages).packets):
            protocol = {"tcp": 6, "udp": 17, "icmp": 1}[row["ip_proto"]]
            key = (protocol, *(row[name.lower()] for name in collectors.OWN_ELEMENTS))
            found[key] = Sum(found[key].bytes + row["bytes"], found[key].packets + row["packets"])
        fields = ("service", "destination", "uplink", "kind", "client_name", "client_peer")
        names_of = lambda m, tx: (PROTOCOLS[m.protocol], *(getattr(m, field) for field in fields))
        self.assertEqual(found, sums(messages, names_of))

    def test_each_element_arrives_over_tcp(self):
        for host in ("127.0.0.1", "::1"):
            collector = collectors.TcpCollector(self, host)
            rows = collector.start()
            messages = [flow(1), flow(6, end="active"), REMAINDER]
            self.send(messages, collector.address, "--protocol", "tcp", "--domain", "7")
            rows = rows()
            self.assertEqual(collector.domain, 7)
            first, second, third, fourth = rows[:4]
            own = {"serviceName": "subscriberdb", "destinationName": "streamer", "serviceKind": "service"}
            own.update(clientName="", clientPeer="")
            times = {name: row[name].isoformat() for row in (first,) for name in ("flowStartMilliseconds", "flowEndMilliseconds")}
            self.assertEqual(
                times,
                {"flowStartMilliseconds": "2026-09-21T14:13:20.123000", "flowEndMilliseconds": "2026-09-21T14:13:20.124000"},
            )
            for row in rows:
                del row["flowStartMilliseconds"], row["flowEndMilliseconds"]
                row.update({name: str(value) for name, value in row.items() if name.endswith("Address")})
            sent = {"sourceTransportPort": 1025, "destinationTransportPort": 443, "ingressInterface": 0, "egressInterface": 3}
            received = {"sourceTransportPort": 443, "destinationTransportPort": 1025, "ingressInterface": 3, "egressInterface": 0}
            ours, theirs = "192.0.2.1", "203.0.113.1"
            self.assertEqual(
                first,
                {
                    **own, **sent, "uplinkName": "wan1",
                    "sourceIPv4Address": ours, "destinationIPv4Address": theirs, "protocolIdentifier": 6,
                    "octetDeltaCount": 1001, "packetDeltaCount": 11, "tcpControlBits": 27,
                    "flowDirection": 1, "flowEndReason": 3,
                },
            )  # fmt: skip
            self.assertEqual(
                second,
                {
                    **own, **received, "uplinkName": "wan1",
                    "sourceIPv4Address": theirs, "destinationIPv4Address": ours, "protocolIdentifier": 6,
                    "octetDeltaCount": (1 << 33) + 1, "packetDeltaCount": 20, "tcpControlBits": 19,
                    "flowDirection": 0, "flowEndReason": 3,
                },
            )  # fmt: skip
            self.assertEqual((third["sourceIPv6Address"], third["destinationIPv6Address"]), ("2001:db8::1", "2001:db8::8"))
            self.assertEqual((fourth["sourceIPv6Address"], fourth["destinationIPv6Address"]), ("2001:db8::8", "2001:db8::1"))
            self.assertEqual([row["flowEndReason"] for row in rows], [3, 3, 2, 2, 4, 4])
            self.assertEqual(rows[4]["sourceIPv4Address"], "0.0.0.0")
            self.assertEqual([row["octetDeltaCount"] for row in rows[4:]], [840, 84])

    def test_a_forwarded_flow_has_its_client(self):
        collector = collectors.TcpCollector(self)
        rows = collector.start()
        self.send([forwarded(1), flow(1), forwarded(3)], collector.address, "--protocol", "tcp")
        rows = rows()
        interfaces = [(row["ingressInterface"], row["egressInterface"]) for row in rows]
        self.assertEqual(interfaces, [(5, 3), (3, 5), (0, 3), (3, 0), (5, 3), (3, 5)])
        sent, received = rows[4:]
        mac = bytes.fromhex("020000000301")
        self.assertEqual((sent["sourceMacAddress"], received["postDestinationMacAddress"]), (mac, mac))
        self.assertFalse("postDestinationMacAddress" in sent or "sourceMacAddress" in received)
        self.assertEqual([any("Mac" in name for name in row) for row in rows], [True, True, False, False, True, True])
        for row in (sent, received):
            names = [row[name] for name in collectors.OWN_ELEMENTS]
            self.assertEqual(names, ["lan0", "streamer", "wan1", "forwarded", "tv", "b" * 43 + "="])

    def test_the_enterprise_number_is_ones_own(self):
        collector = collectors.TcpCollector(self, enterprise=54321)
        rows = collector.start()
        self.send([flow(1)], collector.address, "--protocol", "tcp", "--enterprise", "54321")
        self.assertEqual(rows()[0]["serviceName54321"], "subscriberdb")

    def test_every_message_fits_a_packet_and_has_no_empty_set(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            names = {name: "n" * 256 for name in ("service", "destination", "uplink", "client_name", "client_peer")}
            mac = {"client_mac": "02:00:00:00:03:01"}
            more = lambda i: {**names, **mac} if i % 10 == 0 else mac if i % 4 == 0 else {}
            self.send([flow(i, **more(i)) for i in range(300)], "127.0.0.1:%d" % udp.getsockname()[1])
            udp.settimeout(0)
            records = 0
            while True:
                try:
                    message = udp.recv(65536)
                except BlockingIOError:
                    break
                self.assertLessEqual(len(message), 1232)
                self.assertEqual(int.from_bytes(message[2:4], "big"), len(message))
                at = 16
                while at < len(message):
                    length = int.from_bytes(message[at + 2 : at + 4], "big")
                    self.assertGreater(length, 4)
                    at += length
                records += 1
            self.assertGreater(records, 50)

    def test_over_udp_templates_come_first_and_again(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            udp.settimeout(60)
            sender = self.start("127.0.0.1:%d" % udp.getsockname()[1])
            begin = time.monotonic()
            sets = []
            while sets.count(2) < 2:
                self.write(sender, [flow(1)])
                sets += [int.from_bytes(udp.recv(65536)[16:18], "big")]
                time.sleep(0.1)
                self.assertLess(time.monotonic() - begin, 60)
            self.assertEqual(sets[0], 2)
            self.assertGreater(len(sets), 5)

    def test_a_collector_that_is_restarted_gets_templates(self):
        first = collectors.Nfcapd(self)
        sender = self.start(first.address)
        messages = [flow(i) for i in range(1, 50)]
        self.write(sender, messages)
        self.assertEqual(received(first.stop()), total(messages))
        # The first one is refused, which is learned with the second.
        self.write(sender, [flow(1)])
        self.write(sender, [flow(1)])
        self.assertIn("%s: Connection refused" % first.address, self.errors(sender))
        second = collectors.Nfcapd(self, port=first.port)
        self.recover(sender)
        messages = [flow(i) for i in range(100, 2000)]
        errors = self.finish(sender, stream(messages), status=1)
        self.assertEqual(len(errors.splitlines()), 3, errors)
        self.assertIn(" data records were not sent", errors.splitlines()[2])
        rows = [row for row in second.stop() if max(row["src_port"], row["dst_port"]) > 1050]
        self.assertEqual(received(rows), total(messages))

    def test_a_broken_tcp_connection_is_made_again(self):
        collector = collectors.TcpCollector(self)
        sender = self.start(collector.address, "--protocol", "tcp")
        self.write(sender, [flow(1)])
        collector.accept().close()
        self.write(sender, [flow(1)])
        self.write(sender, [flow(1)])
        self.assertIn("%s: " % collector.address, self.errors(sender))
        rows = collector.start()
        self.recover(sender)
        messages = [flow(i) for i in range(100, 2000)]
        errors = self.finish(sender, stream(messages), status=1)
        self.assertEqual(len(errors.splitlines()), 3, errors)
        found = [row["octetDeltaCount"] for row in rows() if 1025 not in (row["sourceTransportPort"], row["destinationTransportPort"])]
        self.assertEqual(sum(found), total(messages).bytes)

    def test_without_a_collector_records_are_counted(self):
        for protocol, kind in (("udp", socket.SOCK_DGRAM), ("tcp", socket.SOCK_STREAM)):
            address = "127.0.0.1:%d" % collectors.free_port("127.0.0.1", kind)
            errors = self.finish(self.start(address, "--protocol", protocol), stream([flow(1), flow(2)]), status=1)
            self.assertEqual(
                errors,
                "netmeter-ipfix: %s: Connection refused (trying again; records are lost meanwhile)\n"
                "netmeter-ipfix: 4 data records were not sent\n" % address,
            )
        errors = self.finish(self.start("no-such-host.invalid:4739"), stream([flow(1)]), status=1)
        self.assertIn("netmeter-ipfix: no-such-host.invalid:4739: ", errors)

    def test_a_collector_that_reads_nothing_blocks_for_seconds_only(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            address = "127.0.0.1:%d" % listener.getsockname()[1]
            sender = self.start(address, "--protocol", "tcp")
            # More than buffers of the kernel take.
            errors = self.finish(sender, stream(flow(i) for i in range(60000)), status=1)
        self.assertIn(": Connection timed out (trying again; records are lost meanwhile)", errors)

    def test_a_wrong_stream_ends_it_after_what_was_right(self):
        collector = collectors.Nfcapd(self)
        errors = self.finish(self.start(collector.address), stream([flow(1)]) + b"\x05hello", status=1)
        self.assertEqual(
            errors,
            "netmeter-ipfix: read flow records: this is not what `netmeter flows --protobuf` writes\n",
        )
        self.assertEqual(received(collector.stop()), total([flow(1)]))

    def test_it_ends_with_the_stream_and_not_before(self):
        # Ctrl-C and a stop of a unit also reach `netmeter flows`, which then writes its
        # last records.
        collector = collectors.Nfcapd(self)
        sender = self.start(collector.address)
        self.write(sender, [flow(1)])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            sender.send_signal(number)
        self.write(sender, [flow(2)])
        self.assertEqual(self.finish(sender), "")
        self.assertEqual(received(collector.stop()), total([flow(1), flow(2)]))
        sender = self.start(collector.address)
        self.write(sender, [])
        # Two signals that come at once are one.
        collectors.wait_for(lambda: sender.send_signal(signal.SIGTERM) or sender.poll(), "the second signal to end it")
        self.assertEqual(sender.wait(), -signal.SIGTERM)

    def test_a_wrong_address_is_wrong_usage(self):
        for address in ("collector", "collector:", ":4739", "collector:0", "collector:65536", "2001:db8::1:4739", "[::1]", "[a]:1"):
            errors = self.finish(self.start(address), status=2)
            self.assertEqual(
                errors, "netmeter-ipfix: expected HOST:PORT or [IPV6]:PORT, not '%s' (see --help)\n" % address
            )


if __name__ == "__main__":
    unittest.main()
