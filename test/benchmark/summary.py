# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks measured: the file, and the statistics over it.

The file is one JSON object:

  schema       "netmeter-benchmark 1"
  smoke        true: every measurement in short; the figures mean nothing
  started      when, in UTC
  source       {"commit", "changed": whether the tree differs from it}
  machine      {"cpu", "cpus", "virtual", "memory_bytes", "kernel", "preemption",
               "jit"}
  benchmarks   name -> {
    "seconds"       that it took
    "load_average"  [before, after], of one minute
    "facts"         name -> what was counted or computed once
    "skipped"       [{"case", "subject", "why"}]: what this machine cannot do
    "series"        [{"case", "subject", "unit", "better": "less" or "more",
                      "samples": [one per round],
                      "median", "low", "high",
                      "against": {"subject", "how", "median", "low", "high"}}]
  }
  failed       names of benchmarks that ended with an error, and so are not there
  targets      [{"what", "limit", "figure", "worst", "verdict", "clear", "missed",
                 "absent", "missing": why it was not run}], see targets.py

"low" and "high" are the quartiles: half of the samples lie between them. The
n-th samples of all subjects of one case and unit were taken in the same round.
"against" compares such pairs with the subject that stands for nothing being
there: by "difference", in the unit of the series, or by "loss", the share of it
that is missing (0.01: one percent less). A file whose benchmarks lack something
is good: what was not run has no verdict but "not run".
"""

import statistics

SCHEMA = "netmeter-benchmark 1"

# benchmark -> the subject that others are compared with, and how
REFERENCES = {
    "datapath": ("empty", "difference"),
    "structures": ("base", "difference"),
    "throughput": ("off", "loss"),
    "download": ("off", "loss"),
    "churn": ("off", "loss"),
    "forwarding": ("off", "loss"),
    "sockets": ("empty", "difference"),
}


class Spread:
    """The median of samples, and between which two values half of them lie."""

    def __init__(self, samples):
        self.samples = list(samples)
        self.median = statistics.median(self.samples)
        if len(self.samples) == 1:
            self.low = self.high = self.samples[0]
        else:
            self.low, _, self.high = statistics.quantiles(self.samples, n=4, method="inclusive")

    def json(self):
        return {"median": self.median, "low": self.low, "high": self.high}


def compare(samples, reference, how):
    """A sample against its pair."""
    if how == "difference":
        return [a - b for a, b in zip(samples, reference)]
    return [1 - a / b for a, b in zip(samples, reference)]


class Missing(Exception):
    """The file does not have what is asked for."""


class Results:
    """A file, as looked at by targets and tables."""

    def __init__(self, data):
        if data.get("schema") != SCHEMA:
            raise ValueError("not a file of this version: schema %r" % data.get("schema"))
        self.data = data

    def series(self, benchmark, case, subject, unit):
        for series in self.data["benchmarks"].get(benchmark, {}).get("series", []):
            if (series["case"], series["subject"], series["unit"]) == (case, subject, unit):
                return series
        raise Missing("%s: %s, %s, %s" % (benchmark, case, subject, unit))

    def samples(self, benchmark, case, subject, unit):
        return self.series(benchmark, case, subject, unit)["samples"]

    def spread(self, benchmark, case, subject, unit):
        return Spread(self.samples(benchmark, case, subject, unit))

    def against(self, benchmark, case, subject, unit):
        """The samples, each compared with its pair."""
        reference, how = REFERENCES[benchmark]
        pairs = self.samples(benchmark, case, reference, unit)
        return compare(self.samples(benchmark, case, subject, unit), pairs, how)

    def fact(self, benchmark, name):
        facts = self.data["benchmarks"].get(benchmark, {}).get("facts", {})
        if name not in facts:
            raise Missing("%s: %s" % (benchmark, name))
        return facts[name]

    def facts_ending(self, benchmark, end):
        facts = self.data["benchmarks"].get(benchmark, {}).get("facts", {})
        found = {name: value for name, value in facts.items() if name.endswith(end)}
        if not found:
            raise Missing("%s: ...%s" % (benchmark, end))
        return found

    def skipped(self, benchmark):
        """The subjects that the machine cannot have."""
        return {one["subject"] for one in self.data["benchmarks"].get(benchmark, {}).get("skipped", [])}

    def cases(self, benchmark, unit=None):
        """In the order of the file."""
        found = {}
        for series in self.data["benchmarks"].get(benchmark, {}).get("series", []):
            if unit in (None, series["unit"]):
                found[series["case"]] = True
        return list(found)

    def subjects(self, benchmark, case, unit):
        return [
            series["subject"]
            for series in self.data["benchmarks"].get(benchmark, {}).get("series", [])
            if (series["case"], series["unit"]) == (case, unit)
        ]


def summarize(name, part):
    """Adds medians, spreads and comparisons to what a benchmark wrote."""
    reference, how = REFERENCES.get(name, (None, None))
    references = {
        (series["case"], series["unit"]): series["samples"]
        for series in part["series"]
        if series["subject"] == reference
    }
    for series in part["series"]:
        series.update(Spread(series["samples"]).json())
        pairs = references.get((series["case"], series["unit"]))
        if pairs and series["subject"] != reference:
            spread = Spread(compare(series["samples"], pairs, how))
            series["against"] = {"subject": reference, "how": how, **spread.json()}
    return part
