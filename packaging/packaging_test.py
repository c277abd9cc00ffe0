#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What can be said of the packages without making them: versions and symbols agree, the
rules for Prometheus do what they say, and bash completes what the programs know.

packaging/make_debs.sh and packaging/test_debs.sh make and try the packages.
"""

import os
import re
import subprocess
import tempfile
import unittest

LOADER = os.path.abspath("lib/loader/netmeter-loader")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def packaged_units():
    """{name: its source}, as dh installs them: PACKAGE.NAME.service is NAME.service."""
    folder = "packaging/debian"
    names = sorted(name for name in os.listdir(folder) if name.endswith((".service", ".socket", ".timer")))
    return {re.sub(r"^netmeter\.(?=netmeter-)", "", name): os.path.join(folder, name) for name in names}


class PackagingTest(unittest.TestCase):
    maxDiff = None

    def test_the_package_is_of_the_librarys_version(self):
        version = re.search(r'kVersion\[\] = "(.*)"', read("lib/core/version.h")).group(1)
        changelog = read("packaging/debian/changelog")
        self.assertEqual(re.match(r"netmeter \((.*)-\d+\)", changelog).group(1), version)

    def test_the_packages_symbols_are_those_of_the_library(self):
        exported = re.findall(r"^ +(netmeter_\w+);$", read("lib/capi/exports.lds"), re.M)
        packaged = re.findall(r"^ (netmeter_\w+)@NETMETER_1\.0 ", read("packaging/debian/libnetmeter1.symbols"), re.M)
        self.assertEqual(packaged, exported)
        self.assertGreater(len(packaged), 15)

    def test_prometheus_rules_do_what_they_say(self):
        folder = "packaging/prometheus"
        self.assertEqual(run("promtool", "check", "rules", "netmeter.rules.yml", cwd=folder)[0], 0)
        self.assertEqual(run("promtool", "test", "rules", "netmeter.rules_test.yml", cwd=folder), (0, "Unit Testing:  netmeter.rules_test.yml\n  SUCCESS\n\n"))

    def test_every_rule_is_tested_and_about_metrics_that_exist(self):
        rules, tests, metrics = (
            read(name)
            for name in (
                "packaging/prometheus/netmeter.rules.yml",
                "packaging/prometheus/netmeter.rules_test.yml",
                "include/netmeter/publish.h",
            )
        )
        names = re.findall(r"^ +- (?:record|alert): (\S+)$", rules, re.M)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn(name, tests)
        for metric in re.findall(r"(?<!:)\bnetmeter_\w+(?=[\[{ ]|$)", re.sub(r"#.*|description:.*", "", rules), re.M):
            if not metric.endswith("rate5m"):
                self.assertRegex(metrics, r"\b%s\b" % metric)

    def test_systemd_takes_the_units(self):
        # As the package names them, and with programs that are here.
        with tempfile.TemporaryDirectory() as folder:
            units = []
            for name, source in packaged_units().items():
                units.append(os.path.join(folder, name))
                with open(units[-1], "w", encoding="utf-8") as file:
                    file.write(re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", read(source), flags=re.M))
            self.assertGreater(len(units), 8)
            self.assertEqual(run("systemd-analyze", "verify", "--man=no", *units), (0, ""))
            for unit in units:
                if unit.endswith(".timer"):
                    self.assertIn(unit.replace(".timer", ".service"), units)

    def test_the_rules_name_each_unit(self):
        rules = read("packaging/debian/rules")
        named = set(re.findall(r"--name=(netmeter\S*)", rules)) | {"netmeter-exporter"}
        self.assertEqual(named, {os.path.splitext(name)[0] for name in packaged_units()})

    def complete(self, *words):
        script = 'source packaging/completion/netmeter.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _netmeter "$1"; printf "%s\\n" "${COMPREPLY[@]}"'
        status, output = run("bash", "-c", script, "bash", LOADER, *words)
        self.assertEqual(status, 0, output)
        return output.split()

    def test_bash_completes_commands_and_options(self):
        commands = self.complete("")
        self.assertIn("load", commands)
        self.assertIn("serve-fds", commands)
        self.assertEqual(self.complete("unl"), ["unload"])
        self.assertIn("--version", self.complete("--"))
        self.assertEqual(self.complete("load", "--max-s"), ["--max-series"])
        self.assertEqual(self.complete("load", "--config", "lib/loa"), ["lib/loader"])


if __name__ == "__main__":
    unittest.main()
