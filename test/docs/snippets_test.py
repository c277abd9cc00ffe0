#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each block of code in the documents is run, or read by the program that it is for.

A comment before a block tells which way. PATH begins at the root of the tree:

  <!-- file: PATH -->        it is the file, byte for byte. A test runs the file
  <!-- excerpt: PATH -->     it is lines of the file, less their indentation
  <!-- run by: PATH -->      that test takes it from the document and runs it
  <!-- yaml of: PROGRAM -->  it is YAML for Prometheus (promtool reads it), or for Magma
                             (Python's parser reads it)

Without a comment: bash reads `sh`, systemd-analyze the units of `ini`, SQLite runs `sql` on
the history's tables, and netmeter reads `yaml`, a configuration or budgets. A block without
a language shows a terminal. Any other block fails.
"""

import os
import re
import sqlite3
import subprocess
import tempfile
import textwrap
import unittest

import docs_test as docs
import yaml


def snippets():
    """(place, what its comment says, PATH of it, language, text) of each block."""
    for document in docs.documents():
        text = docs.read(document)
        for match in re.finditer(r"(?:^<!-- ([\w ]+): (\S+) -->\n)?^( *)```(\w*)\n(.*?)^\3```$", text, re.M | re.S):
            kind, path, _, language, body = match.groups()
            line = text.count("\n", 0, match.start(3)) + 1
            yield f"{document}:{line}", kind, path, language, textwrap.dedent(body)


def unmarked(language):
    found = [(place, body) for place, kind, _, its_language, body in snippets() if its_language == language and kind is None]
    assert found, f"no document has {language}"
    return found


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, **options)
    return done.returncode, done.stdout.decode()


class SnippetsTest(unittest.TestCase):
    maxDiff = None

    def test_each_is_read_by_something(self):
        users = {name: docs.read(name) for name in docs.tree() if name.endswith(("BUILD.bazel", ".py", ".sh"))}
        for place, kind, path, language, _ in snippets():
            with self.subTest(place=place):
                if kind in ("file", "excerpt"):
                    self.assertTrue(any(os.path.basename(path) in text for text in users.values()), f"nothing runs {path}")
                elif kind == "run by":
                    self.assertIn(os.path.basename(place.partition(":")[0]), users[path])
                elif kind == "yaml of":
                    self.assertIn(path, ("Prometheus", "Magma"))
                else:
                    self.assertIn(language, ("", "sh", "ini", "sql", "yaml"))

    def test_excerpts_are_lines_of_their_files(self):
        for place, kind, path, _, body in snippets():
            if kind == "excerpt":
                lines = docs.read(path)
                found = (textwrap.indent(body, " " * width) for width in range(13))
                self.assertTrue(any(text in lines for text in found), f"{place}: not in {path}")

    def test_bash_reads_the_commands(self):
        for place, body in unmarked("sh"):
            self.assertEqual(run("bash", "-n", "-c", body), (0, ""), place)
            # A script of the tree that is called is there.
            for path in re.findall(r"^(?:\S+ )?((?:test|packaging|examples)/\S+\.(?:sh|py))\b", body, re.M):
                self.assertTrue(path in docs.tree(), f"{place}: {path}")

    def test_systemd_reads_the_units(self):
        units = {}
        for place, body in unmarked("ini"):
            # "# /etc/systemd/system/NAME" before each; a part of a unit has none.
            parts = re.split(r"^# /etc/systemd/system/(\S+)\n", body, flags=re.M)
            if parts[0].strip():
                parts = ["", "part.service", parts[0]]
            for name, text in zip(parts[1::2], parts[2::2]):
                units.setdefault(place.partition(":")[0], []).append((os.path.basename(name.replace(".d/", "-")).replace(".conf", ".service"), text))
        for document, found in units.items():
            with tempfile.TemporaryDirectory() as folder:
                for number, (name, text) in enumerate(found):
                    path = os.path.join(folder, name if not os.path.exists(os.path.join(folder, name)) else f"{number}-{name}")
                    # The programs are not here.
                    docs.write(path, re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", text, flags=re.M))
                paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
                # One requires it.
                docs.write(os.path.join(folder, "docker.service"), "[Service]\nExecStart=/bin/true\n")
                self.assertEqual(run("systemd-analyze", "verify", "--man=no", *paths), (0, ""), document)

    def test_sqlite_runs_the_queries(self):
        schema = re.search(r'kSchema\[\] = R"\((.*?)\)"', docs.read("lib/apps/history/history.cc"), re.S).group(1)
        # As history.cc fills it in, with two of its counters.
        schema = schema.replace("$", "tx_bytes INTEGER, rx_bytes INTEGER").replace("%", "t.tx_bytes, t.rx_bytes")
        for place, body in unmarked("sql"):
            with self.subTest(place=place), sqlite3.connect(":memory:") as database:
                database.executescript(schema + body)

    def test_netmeter_reads_its_yaml(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "netmeter.yml")
            for place, body in unmarked("yaml"):
                docs.write(path, body)
                with self.subTest(place=place):
                    if "budgets:" in body:
                        # It reads them before it misses the history.
                        output = run(docs.program("netmeter"), "budget", "--budgets", path, "--database", folder + "/none")[1]
                        self.assertIn(f"no history at {folder}/none", output)
                    else:
                        status, output = run(docs.program("netmeter-loader"), "check", path)
                        self.assertEqual(status, 0, output)

    def test_others_read_their_yaml(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prometheus.yml")
            for place, kind, program, _, body in snippets():
                if kind != "yaml of":
                    continue
                self.assertIsInstance(yaml.safe_load(body), dict, place)
                if program == "Prometheus":
                    docs.write(path, body)
                    status, output = run("promtool", "check", "config", "--syntax-only", path)
                    self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
