#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the tables of accuracy.sh from the logs of matrix.sh.

report.py [--json FILE] [--minimum ROWS] DIR: the --out of matrix.sh

live_test writes a row as one line of JSON, and lane.sh puts "@@accuracy"
before it:

  scenario, hop   the test, and the interface of its laboratory (lab.h)
  direction       sent or received, by the measured side
  expected        bytes that the interface counted, without layer-2 headers
  ours            bytes in the series of the meter
  remainder       by kind of packet: bytes that the interface saw and no hook,
                  or with a minus, the other way round; counted by the capture
  to              whose bytes: kind, name, destination, bytes
  failed          whether the test had failed by then

or, where the kernel cannot do it: scenario, absent (what was tried).

FILE gets {"rows": [...], "absent": [...], "summary": {...}}. A row there also
has kernel, difference (ours - expected) and verdict. Exits with 0 if no row is
wrong and each kernel has as many rows as asked for.
"""

import argparse
import collections
import json
import os
import sys

MARK = "@@accuracy "
NAMES_SHOWN = 2


def verdict(row):
    explained = -sum(row["remainder"].values())
    if row["failed"] or row["difference"] != explained:
        return "WRONG"
    return "explained" if row["remainder"] else "exact"


def read(path, kernel):
    rows, absent, cut = [], [], 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.startswith(MARK):
                continue
            try:
                row = {"kernel": kernel, **json.loads(line[len(MARK) :])}
            except ValueError:  # the machine ended in the middle of it
                cut += 1
                continue
            if "absent" in row:
                absent.append(row)
                continue
            row["difference"] = row["ours"] - row["expected"]
            row["verdict"] = verdict(row)
            rows.append(row)
    return rows, absent, cut


def owners(row):
    """Whose bytes in one cell: the largest first."""
    to = sorted(row["to"], key=lambda owner: -owner["bytes"])
    cells = []
    for owner in to[:NAMES_SHOWN]:
        name = owner["kind"] if owner["name"] == owner["kind"] else f"{owner['kind']} {owner['name']}"
        destination = f" to {owner['destination']}" if owner["destination"] else ""
        cells.append(name + destination + (f" {owner['bytes']}" if len(to) > 1 else ""))
    if len(to) > NAMES_SHOWN:
        cells.append(f"and {len(to) - NAMES_SHOWN} more")
    return "; ".join(cells) or "-"


def print_table(rows):
    table = [["scenario", "at", "direction", "expected", "ours", "difference", "remainder", "to whom", "verdict"]]
    for row in rows:
        remainder = ", ".join(f"{name} {size}" for name, size in row["remainder"].items())
        numbers = [str(row[key]) for key in ("expected", "ours", "difference")]
        table.append([row["scenario"], row["hop"], row["direction"], *numbers, remainder or "-", owners(row), row["verdict"]])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        cells = [cell.rjust(width) if 3 <= i <= 5 else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--minimum", type=int, default=1)
    parser.add_argument("lanes")
    arguments = parser.parse_args()

    everything, nothing, short = [], [], []
    for kernel in sorted(os.listdir(arguments.lanes)):
        log = os.path.join(arguments.lanes, kernel, "log")
        if not os.path.exists(log):
            continue
        rows, absent, cut = read(log, kernel)
        print(f"\nOn {kernel}")
        print_table(rows)
        # Lanes that run fewer tests have a + or - in their names (matrix.sh).
        minimum = 1 if set(kernel) & set("+-") else arguments.minimum
        if len(rows) < minimum:
            short.append(f"{kernel}: {len(rows)} rows, but at least {minimum} are expected: something did not run")
        if cut:
            short.append(f"{kernel}: {cut} rows that are no rows, in {log}: it ended too early")
        everything += rows
        nothing += absent
    if nothing:
        print("\nNot on this kernel")
        for row in nothing:
            print(f"  {row['kernel']}: {row['scenario']}: {row['absent']}")
    print("".join(f"\n{line}" for line in short))

    counts = collections.Counter(row["verdict"] for row in everything)
    summary = {"rows": len(everything)}
    summary.update((word.lower(), counts[word]) for word in ("exact", "explained", "WRONG"))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": everything, "absent": nothing, "summary": summary}, file, indent=1)
            file.write("\n")
    print("{rows} rows, {exact} exact, {explained} explained, {wrong} wrong".format(**summary))
    return 1 if counts["WRONG"] or short or not everything else 0


if __name__ == "__main__":
    sys.exit(main())
