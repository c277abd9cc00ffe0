# SPDX-License-Identifier: BSD-3-Clause
"""Every benchmark, in short: they run, their file has what summary.py says, the
targets find their figures in it, and the page can be made of it. No figure is
looked at but what is exact, the counts, and what crafted bytes cost at most."""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import benchmark
import report
import summary
import targets

# What cannot be had on every machine, by subject: packages that need not be
# installed, hooks that the kernel need not have, and code that it may hide.
OPTIONAL = {"nethogs", "tcpdump", "kernsnoopd", "netobserv", "tc", "tc, egress", "netmeter, claimed adds"}


class SignalTest(unittest.TestCase):
    def test_a_signal_ends_all_of_it(self):
        # Its handler once waited for the process that the main program was
        # waiting for, and both waited for good.
        command = [sys.executable, "test/benchmark/benchmark.py", "throughput"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                end = time.monotonic() + 60
                while not self.cgroups():
                    self.assertIsNone(process.poll())
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.1)
                time.sleep(1)
                process.terminate()
                process.communicate(timeout=30)  # no process keeps the pipe open
                self.assertEqual(process.returncode, 128 + signal.SIGTERM)
            finally:
                process.kill()
        self.assertEqual(self.cgroups(), [])
        self.assertEqual(glob.glob("/tmp/nm-bench-*"), [])

    @staticmethod
    def cgroups():
        with open("/proc/mounts", encoding="utf-8") as mounts:
            roots = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
        return glob.glob(roots[0] + "/nm-bench-throughput-*")


class BenchmarkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "all.json")
            # This build by its files, too, which shall count the same.
            command = [sys.executable, "test/benchmark/benchmark.py", "all", "--smoke", "--json", path]
            command += ["--object", "object=" + os.path.abspath("bpf/netmeter.bpf.o")]
            command += ["--loader", "loader=" + os.path.abspath("lib/netmeter_loader/netmeter-loader")]
            subprocess.run(command, check=True, timeout=150)
            with open(path, encoding="utf-8") as file:
                cls.data = json.load(file)
        cls.results = summary.Results(cls.data)

    def test_every_benchmark_has_samples_or_facts(self):
        self.assertEqual(list(self.data["benchmarks"]), list(benchmark.BENCHMARKS))
        self.assertTrue(self.data["smoke"])
        for name, part in self.data["benchmarks"].items():
            self.assertTrue(part["series"], name)
            for series in part["series"]:
                self.assertTrue(series["samples"], (name, series["case"], series["subject"]))
                self.assertLessEqual(series["low"], series["median"])
                self.assertLessEqual(series["median"], series["high"])
                self.assertIn(series["better"], ("less", "more"))

    def test_only_what_is_optional_is_skipped(self):
        several = os.sysconf("SC_NPROCESSORS_ONLN") > 1
        for name, part in self.data["benchmarks"].items():
            for skipped in part["skipped"]:
                if several or skipped["why"] != "only one CPU":
                    self.assertIn(skipped["subject"], OPTIONAL, (name, skipped))

    def test_what_is_counted_is_exact(self):
        for name in ("IPv4", "IPv6"):
            self.assertEqual(self.results.fact("forwarding", name + ": runs for forwarded packets"), 0)
        # The server left the cgroup before it listened: "both ends" was the client alone.
        client, both = (
            self.results.fact("churn", place + ": counted packets of a connection") for place in ("veth", "veth, both ends")
        )
        self.assertGreater(both, 1.8 * client)
        # Offloads join packets before they are counted.
        whole, joined, single = (
            self.results.fact("download", link + ": counted packets of a megabyte") for link in ("TSO and GRO", "GRO alone", "neither")
        )
        self.assertLess(max(whole, joined), single / 2)
        # What forwarded packets cost with uplinks is beside what they would cost by tc.
        for case in ("forwarded/udp", "forwarded/udp, 1,000 flows", "local/udp"):
            subjects = set(self.results.subjects("forwarding", case, "packets/s"))
            self.assertLessEqual({"netmeter, uplinks", "netmeter, clients", "netmeter, forwarded flows"}, subjects)
            if case != "forwarded/udp, 1,000 flows":
                self.assertEqual({"tc", "tc, egress"} - subjects - self.results.skipped("forwarding"), set())
        for value in self.results.facts_ending("sockets", "missing in the counters").values():
            self.assertEqual(value, 0)
        missing = self.results.facts_ending("flows", " missing")
        self.assertEqual(set(missing.values()), {0}, missing)
        for value in self.results.facts_ending("read", ": system calls").values():
            self.assertEqual(value, 0)

    def test_other_builds_are_measured_too(self):
        self.assertLessEqual({"netmeter", "object", "loader"}, set(self.results.subjects("churn", "veth/churn", "connections/s")))

    def test_a_connection_is_measured_by_parts(self):
        subjects = {"off", "empty", "empty, 6 hooks", "netmeter", "object", "loader", "shared hash", "systemd"}
        cases = self.results.cases("ablate", "us more")
        self.assertEqual(cases, [p + e for p in ("veth, ", "loopback, ") for e in ("client", "both ends")])
        runs = self.results.fact("ablate", "a connection's programs")
        for case in cases:
            self.assertEqual(subjects - set(self.results.subjects("ablate", case, "us more")), set())
            # The server's end runs nothing, unless it is in the cgroup.
            most = 5.5 if case.endswith("client") else 10.5
            for program in ("empty, 6 hooks: bm_empty_rx", "netmeter: nm_ingress", "object: nm_ingress"):
                self.assertLess(most - 1, runs[program][case + ", runs"])
                self.assertLess(runs[program][case + ", runs"], most)

    # A program that stops before the last of them ends the benchmark.
    def test_crafted_bytes_are_read_to_the_last(self):
        cases = self.results.cases("names", "us per connection")
        for protocol, most in (("TLS", 4), ("HTTP/1", 4), ("HTTP/2", 4)):
            self.assertEqual(sum(case.startswith(protocol) for case in cases), most, cases)

    # Ten times what SECURITY.md says, so that other work on the machine does not matter.
    def test_crafted_bytes_take_a_moment(self):
        crafted = [case for case in self.results.cases("names", "us per connection") if case.startswith(("TLS", "HTTP/"))]
        self.assertEqual(len(crafted), 12)
        for case in crafted:
            with self.subTest(case=case):
                samples = self.results.samples("names", case, "netmeter", "us per connection")
                self.assertLess(min(samples), 5000)

    def test_every_target_finds_its_figure(self):
        verdicts = targets.judge(self.results)
        self.assertEqual(len(verdicts), len(targets.TARGETS))
        missing = {v["what"]: v["missing"] for v in verdicts if v["verdict"] == "not run"}
        # A smoke run has fewer processes than these targets ask for, and the
        # machine has one kernel.
        kernel = self.data["machine"]["kernel"]
        here, other = "load, cold, with adoption of 200 processes", "load, cold, on Linux 5.10"
        if kernel.startswith("5.10."):
            here, other = other, here
        self.assertEqual(missing.pop(here), "load: fewer than 200 processes")
        self.assertEqual(missing.pop(other), "load: this machine has Linux " + kernel)
        self.assertEqual(missing, {})
        absent = {name for v in verdicts for name in v["absent"]}
        self.assertEqual(absent, self.results.skipped("throughput"))

    def test_the_page_has_every_target_and_every_benchmark(self):
        page = report.page([self.data, self.data])
        for what, _, _ in targets.TARGETS:
            self.assertIn("| " + what, page)
        for title, _, _ in report.SECTIONS.values():
            self.assertIn("\n## %s\n" % title, page)
        self.assertNotIn("DO NOT AGREE", page)
        self.assertNotIn("FAILED", page)

    # The bug: a benchmark that failed was left out of the file without a message.
    def test_the_page_tells_what_failed(self):
        self.assertEqual(self.data["failed"], [])
        page = report.page([self.data, {**self.data, "failed": ["scrape"]}])
        self.assertIn("\nFAILED, AND SO NOT IN EACH RUN: scrape.\n", page)

    def test_a_new_page_keeps_what_is_written_by_hand(self):
        self.assertIn("## Costs in short", report.by_hand())
        self.assertIn(report.by_hand(), report.page([self.data]))



if __name__ == "__main__":
    unittest.main()
