#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a review need not look at: the layout of every source file.

- clang-format, of PyPI, changes no C or C++ file (.clang-format).
- shellcheck finds nothing in any shell script.
- No comment goes beyond column 90: clang-format does not break them.
- Includes between the rooms of lib point one way, and no room of the core includes an
  application.
- Includes between the files of bpf form no circle.
- Only the programs and the loader include bpf/internal.h: readers have abi.h.

The test reads the tree itself, not a copy, so that a new file cannot be
forgotten. It also runs without Bazel: test/style/style_test.py.
"""

import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "lib", "testing"))
import clients

# The layout depends on it, and Debian releases have different ones.
CLANG_FORMAT = "==14.0.6"
MOST_COMMENT_COLUMNS = 90

CPP = (".c", ".cc", ".h")
SHELL = (".sh",)  # or a file without an ending that begins with "#!/bin/bash"
OTHERS = (".bzl", ".go", ".py", ".pyi")

# The rooms that each room of lib may include. The core first; then the applications,
# which no room of the core includes. "apps/netmeter/": each folder of it.
ROOMS = {
    "base": (),
    "netlink": ("base",),
    "reader": ("base", "netlink"),
    "flows": ("base", "reader"),
    "publish": ("base", "netlink", "reader"),
    "capi": ("base", "reader", "publish"),
    "loader": ("base", "netlink", "reader"),
    "evict": ("base", "reader", "loader"),
    "netmeter_loader": ("base", "netlink", "loader", "evict"),
    "apps/connections": ("base", "netlink", "reader"),
    "apps/clients": ("base", "netlink"),
    "apps/history": ("base", "netlink", "reader"),
    "apps/budgets": ("base", "reader", "apps/history"),
    "apps/export": ("base", "reader", "apps/history", "apps/budgets"),
    "apps/exporter": ("base", "publish", "apps/budgets"),
    "apps/fds": ("base", "reader"),
    "apps/ipfix": ("base",),
    "apps/netmeter": ("base", "reader", "apps/clients", "apps/history"),
    "apps/netmeter/": (
        "base",
        "netlink",
        "reader",
        "apps/clients",
        "apps/history",
        "apps/budgets",
        "apps/connections",
        "apps/export",
        "apps/netmeter",
    ),
}
TESTS = re.compile(r"_test\.|^lib/testing/|/(loader_fixture|exporter_process|magma_fixture)\.")

# Only the programs and the loader share these. The tests are those of programs.
INTERNAL = re.compile(r'^#include "bpf/(internal\.h|\w+\.bpf\.h)"', re.MULTILINE)
KNOWS_INTERNAL = (
    "bpf/",
    "lib/apps/connections/first_bytes.h",
    "lib/evict/",
    "lib/loader/",
    "test/benchmark/",
    "test/fuzz/",
    "test/program/",
)

# A line that is a comment, or ends with one. A URL has no blank after its slashes.
CPP_COMMENT = re.compile(r"^\s*/?\*|//\s|/\*\s")
HASH_COMMENT = re.compile(r"^\s*#")


def source_files():
    """The paths of our source files below ROOT, in order."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        # Bazel's links are no folders for os.walk().
        folders[:] = sorted(name for name in folders if name == ".ci" or name[0] != "." and name != "build")
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and (name.endswith(CPP + SHELL + OTHERS) or is_shell(path)):
                found.append(os.path.relpath(path, ROOT))
    return found


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def is_shell(path):
    if "." in os.path.basename(path):
        return path.endswith(SHELL)
    with open(os.path.join(ROOT, path), "rb") as file:
        return re.match(rb"#!\s*/bin/(ba)?sh\b", file.read(20)) is not None


def wide_comments(path):
    """Yields "line N: M columns"."""
    comment = CPP_COMMENT if path.endswith(CPP + (".go",)) else HASH_COMMENT
    for number, line in enumerate(read(path).split("\n"), 1):
        if len(line) > MOST_COMMENT_COLUMNS and comment.search(line):
            yield "line %d: %d columns" % (number, len(line))


def run(*command):
    """The output of a program that has to be there."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False
        )
    except FileNotFoundError:
        raise AssertionError("no program %s: test/install_packages.sh installs it" % command[0]) from None
    return done.returncode, done.stdout.decode(errors="replace")


class StyleTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.files = source_files()

    def test_the_tree_was_found(self):
        self.assertIn("include/netmeter/meter.h", self.files)
        self.assertIn("test/run.sh", self.files)
        self.assertIn(".ci/run", self.files)
        self.assertGreater(len(self.files), 150)

    def test_clang_format_changes_nothing(self):
        files = [path for path in self.files if path.endswith(CPP)]
        program = os.path.join(os.path.dirname(clients.make_venv("clang-format", CLANG_FORMAT)), "clang-format")
        status, output = run(program, "--dry-run", "-Werror", *files)
        self.assertEqual((status, output), (0, ""))

    def test_shellcheck_finds_nothing(self):
        status, output = run("shellcheck", *(path for path in self.files if is_shell(path)))
        self.assertEqual((status, output), (0, ""))

    def test_no_comment_goes_beyond_column_90(self):
        wide = {path: list(wide_comments(path)) for path in self.files}
        self.assertEqual({path: lines for path, lines in wide.items() if lines}, {})

    def test_includes_between_rooms_point_one_way(self):
        def room_of(path):
            return os.path.dirname(path)[len("lib/") :]

        for path in self.files:
            if not path.startswith("lib/") or not path.endswith(CPP) or TESTS.search(path):
                continue
            room = room_of(path)
            allowed = ROOMS[re.sub(r"(?<=netmeter/).*", "", room)]
            for include in re.findall(r'^#include "(lib/[^"]+)"', read(path), re.MULTILINE):
                self.assertTrue(room_of(include) in (room, *allowed), "%s includes %s" % (path, include))

    # A file could get around it by a definition for a file that it includes below.
    def test_no_file_of_bpf_needs_a_file_that_needs_it(self):
        needs = {}
        for path in self.files:
            if path.startswith("bpf/") and path.endswith(CPP):
                text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.DOTALL)
                needs[path] = re.findall(r'^#include "(bpf/[^"]+)"', text, re.MULTILINE)
                before = text[: text.rfind("\n#include ")] if needs[path] else ""
                code = [line for line in before.split("\n") if not re.match(r"#|//|$", line)]
                self.assertEqual(code, [], "%s has code above an include" % path)
        while needs:
            lowest = [path for path in needs if not set(needs[path]) & set(needs)]
            self.assertNotEqual(lowest, [], "a circle among %s" % sorted(needs))
            for path in lowest:
                del needs[path]

    # first_bytes.h runs a parser of the programs on the host.
    def test_only_the_programs_and_the_loader_include_what_is_theirs(self):
        knows = {path for path in self.files if path.endswith(CPP) and INTERNAL.search(read(path))}
        self.assertIn("lib/loader/object.h", knows)
        self.assertEqual([path for path in sorted(knows) if not path.startswith(KNOWS_INTERNAL)], [])


if __name__ == "__main__":
    unittest.main()
