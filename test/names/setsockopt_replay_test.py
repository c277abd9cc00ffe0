# SPDX-License-Identifier: BSD-3-Clause
"""The meter's program sees every setsockopt(2) of its cgroup: all of them do
what they did without it. The same calls are made with and without a meter and
print the same; some replace a table of iptables that is larger than a page."""

import time
import unittest

import lab


class SetsockoptReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.meter = lab.Meter("setsockopt")
        cls.addClassCleanup(cls.meter.close)

    def with_and_without(self, function):
        without = function()
        again = function()
        self.meter.load({})
        try:
            return without, again, function()
        finally:
            self.meter.unload()

    def fresh(self, *arguments, **options):
        """In the cgroup, and in a network namespace that nothing has changed."""
        return self.meter.run(["unshare", "--net", *arguments], **options)

    def test_every_call_has_the_same_result(self):
        begin = time.monotonic()
        replay = lab.path("test/names/replay")
        without, again, with_meter = self.with_and_without(lambda: self.fresh(replay).decode().splitlines())
        self.assertEqual(without, again, "the calls have no fixed results")
        self.assertEqual(len(without), len(with_meter))
        good = lambda lines: sum(": 0 0 " in line for line in lines)
        pairs = [pair for pair in zip(without, with_meter) if " unreadable" not in pair[0]]
        different = [pair for pair in pairs if pair[0] != pair[1]]
        large = [pair[0] for pair in pairs if int(pair[0].split("*")[1].split(":")[0]) > 4096]
        print(
            "%d calls of setsockopt, %d of them succeed; %d of more than a page, %d succeed; "
            "%d differ with a meter; %.1f s"
            % (
                *(len(pairs), good(pair[0] for pair in pairs), len(large), good(large)),
                *(len(different), time.monotonic() - begin),
            )
        )
        for pair in different[:40]:
            print("without: %s\n   with: %s" % pair)

        # The kernel copies the buffer before a program sees the call: where
        # it cannot, that is the answer, with any meter and any program.
        pairs = [pair for pair in zip(without, with_meter) if " unreadable" in pair[0]]
        others = [pair for pair in pairs if pair[0] != pair[1]]
        lost = [pair for pair in others if ": 0 0 " in pair[0]]
        print(
            "%d calls with a buffer that is shorter than said: %d answer EFAULT with a meter, "
            "%d of these succeed without" % (len(pairs), len(others), len(lost))
        )
        for pair in lost[:10]:
            print("without: %s" % pair[0])

        self.assertGreater(good(large), 1000)
        self.assertEqual(different[:3], [])
        for pair in others:
            self.assertIn(": -1 14 ", pair[1])


if __name__ == "__main__":
    lab.main(170)
