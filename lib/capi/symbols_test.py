#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the libraries show to a program is the C API, and nothing else.

Three lists are one: the functions that netmeter.h declares, those of exports.lds, and
the symbols of each library.
"""

import re
import subprocess
import sys
import unittest

SHARED, STATIC, EXPORTS, HEADER = sys.argv[1:5]

# Libraries that every host has, and the system's libraries that ours uses internally.
NEEDED = r"lib(c|m|gcc_s|stdc\+\+|absl_\w+)\.so\.\d+|ld-linux\S+"


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()


def declared():
    with open(HEADER, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return sorted(re.findall(r"\b(netmeter_\w+)\(", text))


def symbols(*options):
    """The names, without versions."""
    found = []
    for line in run("nm", "--format=posix", *options).split("\n"):
        fields = line.split()
        if len(fields) >= 2 and not line.endswith(":"):
            found.append((fields[0].split("@")[0], fields[1]))
    return found


class SymbolsTest(unittest.TestCase):
    maxDiff = None

    def test_the_list_of_exports_is_the_header(self):
        with open(EXPORTS, encoding="utf-8") as file:
            names = re.findall(r"^ +(netmeter_\w+);$", file.read(), re.M)
        self.assertEqual(names, declared())
        self.assertGreater(len(names), 15)

    def test_the_shared_library_exports_the_header(self):
        names = [name for name, kind in symbols("-D", "--defined-only", SHARED) if kind != "A"]
        self.assertEqual(sorted(names), declared())
        versions = re.findall(r"netmeter_open@@(\S+)", run("nm", "-D", SHARED))
        self.assertEqual(versions, ["NETMETER_1.0"])

    def test_the_static_library_has_no_other_global_symbol(self):
        names = [name for name, _ in symbols("--defined-only", "--extern-only", STATIC)]
        self.assertEqual(sorted(names), declared())

    def test_the_static_library_asks_for_no_abseil(self):
        # Weak symbols (w) may be missing.
        wanted = [name for name, kind in symbols("--undefined-only", STATIC) if kind == "U"]
        self.assertIn("setsockopt", wanted)
        self.assertEqual([name for name in wanted if re.search("absl|bpf_|netmeter", name)], [])

    def test_the_shared_library_needs_no_more_than_it_says(self):
        text = run("readelf", "-d", SHARED)
        self.assertEqual(re.findall(r"SONAME.*\[(.*)\]", text), ["libnetmeter.so.1"])
        for needed in re.findall(r"NEEDED.*\[(.*)\]", text):
            self.assertRegex(needed, "^(%s)$" % NEEDED)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
