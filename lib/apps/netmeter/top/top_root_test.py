#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter top` in a terminal (tmux): real traffic, keys, a new size, the end."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import threading
import unittest

import lab
import tools

TAGGED = """
import socket, time
s = socket.create_connection(("10.88.0.2", 7000))
s.setsockopt(0x6e74, 2, b"streamer")  # NM_TAG of abi.h
"""
SEND = """
print("ready", flush=True)
while True:
    s.sendall(b"x" * 10000)
    time.sleep(0.1)
"""
SENDER = TAGGED + SEND

# Those below come from another network namespace, which the process leaves.
UNTAGGED = """
import socket, time
s = socket.create_connection(("10.88.0.1", 7000))
"""
LEAVE = """
libc.setns(own, 0x40000000)
os.close(own)
"""
# Into a network namespace of its own, with a way to the test's.
HIDE = """
import ctypes, os, subprocess
libc = ctypes.CDLL(None)
own = os.open("/proc/self/ns/net", 0)
libc.unshare(0x40000000)
back = "/proc/%d/fd/%d" % (os.getpid(), own)
for command in (
    "ip link add hidden type veth peer name visible",
    "ip link set visible netns " + back,
    "ip address add 10.89.0.2/24 dev hidden",
    "ip link set hidden up",
    "nsenter --net=%s ip address add 10.89.0.1/24 dev visible" % back,
    "nsenter --net=%s ip link set visible up" % back,
    "ip route add default via 10.89.0.1",
):
    subprocess.run(command.split(), check=True)
"""


class TopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cloud = cls.cloud = lab.Cloud()
        with cloud.inside():
            cls.server = socket.create_server(("10.88.0.2", 7000))
        cls.meter = lab.Meter("top")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load()
        cls.own_server = socket.create_server(("10.88.0.1", 7000))
        for server in (cls.server, cls.own_server):
            threading.Thread(target=cls.serve, args=(server,), daemon=True).start()
        os.environ["TMUX_TMPDIR"] = cls.directory

    @classmethod
    def serve(cls, server):
        while True:
            one = server.accept()[0]
            threading.Thread(target=cls.drain, args=(one,), daemon=True).start()

    @staticmethod
    def drain(one):
        with one:
            while one.recv(65536):
                pass

    def setUp(self):
        for name in ("subscriberdb", "mobilityd"):
            self.assertEqual(lab.start_service(self, name, SENDER).stdout.readline(), "ready\n")

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-f", "/dev/null", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        return done.stdout.decode()

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "top")

    def wait_screen(self, pattern):
        try:
            lab.wait_for(lambda: re.search(pattern, self.screen(), re.M), pattern)
        except TimeoutError:
            self.fail("no %r on\n%s" % (pattern, self.screen()))

    def keys(self, *keys):
        self.tmux("send-keys", "-t", "top", *keys)

    def test_top_in_a_terminal(self):
        self.addCleanup(self.tmux, "kill-server")
        command = "%s top --interval 0.3 --pin-dir %s; echo left $?" % (tools.NETMETER, self.meter.pin_dir)
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", "sh -c '%s; sleep 60'" % command)
        self.wait_screen(r"^services  every 0.3 s  by rate")
        # 100,000 bytes a second of payload each, and headers.
        self.wait_screen(r"^subscriberdb +(9\d|1\d\d)\.\dK ")
        self.wait_screen(r"^mobilityd +(9\d|1\d\d)\.\dK ")
        self.keys("/", "subs", "Enter")
        self.wait_screen(r"  /subs$")
        self.assertNotIn("mobilityd", self.screen())
        self.keys("Enter")
        self.wait_screen(r"^services > subscriberdb ")
        self.wait_screen(r"^streamer +(9\d|1\d\d)\.\dK ")
        self.keys("Enter")
        self.wait_screen(r"^services > subscriberdb > streamer ")
        self.wait_screen(r"^ESTABLISHED  10.88.0.1:\d+ +10.88.0.2:7000 +python3/\d+ +(9\d|1\d\d)\.\dK ")
        # It ended at "TCPI".
        header = re.search(r"^STATE .*", self.screen(), re.M).group().split()
        self.assertEqual(header[:6], ["STATE", "LOCAL", "REMOTE", "PROCESS", "SENT/S", "RECV/S"])
        self.assertLessEqual(set(header[6:]), {"TCPI_RTT", "TCPI_TOTAL_RETRANS", "TCPI_BYTES_SENT", "TCPI_BYTES_RECEIVED"})
        self.tmux("resize-window", "-t", "top", "-x", "170", "-y", "30")
        self.wait_screen(r"^STATE .* TCPI_SND_CWND ")
        self.keys("BSpace", "BSpace")
        self.wait_screen(r"^mobilityd .* service ")
        self.keys("p")
        self.wait_screen(r"PAUSED")
        self.keys("q")
        self.wait_screen(r"^left 0$")

    def open_destinations(self, name, before="", options=""):
        self.addCleanup(self.tmux, "kill-server")
        command = "%s%s top --interval 0.3 --pin-dir %s%s" % (before, tools.NETMETER, self.meter.pin_dir, options)
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", command)
        self.wait_screen(r"^%s " % name)
        self.keys("/", name, "Enter", "Enter")
        self.wait_screen(r"^services > %s  " % name)

    def open_sockets(self, name):
        """Those of the destination "-"."""
        self.open_destinations(name)
        self.wait_screen(r"^- ")
        self.keys("Enter")

    def test_a_key_shows_the_processes(self):
        self.addCleanup(self.tmux, "kill-server")
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", "%s top --interval 0.3 --pin-dir %s" % (tools.NETMETER, self.meter.pin_dir))
        self.wait_screen(r"^subscriberdb ")
        self.keys("t")
        self.wait_screen(r"^processes  every 0.3 s  by rate")
        for name in ("subscriberdb", "mobilityd"):
            self.wait_screen(r"^python3/\d+ +root +%s +(9\d|1\d\d)\.\dK +0 +1 " % name)
        self.keys("t")
        self.wait_screen(r"^services  every 0.3 s  by rate")

    def test_sockets_in_a_namespace_that_only_an_open_file_holds_are_shown(self):
        # The head counted a connection, and "(nothing)" stood below: no process was in
        # the namespace any more.
        enter = "import ctypes, os\nlibc = ctypes.CDLL(None)\nown = os.open('/proc/self/ns/net', 0)\nlibc.setns(os.open('%s', 0), 0x40000000)\n"
        source = enter % self.cloud.path + UNTAGGED + LEAVE + SEND
        self.assertEqual(lab.start_service(self, "directoryd", source).stdout.readline(), "ready\n")
        self.open_sockets("directoryd")
        self.wait_screen(r"^connections: 1 counted, 1 shown, 1 of these in other network namespaces$")
        self.wait_screen(r"^ESTABLISHED  10.88.0.2:\d+ +10.88.0.1:7000 +python3/\d+ ")

    def test_a_connection_that_cannot_be_shown_has_a_reason(self):
        # Nothing but the connection holds its network namespace.
        source = HIDE + UNTAGGED + LEAVE + SEND
        self.assertEqual(lab.start_service(self, "sessiond", source).stdout.readline(), "ready\n")
        self.open_sockets("sessiond")
        self.wait_screen(r"^connections: 1 counted, 0 shown\n\(1 not found: just ended, or in a network namespace that cannot be found or$")

    def test_a_remote_address_has_its_name_by_option(self):
        hosts = os.path.join(self.directory, "hosts")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write("10.88.0.2 cloud\n")
        resolver = "unshare --mount sh -c 'mount --bind %s /etc/hosts && exec \"$@\"' sh " % hosts
        self.open_destinations("subscriberdb", before=resolver, options=" --names")
        self.wait_screen(r"^streamer ")
        self.keys("/", "streamer", "Enter", "Enter")
        self.wait_screen(r"^ESTABLISHED  10.88.0.2:7000 +cloud +python3/\d+ +(9\d|1\d\d)\.\dK ")

    def test_a_wide_name_shifts_nothing_in_any_locale(self):
        # In the locale C curses showed each byte of it.
        source = SENDER.replace('b"streamer"', '"卫星链路".encode()')
        self.assertEqual(lab.start_service(self, "enodebd", source).stdout.readline(), "ready\n")
        self.addCleanup(os.environ.pop, "LC_ALL", None)
        for locale in ("C", "C.UTF-8"):
            os.environ["LC_ALL"] = locale
            self.open_destinations("enodebd")
            self.wait_screen(r"^卫星链路 +\d+\.\dK ")
            screen = self.screen()
            header = re.search(r"^NAME +SENT/S", screen, re.M).group()
            row = re.search(r"^卫星链路 +\d+\.\dK", screen, re.M).group()
            self.assertEqual(len(row) + 4, len(header), screen)
            self.tmux("kill-server")
            # The next session has to find no server, and not one that is about to end.
            lab.wait_for(lambda: re.match("no server|error connecting", self.tmux("has-session")), "the end of tmux")

    def test_a_signal_restores_the_terminal(self):
        self.addCleanup(self.tmux, "kill-server")
        command = "%s top --pin-dir %s & echo $! > %s/pid; fg; echo left $?" % (tools.NETMETER, self.meter.pin_dir, self.directory)
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", "bash -mc '%s; sleep 60'" % command)
        self.wait_screen(r"^services ")
        with open(self.directory + "/pid") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        self.wait_screen(r"^left 0$")

    def test_a_terminal_that_goes_away_ends_it(self):
        # It used a whole CPU if no SIGHUP came.
        ours, terminal = pty.openpty()
        process = subprocess.Popen(
            [tools.NETMETER, "top", "--pin-dir", self.meter.pin_dir],
            stdin=terminal,
            stdout=terminal,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, TERM="xterm"),
            preexec_fn=lab.die_with_parent,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(terminal)
        self.assertTrue(os.read(ours, 100))
        os.close(ours)
        process.wait(10)

    def test_once_is_for_scripts(self):
        # Of each CPU about one packet in 64 says its round-trip time, and 70 a second
        # are sent: in one second there was none now and then.
        out = lab.run(tools.NETMETER, "top", "--once", "--json", "--interval", "4", "--pin-dir", self.meter.pin_dir)
        rows = {(row["name"], row["destination"]): row for row in json.loads(out)}
        for name in ("subscriberdb", "mobilityd"):
            row = rows[name, "streamer"]
            # 100,000, less if the sender or top has to wait for a CPU.
            self.assertGreater(row["tx_bytes_per_second"], 10000)
            self.assertLess(row["tx_bytes_per_second"], 140000)
            # It was opened before it had a tag.
            self.assertEqual(sum(r["connections"] for r in rows.values() if r["name"] == name), 1)
            self.assertGreater(row["rtt_us"], 0)
        self.assertAlmostEqual(sum(row["share"] for row in rows.values()), 1, 3)
        table = lab.run(tools.NETMETER, "top", "--once", "--interval", "0.5", "--pin-dir", self.meter.pin_dir).decode()
        self.assertRegex(table, r"^total of direct: sent \S+/s, received .*\nresent .* connections\nNAME ")
        self.assertRegex(table, r"(?m)^subscriberdb .* service$")

    def test_without_a_terminal_it_says_so(self):
        done = subprocess.run([tools.NETMETER, "top", "--pin-dir", self.meter.pin_dir], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.decode().count("\n"), 1)
        self.assertIn("netmeter top --once --json", done.stderr.decode())


if __name__ == "__main__":
    assert shutil.which("tmux"), "tmux is missing: test/install_packages.sh"
    lab.main(120)
