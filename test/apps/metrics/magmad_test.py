# SPDX-License-Identifier: BSD-3-Clause
"""Polls the exporter and the examples as magmad does, with a real proto2
reader, while they make real traffic."""

import os
import signal
import unittest

import lab
import metrics_lab as m

NOBODY = 65534


class MagmadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("magmad")
        cls.addClassCleanup(cls.meter.close)
        cls.meter._load("load", "--quiet", "--group", "nogroup", "--cgroup", cls.meter.cgroup)

    def poll(self, address):
        client = m.Service303Client(address)
        self.addCleanup(client.close)
        return client

    def start(self, arguments, **options):
        process = self.meter.start(arguments, stdout=m.subprocess.PIPE, **options)
        self.addCleanup(m.end, process)
        return process

    def check_presence(self, container):
        """What orc8r dereferences without looking must be there."""
        zeros = 0
        for family in container.family:
            self.assertTrue(family.HasField("name"))
            self.assertTrue(family.HasField("type"), family.name)
            self.assertGreater(len(family.metric), 0)
            for metric in family.metric:
                kind = {0: "counter", 1: "gauge", 4: "histogram"}[family.type]
                self.assertTrue(metric.HasField(kind), family.name)
                value = getattr(metric, kind)
                if kind == "histogram":
                    self.assertTrue(value.HasField("sample_count") and value.HasField("sample_sum"))
                    self.assertEqual(value.bucket[-1].cumulative_count, value.sample_count)
                else:
                    self.assertTrue(value.HasField("value"), family.name)
                    zeros += kind == "counter" and value.value == 0
                names = {pair.name for pair in metric.label}
                self.assertFalse(names & {"service", "networkID", "gatewayID"}, names)
        return zeros

    def test_example_service_reports_its_own_bytes(self):
        m.await_line(self.cloud.start(self, lab.PYTHON, m.CLOUD, "0.0.0.0:9443"), "listening")
        service = self.start([m.SERVICE303, "127.0.0.1:50051", self.cloud.THERE + ":9443", self.meter.pin_dir])
        for _ in range(3):
            self.assertEqual(m.await_line(service, ""), "reported\n")
        client = self.poll("127.0.0.1:50051")
        container = client.metrics()
        self.check_presence(container)
        found = m.values(container)
        self.assertEqual(found[("netmeter_up",)], 1)
        key = ("magma_bytes_sent_total", ("service_name", "subscriberdb"), ("dest_service", "metricsd"))
        self.assertGreater(found[key], 500, found)
        # All of it went to the cloud through the tagged channel.
        sent = [k for k in found if k[0] == key[0]]
        self.assertEqual(sent, [key])
        info = client.info()
        self.assertEqual((info.name, info.version, info.state, info.health), ("subscriberdb", "1.0.0", 2, 2))
        self.assertEqual(info.status.meta["netmeter"], "ok")
        with self.assertRaisesRegex(client.Error, "^UNIMPLEMENTED$"):
            client.stop()

        # The exporter publishes the same.
        exporter = m.start_exporter(self.meter.pin_dir)
        self.addCleanup(m.end, exporter)
        client_of_all = self.poll(m.GRPC)
        before = m.values(client.metrics())[key]
        middle = m.values(client_of_all.metrics())[key]
        after = m.values(client.metrics())[key]
        self.assertLessEqual(before, middle)
        self.assertLessEqual(middle, after)

        # Totals are the kernel's: a restart of the service changes nothing.
        self.assertEqual(m.end(service), -signal.SIGTERM)
        last = m.values(client_of_all.metrics())[key]
        service = self.start([m.SERVICE303, "127.0.0.1:50051", self.cloud.THERE + ":9443", self.meter.pin_dir])
        self.assertEqual(m.await_line(service, ""), "reported\n")
        again = m.values(self.poll("127.0.0.1:50051").metrics())
        self.assertGreaterEqual(again[key], last)

    def test_the_patch_of_magma_service_names_the_mme(self):
        # The MME has a second MagmaService, a global: its name took what was sent before
        # main() had made the first, and magmad never asks it.
        default = "mount --bind %s /mnt && mount -t tmpfs none /run && mkdir /run/netmeter && mount --move /mnt /run/netmeter"
        script = "mount --make-rprivate / && " + default % self.meter.pin_dir + " && exec \"$@\""
        command = ["unshare", "--mount", "sh", "-c", script, "sh", m.PATCHED, self.cloud.THERE, "9"]
        before = self.meter.series().get(("service", "mme", "", "udp", "direct"), {}).get("tx_payload_bytes", 0)
        answer = self.meter.run(command).decode()
        series = self.meter.series()
        self.assertEqual(series["service", "mme", "", "udp", "direct"]["tx_payload_bytes"] - before, 2000)
        self.assertEqual([key for key in series if key[1] == "s6a_async_service"], [])
        self.assertIn('name: "magma_bytes_sent_total"', answer)

    def test_visitor_of_an_example_has_what_the_kernel_counted(self):
        visitor = self.start([m.VISITOR, self.meter.pin_dir], stdin=m.subprocess.PIPE)
        self.addCleanup(visitor.stdin.close)

        def visit():
            visitor.stdin.write(b"\n")
            visitor.stdin.flush()
            lines = iter(visitor.stdout.readline, b"end\n")
            return {name.decode(): float(value) for name, value in (line.rsplit(b" ", 1) for line in lines)}

        before = visit()
        script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(777), (%r, 9))"
        source = "import netmeter, sys; netmeter.Meter.open(sys.argv[1], service='mme'); " + script
        self.meter.run(
            [lab.PYTHON, "-c", source % self.cloud.THERE, self.meter.pin_dir],
            env={**os.environ, "PYTHONPATH": lab.BINDING},
        )
        name = "magma_bytes_sent_total service_name=mme dest_service="
        self.assertEqual(visit()[name] - before.get(name, 0), 777)
        self.assertEqual(visit()[name] - before.get(name, 0), 777)

    def test_magmad_gets_all_of_the_exporter_by_default(self):
        """The shape of its metrics_collector.py, with both of its ways to ask."""
        self.addCleanup(m.end, m.start_exporter(self.meter.pin_dir))
        container = self.poll(m.GRPC).metrics()
        self.check_presence(container)
        for family in container.family:
            for sample in family.metric:
                sample.label.add(name="service", value="kernsnoopd")
        self.assertIn("netmeter_up", [family.name for family in container.family])
        self.assertLess(container.ByteSize(), 4 * 1024 * 1024 - 1000)
        # Its scraper puts the values of a histogram into integers, of which 375.0
        # is none, and drops the page.
        text = m.get(m.HTTP)
        types = {line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
        self.assertEqual(types, {"counter", "gauge"})

    def test_exporter_needs_no_root_and_is_there_for_kernsnoopd(self):
        def drop():
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

        lab_bytes = b"x" * 1000
        script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(%r, (%r, 9))"
        self.meter.run([lab.PYTHON, "-c", script % (lab_bytes, self.cloud.THERE)])
        # Bazel's output may be below root's home.
        program = m.copy_for_all(m.EXPORTER)
        self.addCleanup(os.unlink, program)
        exporter = m.subprocess.Popen(
            [program, "--pin-dir", self.meter.pin_dir, "--service303", m.GRPC, "--service303-families", "default"],
            stderr=m.subprocess.PIPE,
            preexec_fn=drop,
            cwd="/",
        )
        self.addCleanup(m.end, exporter)
        m.await_line(exporter, "netmeter-exporter: serving http://127.0.0.1:9384/metrics and ", exporter.stderr)
        client = self.poll(m.GRPC)
        self.assertEqual(client.info().name, "kernsnoopd")
        container = client.metrics()
        self.assertGreater(self.check_presence(container), 0)
        found = m.values(container)
        self.assertEqual(found[("netmeter_up",)], 1)
        python = os.path.basename(os.path.realpath(lab.PYTHON))
        name = [k[1][1] for k in found if k[0] == "linux_bytes_sent_total" and k[1][1].startswith("python")]
        self.assertTrue(name, (python, found))
        self.assertGreaterEqual(found[("linux_bytes_sent_total", ("binary_name", name[0]))], 1000)
        self.assertEqual(m.end(exporter), 0)


if __name__ == "__main__":
    lab.private_network()
    lab.main(120)
