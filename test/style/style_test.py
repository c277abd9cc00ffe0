#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a review need not look at: the layout and the size of every source file.

- clang-format changes no C or C++ file (.clang-format).
- shellcheck finds nothing in any shell script.
- No source file is longer than 700 lines, no function longer than 80.
- No comment goes beyond column 90: clang-format does not break them.

The test reads the tree itself, not a copy, so that a new file cannot be
forgotten. It also runs without Bazel: test/style/style_test.py.

A function of C or C++ is found by its layout. clang-format puts the brace that
opens a body at the end of a line, and the one that closes it on a line of its
own with the indentation of the first line. Hence no parser is needed.
"""

import ast
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

MOST_LINES = 700
MOST_FUNCTION_LINES = 80
MOST_COMMENT_COLUMNS = 90

# Functions that are tables: one row after another, and nothing to take out.
# "file: function": why.
TABLES = {
    "test/program/packets_test.cc: PlainPackets": "a row per packet",
}

CPP = (".c", ".cc", ".h")
SHELL = (".sh",)  # or a file without an ending that begins with "#!/bin/bash"
OTHERS = (".bzl", ".go", ".py", ".pyi")

# A line that is a comment, or ends with one. A URL has no blank after its slashes.
CPP_COMMENT = re.compile(r"^\s*/?\*|//\s|/\*\s")
HASH_COMMENT = re.compile(r"^\s*#")

# Blocks that are no function: the first word of the statement that opens them.
NO_FUNCTION = re.compile(
    r"(namespace|class|struct|enum|union|extern|if|for|while|do|else|switch|case|default|try|return|#)\b|\}|\["
)


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


def cpp_functions(lines):
    """Yields (name, first line, number of lines) for C and C++. What stands in a
    function (a lambda, a block) belongs to it."""
    end = 0
    for number, line in enumerate(lines):
        if number < end or not line.endswith("{") or line.lstrip().startswith(("//", "*", "}")):
            continue
        first = number
        # Back to where the statement begins.
        while first > 0 and not re.search(r"[;{}:>]$|^\s*(//|#|/?\*|$)|\\$", lines[first - 1]):
            first -= 1
        indent = re.match(" *", lines[first]).group()
        statement = " ".join(part.strip() for part in lines[first : number + 1])
        if NO_FUNCTION.match(statement) or "(" not in statement or re.search(r"= ?(\w|<|>|:)*\{$", statement):
            continue
        end = next((last for last in range(number + 1, len(lines)) if lines[last].startswith(indent + "}")), 0) + 1
        yield statement_name(statement), first + 1, end - first


def statement_name(statement):
    """The function's name; a test's is in the parentheses of its macro."""
    test = re.match(r"TEST(?:_[FP])?\((\w+), (\w+)\)", statement)
    if test:
        return ".".join(test.groups())
    names = re.findall(r"([\w:~]+) ?\(", statement)
    return next((name for name in names if name not in ("SEC", "__attribute__", "alignas")), "?")


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def shell_functions(lines):
    for number, line in enumerate(lines):
        match = re.match(r"( *)(\w+)\(\) [{(]$", line)
        if match:
            for last in range(number + 1, len(lines)):
                if re.match(match.group(1) + r"[})]", lines[last]):
                    yield match.group(2), number + 1, last - number + 1
                    break


def functions(path):
    text = read(path)
    if path.endswith(CPP):
        return cpp_functions(text.split("\n"))
    if path.endswith((".py", ".pyi")):
        return python_functions(text)
    return shell_functions(text.split("\n")) if is_shell(path) else ()


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
        status, output = run("clang-format-14", "--dry-run", "-Werror", *files)
        self.assertEqual((status, output), (0, ""))

    def test_shellcheck_finds_nothing(self):
        status, output = run("shellcheck", *(path for path in self.files if is_shell(path)))
        self.assertEqual((status, output), (0, ""))

    def test_no_file_is_longer_than_700_lines(self):
        lengths = {path: read(path).count("\n") for path in self.files}
        self.assertEqual({path: length for path, length in lengths.items() if length > MOST_LINES}, {})

    def test_no_comment_goes_beyond_column_90(self):
        wide = {path: list(wide_comments(path)) for path in self.files}
        self.assertEqual({path: lines for path, lines in wide.items() if lines}, {})

    def test_no_function_is_longer_than_80_lines(self):
        long, number = {}, 0
        for path in self.files:
            for name, line, length in functions(path):
                number += 1
                if length > MOST_FUNCTION_LINES:
                    long["%s: %s" % (path, name)] = "%d lines from line %d" % (length, line)
        self.assertEqual({where: what for where, what in long.items() if where not in TABLES}, {})
        self.assertEqual([where for where in TABLES if where not in long], [], "not long any more")
        # Else a change of .clang-format has made the search blind.
        self.assertGreater(number, 1200)


if __name__ == "__main__":
    unittest.main()
