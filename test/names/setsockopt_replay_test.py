# SPDX-License-Identifier: BSD-3-Clause
"""The meter's program sees every setsockopt(2) of its cgroup: all of them do
what they did without it. The same calls are made with and without a meter and
print the same; iptables of old replaces a table that is larger than a page."""

import os
import time
import unittest

import lab

RULES = 2000
RESTORE = "iptables-legacy-restore", "ip6tables-legacy-restore"


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
        without, again, with_meter = self.with_and_without(
            lambda: self.fresh(replay).decode().splitlines()
        )
        self.assertEqual(without, again, "the calls have no fixed results")
        self.assertEqual(len(without), len(with_meter))
        good = lambda lines: sum(": 0 0 " in line for line in lines)
        pairs = [
            pair for pair in zip(without, with_meter) if " unreadable" not in pair[0]
        ]
        different = [pair for pair in pairs if pair[0] != pair[1]]
        large = [
            pair[0] for pair in pairs if int(pair[0].split("*")[1].split(":")[0]) > 4096
        ]
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

    def test_iptables_restores_a_large_table(self):
        def restore(program):
            version = 4 if program == RESTORE[0] else 6
            source = "10.0.%d.%d/32" if version == 4 else "fd00::%x:%x/128"
            rules = [
                "-A INPUT -s %s -j DROP" % (source % divmod(i, 256))
                for i in range(RULES)
            ]
            table = "\n".join(["*filter", *rules, "COMMIT", ""])
            # The status, what it says, and the table as it is afterwards.
            return (
                self.fresh(
                    *(
                        "sh",
                        "-c",
                        "%s; echo $?; %s"
                        % (program, program.replace("restore", "save")),
                    ),
                    input=table.encode(),
                    status=None,
                    env=dict(os.environ, XTABLES_LOCKFILE="/dev/null"),
                )
                .decode()
                .splitlines()
            )

        for program in RESTORE:
            without, again, with_meter = self.with_and_without(lambda: restore(program))
            cut = lambda lines: [line for line in lines if not line.startswith("#")]
            good = without[0] == "0"
            rules = sum(line.startswith("-A INPUT") for line in with_meter)
            print(
                "%s: status %s, %d rules" % (program, without[0], rules)
                if good
                # Kernels are made without it. What it calls is in the other test.
                else "%s: %s" % (program, " / ".join(without))
            )
            self.assertEqual(cut(without), cut(again))
            self.assertEqual(cut(without), cut(with_meter))
            if good:
                self.assertEqual(rules, RULES)
            else:
                self.assertIn("able", " ".join(without))  # Table does not exist


if __name__ == "__main__":
    lab.main(170)
