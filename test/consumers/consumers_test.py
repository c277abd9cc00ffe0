#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other builds link libnetmeter and run: C, C++14, C++17 and C++20, gcc
and clang, shared and static, without exceptions and RTTI, with an abseil, a
prometheus-cpp, a protobuf and a gRPC of their own, by compilers alone, by make and by
CMake."""

import os
import subprocess
import tempfile
import unittest

from consumers import CONSUMERS, Consumers

# Of consumer.*, of publish_prometheus, of publish_magma, and of publish_grpc.
NO_METER = ("5: no meter at /nonexistent", "\nnetmeter_up 0\n", "waiting for a meter: no meter at /nonexistent", "consumer: 1 families\n")


class ConsumersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.consumers = Consumers(folder.name)

    def expect_no_meter(self, program):
        done = subprocess.run(
            [program, "/nonexistent"], stdout=subprocess.PIPE, env=self.consumers.environment, timeout=60
        )
        text = done.stdout.decode()
        self.assertTrue(any(words in text for words in NO_METER), text)
        self.assertEqual(done.returncode, 2)

    def test_each_compiles_and_tells_that_there_is_no_meter(self):
        programs = self.consumers.compile_all()
        self.assertEqual(sorted(programs), sorted(CONSUMERS))
        for name, program in programs.items():
            with self.subTest(name):
                self.expect_no_meter(program)

    def test_make_finds_it_by_pkg_config(self):
        self.expect_no_meter(self.consumers.build_by_make())

    def test_cmake_finds_its_package(self):
        for program in self.consumers.build_by_cmake():
            self.expect_no_meter(program)

    def test_the_version_of_the_files_is_that_of_the_library(self):
        (version,) = self.consumers.pkg_config("--modversion")
        with open("include/netmeter/netmeter.h", encoding="utf-8") as file:
            self.assertIn('#define NETMETER_VERSION "%s"' % version, file.read())


if __name__ == "__main__":
    unittest.main()
