# SPDX-License-Identifier: BSD-3-Clause
"""The meter's program sees every setsockopt(2) of its cgroup: all of them do
what they did without it. The same calls are made with and without a meter and
print the same; some replace a table of iptables that is larger than a page."""

import unittest

import lab


class SetsockoptReplayTest(unittest.TestCase):
    def test_every_call_has_the_same_result(self):
        lab.private_network()
        meter = lab.Meter("setsockopt")
        self.addCleanup(meter.close)

        def replay():
            # In the cgroup, and in a network namespace that nothing has changed.
            return meter.run(["unshare", "--net", lab.path("test/names/replay")]).decode().splitlines()

        without, again = replay(), replay()
        meter.load({})
        with_meter = replay()
        meter.unload()
        self.assertEqual(without, again, "the calls have no fixed results")
        self.assertEqual(len(without), len(with_meter))
        pairs = list(zip(without, with_meter))
        readable = [pair for pair in pairs if " unreadable" not in pair[0]]
        self.assertEqual([pair for pair in readable if pair[0] != pair[1]][:3], [])
        large = [line for line, _ in readable if int(line.split("*")[1].split(":")[0]) > 4096]
        self.assertGreater(sum(": 0 0 " in line for line in large), 1000)  # of more than a page
        # The kernel copies the buffer before a program sees the call: if it cannot, that
        # is the answer, with any meter and any program.
        for pair in pairs:
            if " unreadable" in pair[0] and pair[0] != pair[1]:
                self.assertIn(": -1 14 ", pair[1])


if __name__ == "__main__":
    lab.main(170)
