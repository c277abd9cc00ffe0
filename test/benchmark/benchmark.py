#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs benchmarks, one after another, and judges what they measured.

Called by test/benchmark.sh, which builds the programs first. Each benchmark is a
program of its own that writes its samples; this puts them into one file with
the machine that they are of (summary.py says what is in it), and prints the
targets with their verdicts (targets.py).
"""

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time

import report
import summary
import targets

# name -> (program, its arguments). In the order in which "all" runs them: the
# quiet ones first, and last what leaves the machine with memory to clean up.
BENCHMARKS = {
    "datapath": ("datapath", []),
    "structures": ("structures", []),
    "read": ("read", []),
    "scrape": ("scrape", []),
    "load": ("load", []),
    "sockdiag": ("sockdiag", []),
    "names": ("names", []),
    "forwarding": ("forwarding", []),
    "churn": ("throughput", ["churn"]),
    "ablate": ("throughput", ["ablate"]),
    "throughput": ("throughput", []),
    "download": ("throughput", ["download"]),
    "flows": ("flows", []),
    "sockets": ("sockets", []),
}

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def first_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def output(*command):
    """What a command says; "" where it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True)
        return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def configured_preemption():
    """What the kernel was built for: the model that it begins with."""
    text = output("zcat", "/proc/config.gz") or output("cat", "/boot/config-" + platform.release())
    models = {"NONE": "none", "VOLUNTARY": "voluntary", "LAZY": "lazy", "RT": "rt"}
    for name, model in models.items():
        if "\nCONFIG_PREEMPT_%s=y\n" % name in text:
            return model
    return "full" if "\nCONFIG_PREEMPT=y\n" in text else "unknown"


def preemption():
    """none, voluntary, lazy, full or rt, and how that is known."""
    if "PREEMPT_DYNAMIC" not in platform.version():
        return "rt" if "PREEMPT_RT" in platform.version() else configured_preemption()
    # The file is in debugfs, which may be unmounted or unreadable. Then the kernel's
    # command line tells, unless the setting changed since.
    script = "mount -t debugfs none /sys/kernel/debug 2> /dev/null; cat /sys/kernel/debug/sched/preempt"
    models = output("unshare", "--mount", "sh", "-c", script)
    chosen = [word.strip("()") for word in models.split() if word.startswith("(")]
    if chosen:
        return chosen[0] + " (dynamic)"
    told = [word[len("preempt="):] for word in first_line("/proc/cmdline").split() if word.startswith("preempt=")]
    return "%s (dynamic, as booted)" % (told[-1] if told else configured_preemption())


def machine():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        cpuinfo = file.read()
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "virtual": " hypervisor" in cpuinfo,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "preemption": preemption(),
        "jit": first_line("/proc/sys/net/core/bpf_jit_enable") not in ("", "0"),
    }


def source():
    git = ("git", "-c", "safe.directory=*", "-C", ROOT)
    commit = output(*git, "rev-parse", "HEAD")
    return {"commit": commit or "unknown", "changed": bool(output(*git, "status", "--porcelain"))}


def load_average():
    return float(first_line("/proc/loadavg").split()[0])


class Running:
    """One program; a signal to us ends it, and it cleans up before we end."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        for number in self.SIGNALS:
            signal.signal(number, self.stop)

    def stop(self, number, _):
        # No more than this: whatever waits holds a lock, which a wait in here
        # would never get.
        for other in self.SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    @staticmethod
    def run(command, directory):
        with subprocess.Popen(command, cwd=directory) as process:
            try:
                return process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    try:
                        process.wait(timeout=20)
                    except subprocess.TimeoutExpired:
                        process.kill()


def measure(name, options, running):
    """The part of one benchmark, or None where it failed."""
    program, arguments = BENCHMARKS[name]
    with tempfile.TemporaryDirectory(prefix="netmeter-benchmark.") as directory:
        path = os.path.join(directory, "results.json")
        command = [os.path.join("test/benchmark", program), *arguments, "--json", path]
        if options.smoke:
            command.append("--smoke")
        if program == "throughput":
            command += options.builds
        if program == "forwarding" and options.netobserv:
            command += ["--netobserv", options.netobserv]
        before, begin = load_average(), time.monotonic()
        # Their data is below the folder of the build.
        status = running.run(command, options.bin)
        if status != 0:
            print("benchmark: %s failed, status %d" % (name, status), file=sys.stderr)
            return None
        with open(path, encoding="utf-8") as file:
            part = json.load(file)
    part["seconds"] = round(time.monotonic() - begin, 1)
    part["load_average"] = [before, load_average()]
    del part["benchmark"]
    return summary.summarize(name, part)


def names_of(text):
    """Benchmarks by their names, with commas between them, in our order."""
    wanted = list(BENCHMARKS) if text == "all" else text.split(",")
    for name in wanted:
        if name not in BENCHMARKS:
            raise argparse.ArgumentTypeError("unknown benchmark '%s'" % name)
    return [name for name in BENCHMARKS if name in wanted]


def parse(arguments):
    # test/benchmark.sh has the help.
    parser = argparse.ArgumentParser(description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("benchmarks", type=names_of, metavar="BENCHMARK[,BENCHMARK...]")
    parser.add_argument("--json", metavar="FILE", help="where the results go")
    parser.add_argument("--smoke", action="store_true", help="everything once and in short: it works")
    for option in ("--object", "--loader"):
        parser.add_argument(option, metavar="NAME=FILE", dest="builds", action="extend", default=[],
                            type=lambda build, option=option: (option, build), help="another build of netmeter")
    parser.add_argument("--netobserv", metavar="FILE", help="the file of its compiled programs")
    parser.add_argument("--bin", metavar="DIR", default=".", help="the folder of the build")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    running = Running()
    if options.json:
        try:  # before 20 minutes of measuring, not after
            open(options.json, "a", encoding="utf-8").close()
        except OSError as error:
            sys.exit("benchmark: --json: %s" % error)
    data = {
        "schema": summary.SCHEMA,
        "smoke": options.smoke,
        "started": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"),
        "source": source(),
        "machine": machine(),
        "benchmarks": {},
    }
    failed = []
    for name in options.benchmarks:
        print("--- " + name, flush=True)
        part = measure(name, options, running)
        if part is None:
            failed.append(name)
        else:
            data["benchmarks"][name] = part
    results = summary.Results(data)
    data["failed"] = failed
    data["targets"] = targets.judge(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    for name in data["benchmarks"]:
        print("\n".join(["", *report.padded(report.table_lines(results, name))]))
    lines = report.target_lines([data], only_run=len(options.benchmarks) < len(BENCHMARKS))
    print("\n".join(["", *report.padded(lines)]))
    if options.smoke:
        print("\nA smoke run: that it works is all that it shows.")
    if failed:
        sys.exit("benchmark: failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
