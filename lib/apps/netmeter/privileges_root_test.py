#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the real programs may still do while they run, as /proc/PID/status has it, and
that it is enough: a reader goes on after tables have grown."""

import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import unittest
import urllib.request

import lab
import tools

FDS = lab.path("lib/apps/fds/netmeter-fds")
EXPORTER = lab.path("lib/apps/exporter/netmeter-exporter")
# Those of packaging/debian/netmeter-loader.netmeter.service.
OF_LOAD = {
    0,  # CAP_CHOWN
    1,  # CAP_DAC_OVERRIDE
    2,  # CAP_DAC_READ_SEARCH
    3,  # CAP_FOWNER
    12,  # CAP_NET_ADMIN
    19,  # CAP_SYS_PTRACE
    21,  # CAP_SYS_ADMIN
    24,  # CAP_SYS_RESOURCE
    38,  # CAP_PERFMON
    39,  # CAP_BPF
}
CAP_BPF = 39


def status(pid, thread=None):
    """{field: value} of /proc/PID/status, or of one thread's."""
    folder = "/proc/%d" % pid if thread is None else "/proc/%d/task/%d" % (pid, thread)
    with open(folder + "/status", encoding="ascii") as file:
        return dict(re.findall(r"(\w+):\s*(.*)", file.read()))


def threads(pid):
    return [int(name) for name in os.listdir("/proc/%d/task" % pid)]


def is_hidden(pid):
    """Whether this process may not look at that one's network namespace."""
    try:
        os.stat("/proc/%s/ns/net" % pid)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def capabilities(fields, name):
    bits = int(fields[name], 16)
    return {i for i in range(64) if bits >> i & 1}


def lock_of(path):
    """As LockFile() of lib/loader/lock_file.cc has it."""
    return "/run/.netmeter%s.lock" % path.replace("-", "\\x2d").replace("/", "-")


def pins_need_a_capability():
    """Before 5.19 bpf(2) opens no pin for who has none."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(release[1]), int(release[2])) < (5, 19)


class PrivilegesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.meter = lab.Meter("privileges")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load()
        cls.own = capabilities(status(os.getpid()), "CapEff")  # a container has not all
        cls.of_reader = {CAP_BPF} if pins_need_a_capability() else set()

    # It showed its own namespace, and said nothing.
    def test_sockets_say_that_other_namespaces_are_hidden(self):
        other = self.start("unshare", "--net", "sleep", "60")
        own = "127.%d.%d.%d" % tuple(random.randrange(1, 255) for _ in range(3))
        server = socket.create_server((own, 0))
        self.addCleanup(server.close)
        command = (tools.NETMETER, "sockets", "--all-netns", "--pin-dir", "/nonexistent", "--columns", "state")
        command += ("--address", own)
        lab.wait_for(lambda: status(other.pid)["Name"] == "sleep", "the process of another namespace")
        # In a container there may be a process with more capabilities than its root.
        hidden = any(map(is_hidden, filter(str.isdigit, os.listdir("/proc"))))
        for dropped in (("setpriv", "--bounding-set=-all"), ()):
            done = subprocess.run((*dropped, *command), capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, "STATE\nLISTEN\n"), done.stderr)
            line = "netmeter: some network namespaces are not accessible: sockets may be missing\n"
            self.assertEqual(line in done.stderr, bool(dropped) or hidden, done.stderr)

    def start(self, *arguments, **options):
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=lab.die_with_parent, text=True, **options
        )

        def end():
            process.kill()
            process.wait()
            process.stdout.close()

        self.addCleanup(end)
        return process

    def expect(self, pid, kept, bounding=frozenset()):
        # Capabilities are a thread's: one that was started before the drop keeps its own.
        found = threads(pid)
        self.assertIn(pid, found)
        for thread in found:
            fields = status(pid, thread)
            self.assertEqual(fields["NoNewPrivs"], "1")
            for name, expected in (("CapEff", kept), ("CapPrm", kept), ("CapInh", set()), ("CapAmb", set()), ("CapBnd", bounding)):
                self.assertEqual(capabilities(fields, name), set(expected), (fields["Name"], name))

    def start_exporter(self, *before, service303="off"):
        process = self.start(
            *before, EXPORTER, "--pin-dir", self.meter.pin_dir, "--listen", "127.0.0.1:0", "--service303", service303
        )
        line = process.stdout.readline()
        self.assertIn("serving", line)
        return process, re.search(r"http://\S*/metrics", line)[0]

    def read(self, url):
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.read().decode()

    def test_the_exporter_keeps_nothing_and_reads_on(self):
        process, url = self.start_exporter()
        self.expect(process.pid, self.of_reader)
        self.assertIn("netmeter_up 1", self.read(url))
        # The tables that it holds are replaced: it opens the new ones.
        self.meter.load({"max_series": 6000})

        def grown():
            return re.search(r"netmeter_series_limit\S* 5\d\d\d|netmeter_series_limit\S* 6000", self.read(url))

        lab.wait_for(grown, "the page of the larger tables")
        self.expect(process.pid, self.of_reader)

    def test_every_thread_of_the_exporter_keeps_nothing(self):
        # With all that it serves, and while it is asked: whatever thread there is then.
        process, url = self.start_exporter(service303="127.0.0.1:0")
        for _ in range(20):
            self.assertIn("netmeter_up 1", self.read(url))
            self.expect(process.pid, self.of_reader)

    def test_without_cap_setpcap_the_bounding_set_stays_as_it_was(self):
        # SECURITY.md said that it is empty. As root, and as docs/operations.md runs it.
        started = capabilities(status(os.getpid()), "CapBnd") - {8}  # CAP_SETPCAP
        self.assertTrue(started)
        process, url = self.start_exporter("setpriv", "--bounding-set=-setpcap", "--inh-caps=-all")
        self.expect(process.pid, self.of_reader, bounding=started)
        self.assertIn("netmeter_up 1", self.read(url))
        if not pins_need_a_capability():
            user = ("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")
            for given, bounding in (("-setpcap", started), ("-all", set())):
                process, _ = self.start_exporter(*user, "--bounding-set=" + given)
                self.expect(process.pid, set(), bounding=bounding)

    def test_netmeter_fds_keeps_nothing(self):
        path = "/run/netmeter-privileges-%d.sock" % os.getpid()
        process = self.start(FDS, "--pin-dir", self.meter.pin_dir, "--socket", path, "--group", "root")
        lab.wait_for(lambda: os.path.exists(path) and status(process.pid)["NoNewPrivs"] == "1")
        lab.wait_for(lambda: capabilities(status(process.pid), "CapEff") == self.of_reader)
        self.expect(process.pid, self.of_reader)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=10), 0)
        self.assertFalse(os.path.exists(path), "netmeter-fds may not remove its socket")

    def test_the_loader_keeps_what_its_unit_names(self):
        # It waits for its lock, with all privileges dropped before.
        name = lock_of(self.meter.pin_dir)
        for command in ("load", "unload", "evict"):
            with open(name, "w", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                more = ["--max-names", "4100"] if command == "load" else []
                process = self.start(lab.LOADER, command, "--pin-dir", self.meter.pin_dir, *more)
                lab.wait_for(lambda: capabilities(status(process.pid), "CapEff") == OF_LOAD & self.own)
                self.assertIsNone(process.poll(), command)
                self.expect(process.pid, OF_LOAD & self.own)
                process.kill()
                process.wait()

    def test_a_load_knows_whether_the_group_reads_without_netmeter_fds(self):
        # It had tried as another user, which it can no more be without CAP_SETUID: so it
        # said on every kernel that the group reads through netmeter-fds alone.
        group = "54321"
        self.addCleanup(self.meter.load)
        done = subprocess.run(
            [lab.LOADER, "load", "--pin-dir", self.meter.pin_dir, "--group", group],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True,
        )
        reads = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=" + group, "--clear-groups", lab.path("lib/apps/netmeter/netmeter"), "list",
             "--pin-dir", self.meter.pin_dir],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False,
        )
        self.assertEqual("netmeter-fds" in done.stdout, reads.returncode != 0, done.stdout + reads.stdout)

    def test_a_drop_that_fails_is_an_error_of_one_line(self):
        commands = {
            "netmeter-loader": [lab.LOADER, "status", "--pin-dir", self.meter.pin_dir],
            "netmeter-exporter": [EXPORTER, "--pin-dir", self.meter.pin_dir, "--listen", "127.0.0.1:0", "--service303", "off"],
        }
        for program, command in commands.items():
            for call, what in (("capset", "drop capabilities"),):
                inject = "inject=%s:error=EPERM" % call
                done = subprocess.run(
                    ["strace", "-qq", "-o", "/dev/null", "-e", inject, *command],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False,
                )
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertEqual(done.stdout, "%s: %s: Operation not permitted\n" % (program, what))


if __name__ == "__main__":
    unittest.main()
