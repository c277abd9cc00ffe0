#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A load converges: killed or failing at any system call, the next one completes it.

Each scenario kills a command at a sample of its system calls, or lets bpf(2) fail. In between a reader
reads, traffic runs, and the sums are compared with those of the interface. As root, in a cgroup,
a network namespace and a pin directory of its own. NETMETER_EVERY=1 is for all calls, or every Nth.
"""
import collections
import json
import os
import random
import re
import signal
import subprocess
import time
import unittest

import lab
import netmeter

TRAFFIC = lab.path("test/convergence/traffic.py")
# What changes something that outlives the process.
SYSCALLS = ["bpf", "rename", "unlink", "mkdir", "mount", "umount2", "rmdir", "chmod", "chown"]
SMALL = ("--max-series", "64", "--max-names", "64")
CONFIGS = {
    "a": {"services": ["variant-a"]},
    "b": {"services": ["variant-b"]},
    "sat": {"uplinks": {"sat": ["gate"]}},
    "lte": {"uplinks": {"lte": ["gate"]}},
}
EVERY = int(os.environ.get("NETMETER_EVERY", "0"))
SAMPLE = int(os.environ.get("NETMETER_SAMPLE", "4"))

# Opens the meter once and reads it again and again, until SIGTERM. Says how often the sum
# went back, and which errors there were.
READER = """
import collections, signal, sys, time, netmeter
stop, last, reads, back, errors = [], 0, 0, 0, collections.Counter()
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
meter = netmeter.Meter.open(sys.argv[1])
print("ready", flush=True)
while not stop:
    try:
        now = sum(one.tx_bytes + one.rx_bytes for one in meter.read_host())
        reads, back, last = reads + 1, back + (now < last), now
    except netmeter.Error as error:
        errors[str(error)] += 1
    time.sleep(0.0005)
print(reads, "reads,", back, "times back,", dict(errors))
sys.exit(back > 0)
"""


def attempt(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


class Rig:
    def __init__(self, test):
        self.cloud, self.directory = test.cloud, lab.temporary_directory(test)
        self.meter = lab.Meter("convergence")
        self.cgroup, self.pins = self.meter.cgroup, self.meter.pin_dir
        self.configs = {}
        for variant, config in CONFIGS.items():
            self.configs[variant] = self.path(variant + ".yml")
            with open(self.configs[variant], "w") as file:
                json.dump({"max_series": 64, "max_names": 64, **config}, file)
        self.generation = 0
        self.notes = collections.Counter()
        self.problems = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def __enter__(self):
        self.want(4)
        with self.cloud.inside():
            self.echo = self.start(subprocess.Popen, "echo", preexec_fn=lab.die_with_parent)
        self.sender = self.start(self.meter.start, "send", self.path("count"))
        return self

    def start(self, start, verb, *arguments, **options):
        command = [lab.PYTHON, TRAFFIC, verb, self.cloud.THERE, *arguments]
        process = start(command, stdout=subprocess.PIPE, **options)
        assert process.stdout.readline() == b"ready\n"
        return process

    def __exit__(self, *_):
        for process in (self.echo, self.sender):
            process.kill()
            process.communicate()
        self.meter.close()
        if os.path.exists(self.pins):
            self.problems.append(f"{self.pins} is left")

    def want(self, count, anew=False):
        self.generation += anew
        with open(self.path("count.new"), "w") as file:
            file.write(f"{count} {self.generation}")
        os.rename(self.path("count.new"), self.path("count"))

    # --- The programs ---------------------------------------------------------

    def loader(self, *arguments, kill=None, check=True):
        command = [lab.LOADER, arguments[0], "--pin-dir", self.pins, *arguments[1:]]
        if kill:
            what = f"error={kill[2]}" if len(kill) > 2 else "signal=SIGKILL"
            when = f"{kill[1]}{'+' if len(kill) > 3 else ''}"
            command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kill[0]}",
                       "-e", f"inject={kill[0]}:{what}:when={when}"] + command
        done = attempt(*command)
        if check and done.returncode:
            self.problems.append(f"{arguments}: {done.returncode} {done.stdout}")
        return done

    def load(self, variant, kill=None, check=True):
        return self.loader("load", "--cgroup", self.cgroup, "--config", self.configs[variant],
                           kill=kill, check=check)

    def calls(self, *arguments):
        """The numbers of each of its calls, of one that runs through."""
        log = self.path("calls")
        lab.run("strace", "-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=" + ",".join(SYSCALLS),
                lab.LOADER, arguments[0], "--pin-dir", self.pins, *arguments[1:])
        counts = collections.Counter()
        points = []
        with open(log) as lines:
            for line in lines:
                call = re.match(r"\d+ +(\w+)\(", line)
                if call:
                    counts[call.group(1)] += 1
                    points.append((call.group(1), counts[call.group(1)]))
        return points

    def points(self, *arguments, prepare):
        """Where to kill it. What is seen from outside is among the last calls."""
        prepare()
        points = self.calls(*arguments)
        if EVERY:
            return points[::EVERY]
        late = points[-150:]
        return sorted(set(points[::max(1, len(points) * 2 // SAMPLE)] +
                          late[::max(1, len(late) * 2 // SAMPLE)]))

    def read(self):
        try:
            with netmeter.Meter.open(self.pins) as meter:
                return meter.read_host()
        except netmeter.Error as error:
            self.notes[re.sub(r"\d{3,}", "N", str(error))[:150]] += 1
            return None

    def reader(self):
        reader = subprocess.Popen([lab.PYTHON, "-c", READER, self.pins], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": lab.BINDING}, preexec_fn=lab.die_with_parent)
        assert reader.stdout.readline() == "ready\n"
        return reader

    def end_reader(self, reader):
        reader.terminate()
        said = reader.communicate()[0].strip()
        if reader.returncode:
            self.problems.append("reader: " + said)

    def note_end(self, what, done):
        self.notes["killed" if done.returncode in (-9, 137) else
                   f"{what} ended with {done.returncode}"] += 1

    def status(self, *options):
        return attempt(lab.LOADER, "status", "--pin-dir", self.pins, *options)

    def expect_loaded(self, what):
        said = self.status().stdout
        if not said.startswith("loaded"):
            self.problems.append(f"{what}: {said[:300]}")

    # --- The sums -------------------------------------------------------------

    def interface(self):
        about = json.loads(lab.run("ip", "-s", "-j", "link", "show", "gate"))[0]["stats64"]
        if about["tx"]["dropped"] or about["rx"]["dropped"]:
            self.problems.append(f"the link has dropped {about}")
        # Without the headers of Ethernet.
        return (about["tx"]["bytes"] - 14 * about["tx"]["packets"],
                about["rx"]["bytes"] - 14 * about["rx"]["packets"],
                about["tx"]["packets"], about["rx"]["packets"])

    def series(self):
        samples = self.read()
        if samples is None:
            return None
        return tuple(sum(getattr(one, key) for one in samples)
                     for key in ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets"))

    def steady(self, read):
        """The counters of the link, and what read() returns: twice the same."""
        last, now = None, (self.interface(), read())
        while now != last:
            time.sleep(0.03)
            last, now = now, (self.interface(), read())
        return now

    def pause(self, stay=False):
        os.kill(self.sender.pid, signal.SIGSTOP)
        both = self.steady(self.series)
        if not stay:
            os.kill(self.sender.pid, signal.SIGCONT)
        return both

    def compare(self, begin, end, what):
        link = tuple(b - a for a, b in zip(begin[0], end[0]))
        meter = tuple(b - a for a, b in zip(begin[1], end[1])) if begin[1] and end[1] else None
        if link != meter:
            self.problems.append(f"{what}: the link has {link}, the meter {meter}")
        return link

    # --- Scenarios ------------------------------------------------------------

    def first_load(self):
        arguments = ("load", "--cgroup", self.cgroup, *SMALL)
        points = self.points(*arguments, prepare=lambda: self.loader("unload"))
        self.loader("unload")
        for point in points:
            self.note_end("first load", self.loader(*arguments, kill=point, check=False))
            self.read()
            self.loader(*arguments)
            begin = self.pause()
            time.sleep(0.05)
            self.compare(begin, self.pause(), f"first load, {point}")
            self.loader("unload")
            if os.path.exists(self.pins):
                self.problems.append(f"{point}: {self.pins} is left")
        return len(points)

    def upgrade(self):
        self.load("a")
        begin = self.pause()
        points = self.points("load", "--cgroup", self.cgroup, "--config", self.configs["b"],
                             prepare=lambda: self.load("a"))
        self.load("a")
        old, new = "a", "b"
        reader = self.reader()
        for number, point in enumerate(points):
            self.note_end("upgrade", self.load(new, kill=point, check=False))
            if self.read() is None:
                self.problems.append(f"upgrade, {point}: no read")
            if number % 3:
                self.load(new)
                old, new = new, old
            else:  # back to the old one, which has to notice
                self.load(old)
            self.expect_loaded(f"upgrade, {point}")
            if number % 4 == 0:
                self.compare(begin, self.pause(), f"upgrade, {point}")
        link = self.compare(begin, self.pause(), "upgrade")
        self.notes[f"upgrade: over {link[2]} + {link[3]} packets"] += 1
        self.end_reader(reader)
        return len(points)

    def no_change(self):
        """A load that finds nothing to do may end anywhere: there is nothing to complete."""
        self.load("a")
        points = self.points("load", "--cgroup", self.cgroup, "--config", self.configs["a"],
                             prepare=lambda: self.load("a"))
        begin = self.pause()
        reader = self.reader()
        for point in points:
            self.note_end("load", self.load("a", kill=point, check=False))
            self.expect_loaded(f"no change, {point}")
        self.compare(begin, self.pause(), "no change")
        self.end_reader(reader)
        return len(points)

    def growth(self):
        first = ("load", "--cgroup", self.cgroup, *SMALL, "--defaults")
        # More than twice what is in use: a load of half-full tables ends with evict.
        grow = ("load", "--max-series", "400", "--max-names", "300")

        def prepare():
            self.loader("unload")
            self.loader(*first)
        self.want(100)
        points = self.points(*grow, prepare=prepare)
        total = [0, 0]
        for number, point in enumerate(points):
            prepare()
            self.want(100, anew=True)
            begin = self.pause()
            reader = self.reader()
            self.note_end("growth", self.loader(*grow, kill=point, check=False))
            if self.read() is None:
                self.problems.append(f"growth, {point}: no read")
            if number % 4 == 1:  # it is not wanted any more
                self.loader("load", *SMALL)
            self.loader(*grow)
            self.expect_loaded(f"growth, {point}")
            self.want(100, anew=True)
            for _ in range(200):
                time.sleep(0.05)
                count = len(self.read())
                if count > 100:
                    break
            link = self.compare(begin, self.pause(), f"growth, {point}")
            total = [total[0] + link[2], total[1] + link[3]]
            if count < 100:
                self.problems.append(f"growth, {point}: {count} series")
            self.end_reader(reader)
        self.notes[f"growth: over {total} packets"] += 1
        return len(points)

    def unload(self):
        load = ("load", "--cgroup", self.cgroup, *SMALL)
        points = self.points("unload", prepare=lambda: self.loader(*load))
        for number, point in enumerate(points):
            self.loader(*load)
            self.note_end("unload", self.loader("unload", kill=point, check=False))
            self.read()
            if number % 2:
                self.loader("unload")
                if os.path.exists(self.pins):
                    self.problems.append(f"{point}: {self.pins} is left")
            else:
                self.loader(*load)
                begin = self.pause()
                time.sleep(0.05)
                self.compare(begin, self.pause(), f"unload, {point}")
        return len(points)

    def uplinks(self):
        """The balance of the uplinks closes after a kill, or says why not. Nothing is sent while a
        load is at work, as an interface that leaves an uplink counts for both until all programs know."""
        def read():
            with netmeter.Meter.open(self.pins) as meter:
                return meter.read_uplinks()

        def check(what, may_be_unknown):
            self.pause(stay=True)
            _, rows = self.steady(read)
            for row in rows:
                if may_be_unknown and "for two uplinks" in row.unknown:
                    self.notes["unknown: " + row.unknown] += 1
                elif row.unknown or row.tx.unnamed_packets or row.rx.unnamed_packets:
                    self.problems.append(f"{what}: {row}")
            if not sum(row.tx.interface_packets for row in rows):
                self.problems.append(f"{what}: nothing counted: {rows}")

        def send():
            before = self.interface()[2]
            os.kill(self.sender.pid, signal.SIGCONT)
            while self.interface()[2] < before + 20:
                time.sleep(0.01)

        def prepare():
            self.loader("unload")
            self.pause(stay=True)
            self.load("sat")
        points = self.points("load", "--config", self.configs["lte"], prepare=prepare)
        for number, point in enumerate(points):
            prepare()
            self.note_end("uplinks", self.load("lte", kill=point, check=False))
            begun = "UNFINISHED" in self.status().stdout
            send()
            check(f"uplinks, killed at {point}", begun)
            self.loader("load") if number % 2 else self.load("lte")
            send()
            check(f"uplinks, {point}", begun)
        send()
        return len(points)

    def restart(self):
        """The next load completes it; until the old meter is told of its end, the same command does."""
        again = ("load", "--restart", "--max-series", "2000")

        def prepare():
            self.loader("unload")
            self.loader("load", "--cgroup", self.cgroup, *SMALL, "--defaults")

        def is_new():
            return "max_series: 2000" in self.status("--config").stdout
        points = self.points(*again, prepare=prepare)
        for number, point in enumerate(points):
            prepare()
            begin = self.pause()
            self.note_end("restart", self.loader(*again, kill=point, check=False))
            stands = self.status().returncode == 0
            if stands and not is_new():
                self.compare(begin, self.pause(), f"restart, {point}")
            self.loader(*(again if number % 2 or stands or not is_new() else ("load",)))
            self.expect_loaded(f"restart, {point}")
            if not is_new():
                self.problems.append(f"restart, {point}: another configuration")
            begin = self.pause()
            time.sleep(0.05)
            self.compare(begin, self.pause(), f"restart, {point}")
        return len(points)

    def random_loads(self):
        random.seed(int(os.environ.get("NETMETER_SEED", "1")))
        self.loader("load", "--cgroup", self.cgroup, *SMALL)
        begin = self.pause()
        reader = self.reader()
        series = names = 64
        count = 150 if EVERY else SAMPLE
        for number in range(count):
            options = ["load"]
            if random.random() < 0.4 and series < 500:
                series = min(512, series + random.randrange(1, 120))
                names = min(512, names + random.randrange(1, 120))
                options += ["--max-series", str(series), "--max-names", str(names)]
            options += ["--group", random.choice(["daemon", "bin", ""])]
            kill = random.choice([
                None, ("bpf", random.randrange(60, 330)),
                ("bpf", random.randrange(60, 330), random.choice(["ENOMEM", "EPERM", "EINTR"])),
                ("rename", random.randrange(1, 6)), ("chmod", random.randrange(1, 20))])
            self.note_end("load", self.loader(*options, kill=kill, check=kill is None))
            if self.read() is None:
                self.problems.append(f"{number}: no read")
            self.want(min(400, 4 + number * 5))
        self.loader("load", "--max-series", "512", "--max-names", "512")
        self.compare(begin, self.pause(), "random loads")
        self.end_reader(reader)
        return count

    def faults(self):
        """A call fails, once or from there on: readers read, and the next load completes."""
        count = 0
        first = ("load", "--cgroup", self.cgroup, *SMALL, "--defaults")
        commands = {
            "first load": first,
            "load without a change": ("load",),
            "change": ("load", "--config", self.configs["b"]),
            "growth": ("load", "--max-series", "128", "--max-names", "128"),
            "restart": ("load", "--restart", "--max-series", "100"),
            "unload": ("unload",),
        }
        kinds = [(error, on) for error in ("ENOMEM", "EPERM", "EINTR") for on in (False, True)]
        for name, command in commands.items():
            anew = name in ("first load", "restart")

            def prepare():
                self.loader("unload")
                if name != "first load":
                    self.loader(*first)
            prepare()
            calls = [call for call in self.calls(*command) if call[0] in ("bpf", "mount", "rename")]
            cases = [(call, n, *kind) for call, n in calls for kind in kinds]
            step = EVERY or max(1, len(cases) // SAMPLE)
            while not (step % 2 and step % 3) and step > 1:  # else it would pass by some kinds
                step += 1
            for call, n, error, on in cases[::step]:
                what = f"{name}, {call} {n} {error}{' and on' if on else ''}"
                prepare()
                begin = self.pause() if command[0] == "load" and not anew else None
                kill = (call, n, error) + (("on",) if on else ())
                self.note_end(name, self.loader(*command, kill=kill, check=False))
                count += 1
                if begin and self.read() is None:
                    self.problems.append(f"{what}: no read")
                self.loader(*command)
                if begin or anew:
                    self.expect_loaded(what)
                elif os.path.exists(self.pins):
                    self.problems.append(f"{what}: {self.pins} is left")
                if begin:
                    self.compare(begin, self.pause(), what)
            print(f"  {name}: {len(cases[::step])} of {len(cases)} errors, {len(self.problems)} problems so far", flush=True)
        return count


class ConvergenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.cloud = lab.Cloud()

    def run_scenario(self, name):
        begin = time.time()
        with Rig(self) as rig:
            count = getattr(rig, name)()
        for note, times in sorted(rig.notes.items()):
            print(f"  {times} x {note}")
        print(f"@@converged {name}: {count} points, {rig.notes['killed']} killed, {len(rig.problems)} problems, "
              f"{time.time() - begin:.0f} s", flush=True)
        self.assertEqual(rig.problems, [])
        self.assertGreater(count, 0)
        if name not in ("random_loads", "faults"):
            self.assertGreater(rig.notes["killed"], count / 2)

    def test_a_first_load(self):
        self.run_scenario("first_load")

    def test_an_upgrade(self):
        self.run_scenario("upgrade")

    def test_a_load_without_a_change(self):
        self.run_scenario("no_change")

    def test_a_growth(self):
        self.run_scenario("growth")

    def test_an_unload(self):
        self.run_scenario("unload")

    def test_a_change_of_uplinks(self):
        self.run_scenario("uplinks")

    def test_a_restart(self):
        self.run_scenario("restart")

    def test_random_loads(self):
        self.run_scenario("random_loads")

    def test_errors(self):
        self.run_scenario("faults")


def load_tests(loader, tests, pattern):
    """The part of this shard, as Bazel asks for it."""
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w").close()
    names = loader.getTestCaseNames(ConvergenceTest)
    shard, shards = int(os.environ.get("TEST_SHARD_INDEX", "0")), int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    return unittest.TestSuite(map(ConvergenceTest, names[shard::shards]))


if __name__ == "__main__":
    lab.main(7200)
