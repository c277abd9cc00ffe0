#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the tables of matrix.sh from the logs of its lanes.

report.py --expectations FILE --out DIR LANE...

Writes DIR/summary: "<passed> <failed>", and DIR/failures: a line that begins
with "FAILED" for each failure, with the end of what it printed indented below.
One test is one case on one kernel.
Whatever is not seen to pass has failed: a skipped case, one that was running
at the end of the log, one that never began, an expectation that doesn't hold.
Exits with 0 if nothing failed.
"""

import argparse
import collections
import fnmatch
import json
import os
import re
import sys

BEGIN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([\w./]+)")
LINES = 40  # of a failure's output
TOTAL = re.compile(r"\[==========\] Running (\d+) tests? from")


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


class Lane:
    """What one kernel's log says."""

    def __init__(self, name, out):
        self.name = name
        self.seconds = read(out, name, "seconds") or "0"
        self.notes = [line for line in read(out, name, "note").split("\n") if line]
        self.gone = os.path.exists(os.path.join(out, name, "gone"))
        self.log = read(out, name, "log")
        self.cases = collections.OrderedDict()
        self.output = {}  # case -> its lines
        self.problems = []  # failures that are no case's
        self.features = {}  # name -> (yes, no or another word; reason)
        self.release = "-"
        if self.log:
            self.parse()
        elif not self.gone:
            self.problems.append("no kernel")

    def parse(self):
        match = re.search(r"^@@release (\S+)", self.log, re.M)
        self.release = match.group(1) if match else "-"
        for step in ("load", "unload"):
            match = re.search(rf"^@@{step} (\d+)", self.log, re.M)
            if not match or match.group(1) != "0":
                self.problems.append(f"netmeter-loader {step} failed")
        match = re.search(r"^@@status-begin\n(.*?)^@@status-end", self.log, re.M | re.S)
        try:
            status = json.loads(match.group(1)) if match else {}
            self.parse_features(status.get("features"))
            for direction, adds in status.get("adds", {}).items():
                self.features["adds_" + direction] = (adds, "")
        except (ValueError, AttributeError, TypeError) as error:
            self.problems.append(f"status --json: {error}")

        for name, has in re.findall(r"^@@kernel (\w+) (yes|no)", self.log, re.M):
            self.features["kernel_" + name] = (has, "the kernel was built without")

        _, begun, live = self.log.partition("@@live-begin")
        output = []
        for line in live.split("\n"):
            match = BEGIN.search(line)
            if match:
                self.cases[match.group(1)] = "CRASH"
                output = self.output[match.group(1)] = []
            if not line.startswith("@@"):
                output.append(line)
            # At the end gtest lists the failed ones again.
            match = END.search(line)
            if match and self.cases.get(match.group(2)) == "CRASH":
                self.cases[match.group(2)] = {"OK": "ok", "FAILED": "FAIL", "SKIPPED": "SKIP"}[match.group(1)]
                output = []
        total = sum(int(number) for number in TOTAL.findall(live))  # a line of each program
        if len(self.cases) < total:
            self.problems += ["a case was never begun"] * (total - len(self.cases))
        match = re.search(r"^@@live-end (\d+)", live, re.M)
        status = match.group(1) if match else "none"
        if status == "124":
            self.problems.append("timed out")
        elif status != "0" and all(case == "ok" for case in self.cases.values()):
            self.problems.append(f"live tests: exit status {status}")
        if not self.cases:
            self.problems.append("no live test ran")

    def parse_features(self, features):
        if features is None:
            raise ValueError("no features")
        for name, value in features.items():
            self.features[name] = ("yes" if value["active"] else "no", value["reason"])

    def passed(self):
        return sum(case == "ok" for case in self.cases.values())

    def failed(self):
        return len(self.cases) - self.passed() + len(self.problems)

    def failures(self):
        """A line for each failure, and the end of what it printed."""
        result = []
        for case, verdict in self.cases.items():
            if verdict != "ok":
                result.append(f"FAILED {self.name}: {case}" + ("" if verdict == "FAIL" else f" ({verdict})"))
                result += ["    " + line for line in self.output[case][-LINES:]]
        for problem, times in collections.Counter(self.problems).items():
            result.append(f"FAILED {self.name}: {problem}" + (f" ({times} of them)" if times > 1 else ""))
        if self.problems and self.log:
            lines = [line for line in self.log.split("\n") if not line.startswith("@@accuracy")]
            result += ["    " + line for line in lines[-LINES:]]
        return result

    def verdict(self):
        if self.failed():
            return "FAILED"
        if self.gone:
            return "SUITE GONE (ran on the kernel kept)" if self.log else "SUITE GONE"
        return "ok"


def expectations(path):
    result = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) != 3:
                sys.exit(f"report.py: {path}:{number}: not KERNELS FEATURE EXPECTED")
            result.append(tuple(words))
    return result


def check(lanes, expected):
    """Adds a problem for each expectation that doesn't hold."""
    wrong = set()
    for lane in lanes:
        if not lane.features:
            continue  # reported already
        wanted = {feature: value for pattern, feature, value in expected if fnmatch.fnmatchcase(lane.name, pattern)}
        for feature, value in wanted.items():
            if feature not in lane.features:
                lane.problems.append(f"expected feature {feature} is not in the status")
            elif lane.features[feature][0] != value:
                reason = lane.features[feature][1]
                lane.problems.append(
                    f"{feature} expected {value}, but is {lane.features[feature][0]}" + (f": {reason}" if reason else "")
                )
                wrong.add((lane.name, feature))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--expectations", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("lanes", nargs="+")
    arguments = parser.parse_args()
    lanes = [Lane(name, arguments.out) for name in arguments.lanes]
    wrong = check(lanes, expectations(arguments.expectations))
    lanes.sort(key=lambda lane: (lane.name != "host", [int(n) for n in re.findall(r"\d+", lane.name)], lane.name))

    print("\nKernels")
    rows = [["kernel", "release", "verdict", "passed", "failed", "seconds"]]
    for lane in lanes:
        rows.append([lane.name, lane.release, lane.verdict(), str(lane.passed()), str(lane.failed()), lane.seconds])
    table(rows)
    for lane in lanes:
        if lane.gone:
            print(f"\n  *** SUITE GONE: Debian no longer carries the kernel {lane.name} ***")
        for note in lane.notes + list(collections.OrderedDict.fromkeys(lane.problems)):
            print(f"  {lane.name}: {note}")

    ran = [lane for lane in lanes if lane.log]
    cases = list(collections.OrderedDict.fromkeys(case for lane in ran for case in lane.cases))
    if cases:
        print("\nLive tests")
        rows = [["case"] + [lane.name for lane in ran]]
        rows += [[case] + [lane.cases.get(case, "-") for lane in ran] for case in cases]
        table(rows)
    features = list(collections.OrderedDict.fromkeys(name for lane in ran for name in lane.features))
    if features:
        print("\nActive features (!: not as expected)")
        rows = [["feature"] + [lane.name for lane in ran]]
        for name in features:
            row = [name]
            for lane in ran:
                active = lane.features.get(name, ("-",))[0]
                row.append(active + ("!" if (lane.name, name) in wrong else ""))
            rows.append(row)
        table(rows)
        reasons = collections.OrderedDict()
        for lane in ran:
            for name, (active, reason) in lane.features.items():
                if active == "no":
                    reasons.setdefault((name, reason or "no reason given"), []).append(lane.name)
        for (name, reason), names in reasons.items():
            print(f"  {name} is not active on {', '.join(names)}: {reason}")
    print()

    passed = sum(lane.passed() for lane in lanes)
    failed = sum(lane.failed() for lane in lanes)
    with open(os.path.join(arguments.out, "summary"), "w", encoding="utf-8") as file:
        file.write(f"{passed} {failed}\n")
    with open(os.path.join(arguments.out, "failures"), "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for lane in lanes for line in lane.failures())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
