# SPDX-License-Identifier: BSD-3-Clause
"""Which rows are wrong, and when report.py fails."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report


def row(**changes):
    return {
        "scenario": "Test.Case/IPv4",
        "hop": "a1",
        "direction": "sent",
        "expected": 1000,
        "ours": 1000,
        "remainder": {},
        "to": [{"kind": "service", "name": "web", "destination": "peer", "bytes": 1000}],
        "failed": False,
        **changes,
    }


class ReportTest(unittest.TestCase):
    def run_report(self, rows, *options, cut="", kernel="host"):
        """Exit status, what was printed, and what the JSON holds."""
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "lanes", kernel))
            with open(os.path.join(folder, "lanes", kernel, "log"), "w", encoding="utf-8") as file:
                file.write("[ RUN      ] Test.Case/IPv4\n")
                file.writelines(f"@@accuracy {json.dumps(line)}\n" for line in rows)
                file.write(cut)
            result = os.path.join(folder, "json")
            sys.argv = ["report.py", "--json", result, *options, os.path.join(folder, "lanes")]
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = report.main()
            with open(result, encoding="utf-8") as file:
                return status, output.getvalue().rstrip().split("\n"), json.load(file)

    def verdicts(self, *rows):
        status, lines, result = self.run_report(rows)
        return status, lines[-1], [line["verdict"] for line in result["rows"]]

    def test_no_difference_is_exact(self):
        self.assertEqual(self.verdicts(row()), (0, "1 rows, 1 exact, 0 explained, 0 wrong", ["exact"]))

    def test_a_difference_of_named_packets_is_explained(self):
        missing = row(ours=900, remainder={"arp": 60, "mld": 40})
        more = row(ours=1100, remainder={"dropped-here": -100})
        self.assertEqual(self.verdicts(missing, more), (0, "2 rows, 0 exact, 2 explained, 0 wrong", ["explained"] * 2))

    def test_one_byte_is_wrong(self):
        for ours, remainder in ((999, {}), (1001, {}), (900, {"arp": 101}), (1000, {"arp": 1})):
            with self.subTest(ours=ours, remainder=remainder):
                verdicts = self.verdicts(row(), row(ours=ours, remainder=remainder))
                self.assertEqual(verdicts, (1, "2 rows, 1 exact, 0 explained, 1 wrong", ["exact", "WRONG"]))

    def test_the_row_of_a_failed_test_is_wrong(self):
        self.assertEqual(self.verdicts(row(failed=True))[0], 1)

    def test_what_a_kernel_has_not_is_no_row(self):
        absent = {"scenario": "Test.Tls/IPv4", "absent": "TCP_ULP tls: no"}
        status, lines, result = self.run_report([row(), absent])
        self.assertEqual(status, 0)
        self.assertIn("  host: Test.Tls/IPv4: TCP_ULP tls: no", lines)
        self.assertEqual(lines[-1], "1 rows, 1 exact, 0 explained, 0 wrong")
        self.assertEqual(len(result["absent"]), 1)
        self.assertEqual(self.run_report([absent])[0], 1)

    def test_too_few_rows_fail(self):
        status, lines, _ = self.run_report([row(), row()], "--minimum", "3")
        self.assertEqual(status, 1)
        self.assertIn("host: 2 rows, but at least 3 are expected: something did not run", lines)
        # Those that run fewer tests still have to have one.
        self.assertEqual(self.run_report([row(), row()], "--minimum", "3", kernel="6.1-rt")[0], 0)
        self.assertEqual(self.run_report([], "--minimum", "3", kernel="6.1+nobtf")[0], 1)

    # The bug: a virtual machine hung in the middle of a line, and so the report fell.
    def test_a_row_that_is_cut_fails(self):
        status, lines, result = self.run_report([row()], cut='@@accuracy {"sce')
        self.assertEqual(status, 1)
        self.assertTrue(any("host: 1 rows that are no rows" in line for line in lines), lines)
        self.assertEqual(lines[-1], "1 rows, 1 exact, 0 explained, 0 wrong")
        self.assertEqual(len(result["rows"]), 1)

    def test_says_to_whom(self):
        to = [{"kind": "service", "name": f"s{i}", "destination": "", "bytes": i} for i in range(1, 5)]
        _, lines, _ = self.run_report([row(), row(to=to), row(to=[])])
        self.assertTrue(any("service web to peer" in line for line in lines))
        self.assertTrue(any("service s4 4; service s3 3; and 2 more" in line for line in lines))


if __name__ == "__main__":
    unittest.main()
