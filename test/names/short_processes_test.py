# SPDX-License-Identifier: BSD-3-Clause
"""10,000 processes that live under 5 ms and send one datagram each: all bytes
under the right name, none lost."""

import os
import shutil
import socket
import unittest

import lab

COUNT = 10000
NAMES = {
    "short-alpha": ("binary", "short-alpha"),
    "short-service": ("service", "short-service"),
    "short-binary-of-a-long-name": ("binary", "short-binary-of-a-long-name"),
    "short-alias": ("service", "short-real"),
}
CONFIG = {"services": ["short-service"], "aliases": {"short-alias": "short-real"}}


class ShortProcessesTest(unittest.TestCase):
    def test_every_byte_of_10000_short_processes_is_named(self):
        lab.private_network()
        directory = lab.temporary_directory(self)
        meter = lab.Meter("short")
        self.addClassCleanup(meter.close)
        meter.load(CONFIG)
        paths = [os.path.join(directory, name) for name in NAMES]
        for path in paths:
            shutil.copy(lab.path("test/names/datagram"), path)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
            sink.bind(("127.0.0.1", lab.PROXY_PORT))
            out = meter.run(
                [lab.path("test/names/launcher"), "short", str(COUNT), *paths]
            )
        *runs, times = out.decode().strip().split("\n")
        runs = [int(text) for text in runs]
        seen = {key[:2]: row for key, row in meter.series().items()}
        rows = []
        for i, (name, key) in enumerate(NAMES.items()):
            row = seen.get(key, dict.fromkeys(lab.COUNTERS, 0))
            rows.append(
                (
                    " ".join(key),
                    runs[i],
                    row["tx_packets"],
                    (101 + i) * runs[i],
                    row["tx_payload_bytes"],
                )
            )
        lab.print_table(
            times,
            ("name", "processes", "packets", "bytes expected", "bytes seen"),
            rows,
        )
        self.assertGreaterEqual(sum(runs), COUNT)
        self.assertEqual(set(seen), set(NAMES.values()))
        for _, processes, packets, expected, got in rows:
            self.assertEqual((packets, got), (processes, expected))
        # 28 bytes of headers each.
        self.assertEqual(
            sum(row["tx_bytes"] for row in seen.values()),
            sum((101 + 28 + i) * runs[i] for i in range(len(runs))),
        )


if __name__ == "__main__":
    lab.main(120)
