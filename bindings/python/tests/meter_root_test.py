# SPDX-License-Identifier: BSD-3-Clause
"""The package on real maps: of the loader, with traffic, and of a test."""

import dataclasses
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import lab
import netmeter
from bindings.python.tests import proxy_cloud

WITH_FAKE_METER = os.path.join("bindings", "python", "tests", "with_fake_meter")
FILLERS = 4096


def setUpModule():
    lab.private_network()


def transfer(verb, size, destination=None, family=socket.AF_INET):
    """The payload bytes that this sent and received."""
    with socket.socket(family) as sock:
        if destination is not None:
            netmeter.tag_socket(sock, destination)
        sock.connect(("127.0.0.1", lab.PROXY_PORT))
        header = b"%s %d\n" % (verb.encode(), size)
        sock.sendall(header + (bytes(size) if verb == "UP" else b""))
        received = 0
        while data := sock.recv(65536):
            received += len(data)
    return len(header) + (size if verb == "UP" else 0), received


def busy(meter):
    """The own series that have counted something, by destination: a tag in
    front of connect() may leave a series without a packet."""
    return {s.destination: s for s in meter.read_service() if s.tx_packets + s.rx_packets}


class RealMeterTest(unittest.TestCase):
    def setUp(self):
        self.lab = lab.Meter("python")
        self.addCleanup(self.lab.close)
        self.lab.load()

    def open(self, **options):
        return netmeter.Meter.open(self.lab.pin_dir, **options)

    def test_bytes_of_a_service_by_destination_are_exact(self):
        def service():
            with self.open(service="subscriberdb") as meter:
                self.assertEqual(meter.read_service(), [])
                sent, none = transfer("UP", 300000, "metricsd")
                self.assertEqual(none, 0)
                asked, received = transfer("DOWN", 200000, "streamer")
                transfer("UP", 10)

                def settled():
                    samples = busy(meter)
                    return sum(s.tcp.closed for s in samples.values()) == 3 and samples

                samples = lab.wait_for(settled, "the end of three connections")
                self.assertEqual(set(samples), {"metricsd", "streamer", ""})
                up, down = samples["metricsd"], samples["streamer"]
                for sample in samples.values():
                    self.assertEqual(sample.kind, netmeter.Kind.SERVICE)
                    self.assertEqual(sample.name, "subscriberdb")
                    self.assertEqual(sample.transport, netmeter.Transport.TCP)
                    self.assertEqual(sample.path, netmeter.Path.PROXY)
                    self.assertTrue(sample.registered)
                self.assertEqual(up.tx_payload_bytes, sent)
                self.assertEqual(up.rx_payload_bytes, 0)
                self.assertEqual((down.tx_payload_bytes, down.rx_payload_bytes), (asked, received))
                self.assertGreater(up.tx_bytes, sent + 40)
                self.assertGreater(down.rx_packets, 4)
                return samples

        samples = self.lab.inside(service)
        # A process that neither registered nor is in the cgroup reads the same samples.
        with self.open() as meter:
            named = meter.read_service("subscriberdb")
            host = meter.read_host()
            for sample in samples.values():
                self.assertIn(sample, named)
                self.assertIn(sample, host)
            health = meter.read_health()
            self.assertEqual(health.cgroup, self.lab.cgroup)
            self.assertEqual(health.version, netmeter.__version__)
            self.assertGreaterEqual(health.series, 3)
            age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - health.start_time_ns
            self.assertTrue(0 <= age_ns < 600 * 10**9, age_ns)
            self.assertEqual(sum(row.count for row in health.misattributed), 0)

    def test_names_of_any_bytes_survive_the_round_trip(self):
        service, destination = "caf\u00e9\udcff", "\udc80\U0001f600"

        def inside():
            with self.open(service=service) as meter:
                transfer("UP", 1000, destination)
                return [(s.name, s.destination) for s in busy(meter).values()]

        self.assertEqual(self.lab.inside(inside), [(service, destination)])
        with self.open() as meter:
            sample = meter.read_service(service)[0]
            self.assertEqual(sample.name.encode("utf-8", "surrogateescape")[-1], 0xFF)

    def test_a_tag_after_the_handshake_moves_what_was_held(self):
        # Once, the packet after the tag was counted twice, and the pending
        # counters went below zero.
        def inside():
            with self.open(service="mme") as meter:
                with socket.create_connection(("127.0.0.1", lab.PROXY_PORT)) as sock:
                    netmeter.tag_socket(sock, "late")
                    sock.sendall(b"UP 5\n12345")
                    sock.recv(1)
                return busy(meter)

        samples = self.lab.inside(inside)
        self.assertEqual(set(samples), {"late"}, samples)
        self.assertEqual(samples["late"].tx_payload_bytes, 10)

    def test_what_the_meter_refuses(self):
        # abi.h lists the reasons, and the library distinguishes them as far as it can:
        # once, the error for a Unix socket said that the tables were full.
        def inside():
            level, register, tag, service = 0x6E74, 1, 2, 3
            with socket.socket() as sock, socket.socket(socket.AF_UNIX) as unix:
                sock.setsockopt(level, tag, b"cloud")
                for option in (register, tag, service):
                    for name in (b"", bytes(65), b"x" * 65, b"a\0b", b"\0"):
                        with self.assertRaises(PermissionError):
                            sock.setsockopt(level, option, name)
                for option in (0, 4, 99):
                    with self.assertRaises(PermissionError):
                        sock.setsockopt(level, option, b"cloud")
                for option in (tag, service):
                    with self.assertRaises(PermissionError):
                        unix.setsockopt(level, option, b"cloud")
                for call in (netmeter.tag_socket, netmeter.set_socket_service):
                    with self.assertRaisesRegex(netmeter.InvalidArgumentError, "not an IP socket"):
                        call(unix, "cloud")

        self.lab.inside(inside)

    def test_a_service_that_waits_is_registered_when_the_meter_comes(self):
        self.lab.unload()

        def inside():
            with self.open(service="early", wait_for_loader=True) as meter:
                with self.assertRaises(netmeter.UnavailableError):
                    meter.read_service()
                self.lab.load()

                def readable():
                    try:
                        meter.read_service()
                        return True
                    except netmeter.UnavailableError:
                        return False

                lab.wait_for(readable, "the meter that was loaded")
                transfer("UP", 1000)
                return [s.name for s in busy(meter).values()]

        self.assertEqual(self.lab.inside(inside), ["early"])

    # "Forks, and several services in a process" in docs/embedding.md, except exec.
    def test_forks_and_several_services_in_a_process(self):
        def sent_by(meter):
            sums = {}
            for s in meter.read_host():
                sums[s.name] = sums.get(s.name, 0) + s.tx_payload_bytes
            return sums

        def in_child(work):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    work()
                    status = 0
                finally:
                    os._exit(status)
            return child

        def end(child):
            self.assertEqual(os.waitpid(child, 0)[1], 0)

        def inside():
            reading, writing = os.pipe()
            before = in_child(lambda: (os.read(reading, 1), transfer("UP", 1)))
            with self.open(service="first") as first, socket.socket() as inherited:
                first_sent = transfer("UP", 1000)[0]
                os.write(writing, b"x")
                end(before)

                def child():
                    sent = first_sent + transfer("UP", 2000)[0]
                    self.assertEqual(sum(s.tx_payload_bytes for s in first.read_service()), sent)
                    netmeter.register_process("child")
                    transfer("UP", 3000)
                    inherited.connect(("127.0.0.1", lab.PROXY_PORT))
                    inherited.sendall(b"UP 5\n12345")
                    inherited.recv(1)

                end(in_child(child))
                transfer("UP", 4000)
                with self.open(service="second") as second, socket.socket() as third:
                    second_sent = transfer("UP", 5000)[0]
                    netmeter.set_socket_service(third, "third")
                    third.connect(("127.0.0.1", lab.PROXY_PORT))
                    third.sendall(b"UP 5\n12345")
                    third.recv(1)
                    self.assertEqual(sum(s.tx_payload_bytes for s in second.read_service()), second_sent)
                    self.assertEqual(sum(s.tx_payload_bytes for s in first.read_service("third")), 10)
                    self.assertEqual([s.registered for s in first.read_service("third")], [False])
                sums = sent_by(first)

                # Each process registers again by a read of its own.
                def renamed():
                    os.read(reading, 1)
                    transfer("UP", 6000)
                    first.read_service()
                    transfer("UP", 7000)

                late = in_child(renamed)
                self.lab.unload()
                self.lab.load()
                first.read_service()
                os.write(writing, b"x")
                end(late)
                return sums, sent_by(first)

        sums, later = self.lab.inside(inside)
        program = next(name for name in sums if name not in ("first", "child", "second", "third"))
        header = len("UP 1000\n")
        expected = {program: len("UP 1\n") + 1, "first": 7000 + 3 * header + 10, "child": 3000 + header}
        expected.update({"second": 5000 + header, "third": 10})
        self.assertEqual(sums, expected)
        self.assertEqual(later, {program: 6000 + header, "first": 7000 + header})

    def test_outside_of_the_cgroup_there_is_nobody_to_register_with(self):
        # If the host has a meter of its own, that meter knows this process.
        if os.path.exists(netmeter.DEFAULT_PIN_DIR):
            return
        with self.open() as meter, socket.socket() as sock:
            with self.assertRaises(netmeter.NotFoundError):
                meter.register("stranger")
            with self.assertRaises(netmeter.NotFoundError):
                netmeter.tag_socket(sock, "cloud")

    def test_who_may_not_read_registers_all_the_same(self):
        # Once, Python could register only by a Meter, which needs the right to read.
        self.lab.load({"register_by": {"mme": "uid:0"}})

        def inside():
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            with self.assertRaises(netmeter.PermissionDeniedError):
                self.open()
            netmeter.register_process("mobilityd")
            sent = transfer("UP", 1000)[0]
            refused = "register the service 'mme': the meter refused"
            with self.assertRaisesRegex(netmeter.PermissionDeniedError, refused):
                netmeter.register_process("mme")
            # The process keeps its earlier name.
            return sent + transfer("UP", 500)[0]

        sent = self.lab.inside(inside)
        with self.open() as meter:
            self.assertEqual(meter.read_service("mme"), [])
            samples = meter.read_service("mobilityd")
            self.assertEqual({s.registered for s in samples}, {True})
            self.assertEqual(sum(s.tx_payload_bytes for s in samples), sent)

    def test_who_is_refused_a_name_does_not_read_it_as_his_own(self):
        # Once, a process with wait_for_loader got no error, and read the traffic of the
        # name's owner.
        self.lab.load({"register_by": {"mme": "uid:0"}})
        refused = "register the service 'mme': the meter refused"

        def owner():
            with self.open(service="mme"):
                return transfer("UP", 1000)[0]

        def stranger():
            def load(config):
                os.setresuid(0, 0, 0)
                self.lab.load(config)
                os.setresuid(65534, 0, 0)

            # A stranger by its real id, but with the right to read.
            os.setresuid(65534, 0, 0)
            with self.open(service="mme", wait_for_loader=True) as meter:

                def sent(service=None):
                    samples = meter.read_service(service)
                    return sum(s.tx_payload_bytes for s in samples)

                for _ in range(2):
                    with self.assertRaisesRegex(netmeter.PermissionDeniedError, refused):
                        sent()
                others = sent("mme")
                meter.register("fine")
                self.assertEqual(transfer("UP", 500)[0], sent())
                meter.register("mme")
                with self.assertRaisesRegex(netmeter.PermissionDeniedError, refused):
                    sent()
                # A process that has the name keeps it, even if a load would refuse it.
                load({"register_by": {}})

                def granted():
                    try:
                        return sent() == others
                    except netmeter.PermissionDeniedError:
                        return False

                lab.wait_for(granted, "the name that the process has")
                load({"register_by": {"mme": "uid:0"}, "max_series": 8192})
                self.assertEqual(sent(), others)
                more = transfer("UP", 700)[0]
                self.assertEqual(sent(), others + more)
                return others

        sent = self.lab.inside(owner)
        self.assertEqual(self.lab.inside(stranger), sent)

    def run(self, result=None):
        with proxy_cloud.cloud():
            return super().run(result)


def read_fake_meter(pin_dir):
    """Runs under with_fake_meter."""
    test = unittest.TestCase()
    with netmeter.Meter.open(pin_dir) as meter:
        mme = {s.transport: s for s in meter.read_service("mme")}
        test.assertEqual(
            mme[netmeter.Transport.TCP],
            netmeter.Sample(
                kind=netmeter.Kind.SERVICE,
                name="mme",
                destination="streamer",
                transport=netmeter.Transport.TCP,
                path=netmeter.Path.DIRECT,
                registered=True,
                tx_bytes=1001,
                rx_bytes=2002,
                tx_packets=13,
                rx_packets=24,
                tx_payload_bytes=605,
                rx_payload_bytes=1206,
                tx_retransmit_bytes=77,
                tcp=netmeter.TcpConnections(
                    opened=1,
                    accepted=2,
                    closed=3,
                    failed=4,
                    rtt_us=1500500,
                    rtt_buckets=tuple(range(10)),
                    resets_sent=6,
                    resets_received=7,
                    timeouts=8,
                    retransmitted_segments=9,
                ),
            ),
        )
        test.assertEqual(len(netmeter.TcpConnections.RTT_BOUNDS_US), 9)
        test.assertIsNone(mme[netmeter.Transport.UDP].tcp)
        test.assertEqual(mme[netmeter.Transport.UDP].path, netmeter.Path.PROXY)
        test.assertFalse(mme[netmeter.Transport.UDP].registered)
        (broken,) = meter.read_service("a\udcff")
        test.assertEqual(broken.tx_payload_bytes, 2**64 - 1)
        test.assertEqual(meter.read_service("a\\xff"), [])
        test.assertEqual(
            meter.read_health(),
            netmeter.Health(
                version="1.2.3",
                abi="1.0",
                kernel="6.1.0-test",
                cgroup="/caf\u00e9/\udcff",
                config_hash="0123456789abcdef",
                start_time_ns=1600000000000000001,
                load_time_ns=1700000000000000001,
                series=5 + FILLERS,
                max_series=64 + FILLERS,
                names=5,
                max_names=64 + 2 * FILLERS,
                evicted_series=19,
                evicted_names=20,
                misattributed=(
                    netmeter.Misattribution("packets", "series_full", 11),
                    netmeter.Misattribution("packets", "series_over_quota", 17),
                    netmeter.Misattribution("packets", "storage_failed", 14),
                    netmeter.Misattribution("packets", "header_errors", 15),
                    netmeter.Misattribution("names", "full", 12),
                    netmeter.Misattribution("names", "over_quota", 16),
                    netmeter.Misattribution("processes", "full", 13),
                    netmeter.Misattribution("sockets", "storage_failed", 18),
                ),
            ),
        )


class FakeMeterTest(unittest.TestCase):
    def test_every_field_is_exact(self):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(
                [WITH_FAKE_METER, directory, str(FILLERS)] + [sys.executable, __file__, "read_fake_meter", directory],
                check=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def test_fields_and_enums_are_those_of_the_header(self):
        with open("include/netmeter/sample.h", encoding="utf-8") as header:
            text = header.read()
        with open("include/netmeter/uplinks.h", encoding="utf-8") as header:
            text += header.read()
        for cls in (
            netmeter.Sample,
            netmeter.Health,
            netmeter.Uplink,
            netmeter.UplinkCounts,
            netmeter.UplinkInterface,
            netmeter.ForwardedTraffic,
        ):
            name = cls.__name__
            body = text.split("struct %s {" % name)[1].split("\n};")[0]
            fields = [
                line.split("//")[0].split("=")[0].rstrip(" ;").split()[-1]
                for line in body.splitlines()
                if line.split("//")[0].strip()
            ]
            self.assertEqual([f.name for f in dataclasses.fields(cls)], fields)
        for cls in (netmeter.Kind, netmeter.Transport, netmeter.Path):
            body = text.split("enum class %s {" % cls.__name__)[1].split("}")[0]
            names = re.findall(r"\bk([A-Z]\w*)", body)
            self.assertEqual([member.name for member in cls], [n.upper() for n in names] + ["UNKNOWN"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["read_fake_meter"]:
        read_fake_meter(sys.argv[2])
    else:
        unittest.main()
