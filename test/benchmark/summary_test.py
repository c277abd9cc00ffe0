# SPDX-License-Identifier: BSD-3-Clause
"""Statistics and verdicts, with samples made up here."""

import unittest

import report
import summary
import targets


def results(**benchmarks):
    """benchmark -> {(case, subject, unit): samples}, or its facts."""
    data = {"schema": summary.SCHEMA, "smoke": False, "benchmarks": {}}
    for name, content in benchmarks.items():
        part = {"facts": {}, "skipped": [], "series": []}
        for key, value in content.items():
            if isinstance(key, str):
                part["facts"][key] = value
            else:
                case, subject, unit = key
                better = "more" if unit.endswith("/s") else "less"
                part["series"].append(
                    {"case": case, "subject": subject, "unit": unit, "better": better, "samples": value}
                )
        data["benchmarks"][name] = summary.summarize(name, part)
    return summary.Results(data)


def verdict(what, found):
    return {v["what"]: v for v in targets.judge(found)}[what]


class SpreadTest(unittest.TestCase):
    def test_median_and_quartiles(self):
        spread = summary.Spread([5, 1, 4, 2, 3])
        self.assertEqual((spread.low, spread.median, spread.high), (2, 3, 4))

    def test_one_sample_has_no_spread(self):
        self.assertEqual(summary.Spread([7]).json(), {"median": 7, "low": 7, "high": 7})


class ComparisonTest(unittest.TestCase):
    def test_pairs_are_compared_not_medians(self):
        # The machine became ten times slower in the last round: the pairs do not
        # mind, and the difference of the medians would.
        found = results(
            structures={("c", "base", "ns"): [10, 11, 100], ("c", "hash", "ns"): [30, 31, 120]},
        )
        against = found.series("structures", "c", "hash", "ns")["against"]
        self.assertEqual((against["how"], against["median"], against["low"]), ("difference", 20, 20))

    def test_a_loss_is_a_share_of_the_pair(self):
        found = results(
            throughput={("c", "off", "trips/s"): [100, 200], ("c", "netmeter", "trips/s"): [99, 198]},
        )
        against = found.series("throughput", "c", "netmeter", "trips/s")["against"]
        self.assertAlmostEqual(against["median"], 0.01)


class VerdictTest(unittest.TestCase):
    def test_what_was_not_run_is_not_met(self):
        for one in targets.judge(results()):
            self.assertEqual(one["verdict"], "not run", one["what"])

    def test_a_limit_is_met_up_to_itself(self):
        what = "read, 16 series of a service"
        for samples, expected in (([1000] * 5, "met"), ([1001] * 5, "not met")):
            one = verdict(what, results(read={("own series", "netmeter", "ns"): samples}))
            self.assertEqual((one["verdict"], one["clear"]), (expected, True))

    def test_a_limit_within_the_spread_is_not_clear(self):
        found = results(read={("own series", "netmeter", "ns"): [900, 950, 990, 1100, 1200]})
        one = verdict("read, 16 series of a service", found)
        self.assertEqual((one["verdict"], one["clear"]), ("met", False))
        self.assertIn("within the spread", report.verdict_text(one))

    def test_one_column_that_misses_misses_the_target(self):
        series = {}
        for column in targets.COLUMNS:
            case = "test run, one CPU/" + column
            series[case, "empty", "ns"] = [10] * 5
            series[case, "shared hash", "ns"] = [50] * 5
            series[case, "socket table", "ns"] = [35 if column == "TCP tx" else 25] * 5
        one = verdict("datapath, one CPU, against the shared hash", results(datapath=series))
        self.assertEqual((one["verdict"], one["missed"]), ("not met", ["TCP tx"]))

    def test_a_gain_by_empty_programs_asks_for_no_more_than_the_same(self):
        series = {}
        for place in targets.PLACES:
            for workload, unit in targets.SMALL.items():
                case = "%s/%s" % (place, workload)
                series[case, "off", unit] = [100] * 5
                series[case, "empty", unit] = series[case, "netmeter", unit] = [101] * 5
        one = verdict("requests and small UDP, against empty programs", results(throughput=series))
        self.assertEqual(one["verdict"], "met")

    def test_who_is_not_here_is_named_with_the_verdict(self):
        series = {}
        for place in targets.PLACES:
            for workload, unit in targets.SMALL.items():
                for subject in ("off", "empty", "netmeter", *targets.OTHERS):
                    rate = {"off": 100, "netmeter": 99}.get(subject, 90)
                    series["%s/%s" % (place, workload), subject, unit] = [rate] * 5
        found = results(throughput={key: v for key, v in series.items() if key[1] != "nethogs"})
        self.assertEqual(verdict("requests and small UDP, against others", found)["verdict"], "not run")
        skipped = {"case": "", "subject": "nethogs", "why": "is not installed"}
        found.data["benchmarks"]["throughput"]["skipped"].append(skipped)
        one = verdict("requests and small UDP, against others", found)
        self.assertEqual(report.verdict_text(one), "met, without nethogs")

    def test_bytes_too_many_are_as_wrong_as_bytes_missing(self):
        for value, expected in ((0, "met"), (1, "not met"), (-1, "not met")):
            found = results(sockets={"1000 sockets: bytes missing in the counters": value})
            self.assertEqual(verdict("many sockets, packets and bytes missing", found)["verdict"], expected)

    def test_runs_that_do_not_agree_say_so(self):
        files = [results(read={("own series", "netmeter", "ns"): [ns] * 3}).data for ns in (900, 1100)]
        text = "\n".join(report.target_lines(files))
        self.assertIn("DO NOT AGREE", text)


if __name__ == "__main__":
    unittest.main()
