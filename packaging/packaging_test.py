#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What can be said of the packages without making them: versions and symbols agree, the
rules for Prometheus do what they say, the dashboard asks for metrics that there are, and
bash completes what the programs know. test/apps/metrics/dashboard_test.py runs its queries.

packaging/make_debs.sh and packaging/test_debs.sh make and try the packages.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest

LOADER = os.path.abspath("lib/netmeter_loader/netmeter-loader")
EXPORTER = os.path.abspath("lib/apps/exporter/netmeter-exporter")

DASHBOARD = "packaging/grafana/netmeter.json"
# Of netmeter cost --prometheus; all others are in publish.h.
COST = ("netmeter_bpf_run_seconds_total", "netmeter_bpf_runs_total", "netmeter_bpf_map_bytes")

# In which order Debian 12 brings the network up on a machine in a cloud: what matters
# of the units of cloud-init 22.4.2 and ifupdown 0.8.41.
CLOUD_UNITS = {
    "cloud-init.service": """[Unit]
DefaultDependencies=no
After=networking.service
Before=network-online.target sshd-keygen.service sysinit.target shutdown.target
Conflicts=shutdown.target
[Service]
Type=oneshot
ExecStart=/bin/true
""",
    "networking.service": """[Unit]
DefaultDependencies=no
After=local-fs.target network-pre.target apparmor.service systemd-sysctl.service systemd-modules-load.service
Before=network.target shutdown.target network-online.target
Conflicts=shutdown.target
[Service]
Type=oneshot
ExecStart=/bin/true
""",
    "boot.target": """[Unit]
Requires=sysinit.target netmeter.service networking.service cloud-init.service
""",
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def queries_of(dashboard):
    """Of its panels, its variables and its annotations."""
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return panels + [variable["query"] for variable in dashboard["templating"]["list"]] + [
        note["expr"] for note in dashboard["annotations"]["list"]
    ]


def packaged_units():
    """{name: its source}, as dh installs them: PACKAGE.NAME.service is NAME.service."""
    folder = "packaging/debian"
    names = sorted(name for name in os.listdir(folder) if name.endswith((".service", ".socket", ".timer")))
    return {re.sub(r"^netmeter(-loader)?\.(?=netmeter)", "", name): os.path.join(folder, name) for name in names}


class PackagingTest(unittest.TestCase):
    maxDiff = None

    def test_the_packages_symbols_are_those_of_the_library(self):
        nodes = re.findall(r"^(NETMETER_\S+)\n\{(.*?)^\}", read("lib/capi/exports.lds"), re.M | re.S)
        exported = {node: re.findall(r"^ +(netmeter_\w+);$", body, re.M) for node, body in nodes}
        packaged = {node: [] for node in exported}
        for name, node in re.findall(r"^ (netmeter_\w+)@(\S+) ", read("packaging/debian/libnetmeter1.symbols"), re.M):
            packaged[node].append(name)
        self.assertEqual(packaged, exported)
        self.assertGreater(len(packaged["NETMETER_1.0"]), 15)

    # The text ended in the middle of a sentence.
    def test_the_package_has_the_whole_licence(self):
        licence = re.search(r"^Redistribution .*?(?=^---)", read("LICENSE"), re.M | re.S).group(0).strip()
        self.assertTrue(licence.endswith("SUCH DAMAGE."))
        paragraph = re.search(r"^License: BSD-3-Clause\n((?: .*\n)+)", read("packaging/debian/copyright"), re.M).group(1)
        # As deb-copyright has it: a space before each line, and a dot for an empty one.
        self.assertEqual(re.sub(r"^ (\.$)?", "", paragraph, flags=re.M).strip(), licence)

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
        asked = set(re.findall(r"(?<!:)\bnetmeter_\w+(?=[\[{ )]|$)", re.sub(r"#.*|description:.*", "", rules), re.M))
        self.assertGreater(len(asked), 12)
        for metric in asked.difference(COST):
            self.assertRegex(metrics, r"\b%s\b" % re.sub("_bucket$", "", metric))
        # Those of cost are the loader's, and the rules say what they need.
        self.assertEqual(asked & set(COST), {"netmeter_bpf_run_seconds_total", "netmeter_bpf_map_bytes"})

    def test_the_dashboard_is_about_metrics_that_exist(self):
        metrics, dashboard = read("include/netmeter/publish.h"), json.loads(read(DASHBOARD))
        asked = set(re.findall(r"\b(?:netmeter|magma|linux)_\w+", " ".join(queries_of(dashboard))))
        self.assertGreater(len(asked), 20)
        for metric in asked.difference(COST):
            self.assertRegex(metrics, r"\b%s\b" % re.sub("_bucket$", "", metric))
        # One dashboard for all alerts: what each is about can be looked at.
        for alert in re.findall(r"- alert: (\S+)\n +expr: (?:>-\n)?((?:.|\n)*?) {8}(?:for|labels):", read("packaging/prometheus/netmeter.rules.yml")):
            for metric in re.findall(r"(?<!:)\bnetmeter_\w+(?=[\[{ )])", alert[1]):
                self.assertIn(metric, asked, alert[0])

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

    # The branch of Magma, as packaging/magma/apply.sh makes it, uses files, units and
    # commands of these packages.
    def test_the_patch_for_magma_fits_the_packages(self):
        patch = read("packaging/magma/0001-kernsnoopd-is-netmeter-exporter.patch")
        self.assertLessEqual(patch.count("\n"), 500)
        added = "\n".join(re.findall(r"^\+(?!\+\+)(.*)", patch, re.M))
        files = read("packaging/debian/netmeter-loader.install") + read("packaging/debian/netmeter-exporter.install")
        for path in re.findall(r"usr/(?:bin|sbin|share)/netmeter\S*", added):
            self.assertIn(path.rstrip("',\""), files.split())
        ours = read("packaging/debian/netmeter-loader.netmeter.service")
        load = re.search(r"^ExecStart=(/usr/sbin/netmeter-loader load .*)", ours, re.M)[1]
        config, made = re.search(r"--config (\S+)", load)[1], "/run/netmeter-magma.yml"
        convert = "/usr/share/netmeter/magma_config.py --config %s --output %s" % (config, made)
        load = load.replace(config, made)
        commands = [("StartPre", convert), ("Start", ""), ("Start", load), ("Reload", ""), ("Reload", convert), ("Reload", load)]
        drop_in = re.search(r"\+\[Service\]\n((?:\+Exec.*\n)+)", patch)[1]
        self.assertEqual(drop_in, "".join("+Exec%s=%s\n" % command for command in commands))
        # The usage is right, and there is no meter.
        exporter = re.search(r"^ExecStart=/usr/bin/netmeter-exporter (.*)", added, re.M)[1].split()
        self.assertEqual(run(EXPORTER, *exporter, "--estimate", "--pin-dir", "/nowhere")[0], 1)
        self.assertEqual(run(EXPORTER, *exporter, "--wrong")[0], 2)

    def verify_a_boot(self, unit):
        """What systemd says of a boot with this netmeter.service, in a cloud."""
        with tempfile.TemporaryDirectory() as folder:
            unit = re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", unit, flags=re.M)
            for name, text in {**CLOUD_UNITS, "netmeter.service": unit}.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return run("systemd-analyze", "verify", "--man=no", os.path.join(folder, "boot.target"))[1]

    # With the dependencies of any service it came after sysinit.target, which came after
    # cloud-init.service, networking.service and network-pre.target, and that one
    # after netmeter.service. systemd broke the circle: it left out
    # cloud-init.service, or what is before the network.
    def test_a_boot_with_cloud_init_has_no_circle(self):
        units = [read("packaging/debian/netmeter-loader.netmeter.service")]
        for document in ("docs/operations.md", "docs/magma.md"):
            units += re.findall(r"^# /etc/systemd/system/netmeter\.service\n(\[Unit\]\n.*?)```", read(document), re.M | re.S)
        self.assertEqual(len(units), 3)
        for unit in units:
            self.assertEqual(self.verify_a_boot(unit), "", unit)
            before = re.sub(r"^(DefaultDependencies|After|Conflicts)=.*\n", "", unit, flags=re.M)
            self.assertIn("ordering cycle", self.verify_a_boot(before))

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
        self.assertIn("check", commands)
        self.assertEqual(self.complete("unl"), ["unload"])
        self.assertIn("--version", self.complete("--"))
        self.assertEqual(self.complete("load", "--max-s"), ["--max-series"])
        self.assertEqual(self.complete("load", "--config", "lib/netm"), ["lib/netmeter_loader"])
        self.assertEqual(self.complete("check", "lib/netm"), ["lib/netmeter_loader"])


if __name__ == "__main__":
    unittest.main()
