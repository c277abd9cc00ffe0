#!/usr/bin/python3
"""Stands in for Bazel's coverage tools: gcov's JSON and lcov to one lcov file.

As lcov_merger it gets --coverage_dir, as coverage_report_generator it gets
--reports_file (a list of lcov files); both write --output_file.
"""

import argparse
import collections
import glob
import gzip
import json
import os
import re


def read_gcov(path, files):
    with gzip.open(path, "rt", encoding="utf-8") as report:
        for entry in json.load(report)["files"]:
            for line in entry["lines"]:
                files[entry["file"]][line["line_number"]] += line["count"]


def read_lcov(path, files):
    name = None
    with open(path, encoding="utf-8") as report:
        for text in report:
            key, _, value = text.rstrip("\n").partition(":")
            if key == "SF":
                name = value
            elif key == "DA":
                number, count = value.split(",")[:2]
                files[name][int(number)] += int(count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--coverage_dir")
    parser.add_argument("--reports_file")
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--filter_sources", action="append", default=[])
    args, _ = parser.parse_known_args()
    files = collections.defaultdict(collections.Counter)
    if args.coverage_dir:
        for path in glob.glob(args.coverage_dir + "/**/*.gcov.json.gz", recursive=True):
            read_gcov(path, files)
    if args.reports_file:
        with open(args.reports_file, encoding="utf-8") as reports:
            for path in reports.read().split():
                if os.path.exists(path):
                    read_lcov(path, files)
    skip = re.compile("|".join(args.filter_sources) or "$^")
    with open(args.output_file, "w", encoding="utf-8") as out:
        for name in sorted(files):
            if os.path.isabs(name) or skip.fullmatch(name):
                continue
            lines = files[name]
            out.write(f"SF:{name}\n")
            for number in sorted(lines):
                out.write(f"DA:{number},{lines[number]}\n")
            hit = sum(1 for count in lines.values() if count)
            out.write(f"LH:{hit}\nLF:{len(lines)}\nend_of_record\n")


if __name__ == "__main__":
    main()
