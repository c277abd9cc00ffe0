#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other builds are counted by a real meter, and read what they sent."""

import os
import unittest

import lab
from consumers import Consumers


class ConsumersRootTest(unittest.TestCase):
    def test_each_reads_the_datagram_that_it_sent(self):
        lab.private_network()
        cloud = lab.Cloud()
        directory = lab.temporary_directory(self)
        meter = lab.Meter("consumers")
        self.addCleanup(meter.close)
        self.addCleanup(os.close, cloud.network)
        names = ("c99-gcc", "cpp14-gcc", "cpp17-clang")
        programs = Consumers(directory).compile_all(names)
        for name in names:
            with self.subTest(name):
                meter.load()
                # 20 bytes of IP, 8 of UDP and 5 of payload.
                output = meter.run([programs[name], meter.pin_dir]).decode()
                self.assertEqual(output, "consumer streamer udp 33\n")
                self.assertEqual(meter.series()["service", "consumer", "streamer", "udp", "direct"]["tx_bytes"], 33)
                meter.unload()
        meter.load()
        # Who may not read registers all the same.
        os.chmod(directory, 0o755)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", programs["c99-gcc"]]
        output = meter.run([*nobody, meter.pin_dir], status=2).decode()
        self.assertRegex(output, "^7: .*Permission denied")
        self.assertEqual(meter.run([*nobody, "--register", "unread"]), b"")
        self.assertEqual(meter.series()["service", "unread", "streamer", "udp", "direct"]["tx_bytes"], 33)


if __name__ == "__main__":
    unittest.main()
