#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other builds link libnetmeter and run: C, C++14, C++17 and C++20, gcc
and clang, shared and static, without exceptions and RTTI, with an abseil of their own."""

import os
import subprocess
import tempfile
import unittest

from consumers import CONSUMERS, Consumers


class ConsumersTest(unittest.TestCase):
    def test_each_compiles_and_tells_that_there_is_no_meter(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as directory:
            programs = Consumers(directory).compile_all()
            self.assertEqual(sorted(programs), sorted(CONSUMERS))
            for name, program in programs.items():
                with self.subTest(name):
                    done = subprocess.run([program, "/nonexistent"], stdout=subprocess.PIPE, timeout=60)
                    self.assertEqual(done.stdout.decode().split(" (")[0], "5: no meter at /nonexistent")
                    self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
