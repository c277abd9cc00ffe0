#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other builds are counted by a real meter, and read what they sent. The
example of the README is among them, in each language."""

import os
import shutil
import unittest

import lab
from consumers import MUSL, ROOT, Consumers, run, source

# Shows the meter at its usual place, where the examples look for it.
AT_HOME = 'mount --bind "$0" /mnt && mount -t tmpfs none /run && mkdir /run/netmeter && mount --move /mnt /run/netmeter && exec "$@"'


class ConsumersRootTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        lab.Cloud()
        lab.run("ip", "route", "add", "192.0.2.0/24", "dev", "gate")
        cls.directory = lab.temporary_directory(cls)
        os.chmod(cls.directory, 0o755)
        cls.meter = lab.Meter("consumers")
        cls.addClassCleanup(cls.close_meter)
        cls.consumers = Consumers(cls.directory)
        cls.programs = cls.consumers.compile_all(("c99-gcc", "cpp14-gcc", "cpp17-clang"))
        cls.publishers = cls.consumers.compile_all(("prometheus17-clang", "magma17-gcc", "grpc14-gcc"))

    @classmethod
    def close_meter(cls):
        cls.meter.load()  # close() unloads
        cls.meter.close()

    def setUp(self):
        self.meter.load()
        self.addCleanup(self.meter.unload)

    def sent(self, name, destination):
        return self.meter.series()["service", name, destination, "udp", "direct"]["tx_bytes"]

    def test_each_reads_the_datagram_that_it_sent(self):
        for number, program in enumerate(self.programs.values(), 1):
            # 20 bytes of IP, 8 of UDP and 5 of payload.
            output = self.meter.run([program, self.meter.pin_dir]).decode()
            self.assertEqual(output, "consumer streamer udp %d\n" % (33 * number))
            self.assertEqual(self.sent("consumer", "streamer"), 33 * number)

    def test_each_publisher_has_what_was_sent(self):
        self.meter.run([self.programs["cpp14-gcc"], self.meter.pin_dir])
        page, counters, families = (
            self.meter.run([program, self.meter.pin_dir]).decode() for program in self.publishers.values()
        )
        key = 'magma_bytes_sent_total{service_name="consumer",dest_service="streamer"} 5\n'
        self.assertIn(key, page)
        self.assertIn("magma_bytes_sent_total service_name=consumer dest_service=streamer +5\n", counters)
        self.assertRegex(counters, "(?m)^magma_bytes_sent_total: [1-9][0-9]* metrics$")
        # netmeter_up and magma_bytes_sent_total at least.
        self.assertRegex(families, "^consumer: [2-9] families\n$")

    def test_who_may_not_read_registers_all_the_same(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", self.programs["c99-gcc"]]
        output = self.meter.run([*nobody, self.meter.pin_dir], status=2).decode()
        self.assertRegex(output, "^7: .*Permission denied")
        self.assertEqual(self.meter.run([*nobody, "--register", "unread"]), b"")
        self.assertEqual(self.sent("unread", "streamer"), 33)

    def test_a_program_for_musl_registers_by_abi_h_alone(self):
        for number, options in enumerate((["-static"], []), 1):
            program = os.path.join(self.directory, "musl%d" % number)
            run([*MUSL, source("musl.c"), *options, *self.consumers.pkg_config("--cflags"), "-o", program])
            self.meter.run([program, "for-musl"])
            self.assertEqual(self.sent("for-musl", "streamer"), 33 * number)
            self.assertNotIn("libc.so.6", run(["readelf", "-d", program]))

    def run_example(self, *program, **environment):
        output = self.meter.run(
            ["unshare", "--mount", "sh", "-c", AT_HOME, self.meter.pin_dir, *program],
            env={**self.consumers.environment, **environment},
        )
        self.assertEqual(output.decode(), "my-service, udp: sent 33 bytes, received 0\n")
        self.assertEqual(self.sent("my-service", ""), 33)

    def test_the_example_in_c(self):
        program = os.path.join(self.directory, "embed_c")
        options = self.consumers.pkg_config("--cflags", "--libs")
        run(["cc", "-Wall", "-Wextra", "-Werror", os.path.join(ROOT, "examples/embed.c"), *options, "-o", program])
        self.run_example(program)

    def test_the_example_in_go(self):
        folder = os.path.join(self.directory, "go")
        os.mkdir(folder)
        shutil.copy(os.path.join(ROOT, "examples/embed.go"), folder)
        environment = dict(self.consumers.environment, GOCACHE=folder + "/cache", GOPATH=folder, GOFLAGS="-mod=mod")
        run(["go", "build", "embed.go"], cwd=folder, env=environment)
        self.run_example(os.path.join(folder, "embed"))

    def test_the_example_in_rust(self):
        program = os.path.join(self.directory, "embed_rs")
        run(["rustc", os.path.join(ROOT, "examples/embed.rs"), "-L", self.consumers.library, "-l", "netmeter", "-o", program])
        self.run_example(program)

    def test_the_example_in_cpp_by_cmake(self):
        folder = os.path.join(self.directory, "cmake-example")
        run(["cmake", "-S", os.path.dirname(os.path.realpath("examples/CMakeLists.txt")), "-B", folder], env=self.consumers.environment)
        run(["cmake", "--build", folder])
        self.run_example(os.path.join(folder, "embed"))

    # docs/embedding.md called read_own_service(), which there never was.
    def test_the_example_in_python(self):
        self.run_example(lab.PYTHON, "examples/embed.py", PYTHONPATH=lab.BINDING)


if __name__ == "__main__":
    unittest.main()
