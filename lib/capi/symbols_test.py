#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the libraries show to a program is the C API, and nothing else.

Three lists are one: the functions that the headers declare, those of exports.lds, and
the symbols of each library. netmeter.h, which is frozen, has a version of symbols for
each release that added functions, and the other headers have one of their own.
"""

import re
import subprocess
import sys
import unittest

SHARED, STATIC, EXPORTS, FROZEN, *UNSTABLE = sys.argv[1:]

# Libraries that every host has, and the system's libraries that ours uses internally.
NEEDED = r"lib(c|m|pthread|gcc_s|stdc\+\+|absl_\w+)\.so\.\d+|ld-linux\S+"


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()


def declared(*headers):
    found = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        found += re.findall(r"\b(netmeter_\w+)\(", text)
    return sorted(found)


def exported():
    """Each function of exports.lds, with its node."""
    with open(EXPORTS, encoding="utf-8") as file:
        nodes = re.findall(r"^(NETMETER_\S+)\n\{(.*?)^\}", file.read(), re.M | re.S)
    return sorted((name, node) for node, body in nodes for name in re.findall(r"^ +(netmeter_\w+);$", body, re.M))


def symbols(*options):
    found = []
    for line in run("nm", "--format=posix", *options).split("\n"):
        fields = line.split()
        if len(fields) >= 2 and not line.endswith(":"):
            found.append((fields[0], fields[1]))
    return found


class SymbolsTest(unittest.TestCase):
    maxDiff = None

    def test_the_list_of_exports_is_the_header(self):
        for pattern, headers in ((r"NETMETER_1\.\d+", [FROZEN]), (r"NETMETER_UNSTABLE_1\.\d+", UNSTABLE)):
            self.assertEqual([name for name, node in exported() if re.fullmatch(pattern, node)], declared(*headers))
        self.assertGreater(len(declared(FROZEN)), 15)

    def test_the_shared_library_exports_the_header(self):
        names = [name for name, kind in symbols("-D", "--defined-only", SHARED) if kind != "A"]
        self.assertEqual(sorted(names), sorted("%s@@%s" % one for one in exported()))

    def test_the_static_library_has_no_other_global_symbol(self):
        names = [name for name, _ in symbols("--defined-only", "--extern-only", STATIC)]
        self.assertEqual(sorted(names), declared(FROZEN, *UNSTABLE))

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
