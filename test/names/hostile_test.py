# SPDX-License-Identifier: BSD-3-Clause
"""Local users who want another one's name, or none at all: what SECURITY.md says of
them. Real processes of other users, under a loaded meter; whose bytes they are."""

import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

import lab

NM_SOL, NM_REGISTER, NM_TAG, NM_SERVICE = 0x6E74, 1, 2, 3

BINARY, SERVICE, UNIT, CONTAINER = "binary", "service", "unit", "container"
OWNER, OWNERS_GROUP, STRANGER = 4711, 4712, 4799

CONFIG = {
    "proxy_ports": [lab.PROXY_PORT],
    "services": ["mme", "state"],
    "aliases": {"oai_mme": "mme"},
    "units": {"mme.service": "mme", "magma@*.service": "$1"},
    "register_by": {"mme": "uid:%d" % OWNER, "policydb": "group:%d" % OWNERS_GROUP, "state": "anyone"},
}

CLONE_NEWUSER = 0x10000000
LIBC = ctypes.CDLL(None, use_errno=True)

SEND = """import os, socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.sendto(bytes(int(os.environ["NM_BYTES"])), ("127.0.0.1", 8443))
"""

# Other arguments than those that it was executed with: written over them, and, with
# CAP_SYS_RESOURCE, elsewhere (PR_SET_MM of prctl(2)).
REWRITE = """import ctypes, mmap
other = b"python3\\0-m\\0magma.state.main\\0"
with open("/proc/self/stat", "rb") as file:
    start = int(file.read().rsplit(b") ", 1)[1].split()[45])  # arg_start
ctypes.memmove(start, other, len(other))
memory = mmap.mmap(-1, 4096)
memory.write(other)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
for option, value in ((9, start + len(other)), (8, start), (9, start + len(other))):
    libc.prctl(35, option, ctypes.c_ulong(value), 0, 0)
with open("/proc/self/cmdline", "rb") as file:
    assert b"magma.state.main" in file.read()
"""

# One thread sends from ever new sockets while two others make processes; says how many
# bytes it sent. Calls of ctypes let the other threads run.
SPAWN = """import ctypes, os, socket, sys, threading
path, words, count = sys.argv[1].encode(), ("NM_DO=" + sys.argv[2]).encode(), int(sys.argv[3])
libc = ctypes.CDLL(None)
arguments, variables = (ctypes.c_char_p * 2)(path), (ctypes.c_char_p * 2)(words)
def spawn():
    child = ctypes.c_int()
    for _ in range(count):
        # clone(CLONE_VM | CLONE_VFORK): this thread waits for the execve(2) of its child.
        result = libc.posix_spawn(ctypes.byref(child), path, None, None, arguments, variables)
        assert result == 0 and os.waitpid(child.value, 0)[1] == 0
threads = [threading.Thread(target=spawn) for _ in range(2)]
for thread in threads:
    thread.start()
sent = 0
while any(thread.is_alive() for thread in threads):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sent += sock.sendto(b"x", ("127.0.0.1", 8443))
print(sent)
"""


def become(uid, gid):
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def control(option, name, sock=None):
    """0, or the errno of the call."""
    with sock or socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as on:
        try:
            on.setsockopt(NM_SOL, option, name.encode())
        except OSError as error:
            return error.errno
    return 0


def send(size):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(bytes(size), ("127.0.0.1", lab.PROXY_PORT))


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        cls.sink.bind(("127.0.0.1", lab.PROXY_PORT))
        cls.addClassCleanup(cls.sink.close)
        cls.directory = lab.temporary_directory(cls)
        os.chmod(cls.directory, 0o755)
        cls.meter = lab.Meter("hostile")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load(CONFIG)
        cls.bytes, cls.before = 1000, {}
        for name in ("mme", "state", "victim"):
            source = REWRITE + SEND if name == "victim" else SEND
            lab.make_package(cls.directory, name, source)

    def size(self):
        """A number of bytes that no other process sends."""
        type(self).bytes += 1
        return self.bytes

    def expect(self, kind, name, size):
        """That what is new since the last time is this, and nothing else."""
        self.expect_all({(kind, name): size})

    def expect_all(self, sizes):
        now = {}
        for key, row in self.meter.series().items():
            now[key[:2]] = now.get(key[:2], 0) + row["tx_payload_bytes"]
        new = {key: now[key] - self.before.get(key, 0) for key in now}
        type(self).before = now
        self.assertEqual({k: v for k, v in new.items() if v}, sizes)

    def as_user(self, uid, function, gid=None):
        """In a process of the meter's."""
        return self.meter.inside(lambda: (become(uid, uid if gid is None else gid), function())[1])

    def program(self, name):
        path = os.path.join(self.directory, name)
        if not os.path.exists(path):
            shutil.copy(lab.path("test/names/sender"), path)
        return path

    def execute(self, arguments, size, uid, cgroup=None, **variables):
        """Runs a program of the meter's as this user, which sends so many bytes; what it
        said."""

        def prepare():
            self.meter.enter()
            if cgroup:
                with open(cgroup + "/cgroup.procs", "w", encoding="ascii") as procs:
                    procs.write("0")
            become(uid, uid)

        done = subprocess.run(
            arguments,
            preexec_fn=prepare,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": self.directory,
                "PYTHONDONTWRITEBYTECODE": "1",
                "NM_BYTES": str(size),
                "NM_DO": "udp=127.0.0.1:%d/%d" % (lab.PROXY_PORT, size),
                **variables,
            },
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def refused(self):
        status = lab.run(lab.LOADER, "status", "--json", "--pin-dir", self.meter.pin_dir)
        return json.loads(status)["seen"]["refused_controls"]

    # --- Another one's name ---------------------------------------------------

    def test_only_its_user_registers_a_service(self):
        before = self.refused()
        self.assertEqual(self.as_user(STRANGER, lambda: control(NM_REGISTER, "mme")), errno.EPERM)
        self.assertEqual(self.refused(), before + 1)
        size = self.size()
        for uid in (OWNER, 0):
            self.assertEqual(self.as_user(uid, lambda: (control(NM_REGISTER, "mme"), send(size))[0]), 0)
            self.expect(SERVICE, "mme", size)
        # For a setuid program, the caller is checked.
        self.assertEqual(
            self.meter.inside(lambda: (os.setresuid(STRANGER, OWNER, OWNER), control(NM_REGISTER, "mme"))[1]),
            errno.EPERM,
        )

    def test_only_its_group_registers_a_service(self):
        self.assertEqual(self.as_user(STRANGER, lambda: control(NM_REGISTER, "policydb")), errno.EPERM)
        size = self.size()
        self.assertEqual(
            self.as_user(STRANGER, lambda: (control(NM_REGISTER, "policydb"), send(size))[0], OWNERS_GROUP), 0
        )
        self.expect(SERVICE, "policydb", size)

    def test_nobody_else_gives_a_socket_to_a_service(self):
        for uid, expected in ((STRANGER, errno.EPERM), (OWNER, 0)):
            self.assertEqual(self.as_user(uid, lambda: control(NM_SERVICE, "mme")), expected)
        # A tag is a destination's name, and no service's.
        self.assertEqual(self.as_user(STRANGER, lambda: control(NM_TAG, "mme")), 0)

    def test_root_of_a_user_namespace_is_its_user(self):
        def call():
            become(STRANGER, STRANGER)
            LIBC.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is its own again
            self.assertEqual(LIBC.unshare(CLONE_NEWUSER), 0)
            for file, text in (
                ("setgroups", "deny"),
                ("uid_map", "0 %d 1" % STRANGER),
                ("gid_map", "0 %d 1" % STRANGER),
            ):
                with open("/proc/self/" + file, "w", encoding="ascii") as to:
                    to.write(text)
            self.assertEqual(os.getuid(), 0)
            return control(NM_REGISTER, "mme")

        self.assertEqual(self.meter.inside(call), errno.EPERM)

    def test_an_executables_name_makes_no_service_of_a_stranger(self):
        for name in ("mme", "oai_mme"):
            for uid, kind, seen in ((OWNER, SERVICE, "mme"), (0, SERVICE, "mme"), (STRANGER, BINARY, name)):
                size = self.size()
                self.execute([self.program(name)], size, uid)
                self.expect(kind, seen, size)

    def test_a_command_line_makes_no_service_of_a_stranger(self):
        command = [lab.PYTHON, "-m", "magma.mme.main"]
        size = self.size()
        self.execute(command, size, OWNER)
        self.expect(SERVICE, "mme", size)
        size = self.size()
        self.execute(command, size, STRANGER)
        self.expect(BINARY, "python3", size)
        # The bug: a script of another folder had the folder's name, reserved or not.
        size = self.size()
        self.execute([lab.PYTHON, os.path.join(self.directory, "magma", "mme", "main.py")], size, STRANGER)
        self.expect(BINARY, "python3", size)

    def cgroup(self, name):
        cgroup = os.path.join(self.meter.cgroup, name)
        os.mkdir(cgroup)
        self.addCleanup(os.rmdir, cgroup)
        return cgroup

    def test_a_unit_makes_no_service_of_a_stranger(self):
        for unit in ("mme.service", "magma@mme.service"):
            cgroup = self.cgroup(unit)
            size = self.size()
            self.execute([self.program("other")], size, OWNER, cgroup)
            self.expect(SERVICE, "mme", size)
            size = self.size()
            self.execute([self.program("other")], size, STRANGER, cgroup)
            self.expect(BINARY, "other", size)

    def test_a_unit_of_a_stranger_is_what_the_order_makes_of_it(self):
        """The bug: it was a unit, also where names_from has none, and hid the container."""
        unit = self.cgroup("mme.service")
        container = self.cgroup("mme.service/" + "a" * 64)
        path = os.path.join(self.directory, "order", "other")
        os.makedirs(os.path.dirname(path))
        shutil.copy("/bin/bash", path)
        sources = ["registration", "command_line", "service_list"]
        for places, cgroup, kind, name in (
            ([], container, BINARY, "other"),
            (["container"], unit, BINARY, "other"),
            (["container"], container, CONTAINER, "a" * 12),
            (["unit", "container"], container, UNIT, "mme.service"),
            (["container", "unit"], container, CONTAINER, "a" * 12),
        ):
            config = {**CONFIG, "names_from": sources + places + ["executable"]}
            with self.subTest(places=places, cgroup=cgroup):
                self.meter.load(config)
                size = self.size()
                self.execute([self.program("other")], size, STRANGER, cgroup)
                self.expect(kind, name, size)
                self.run_before_the_load(path, config, cgroup, STRANGER)
                self.expect(kind, name, self.bytes)
                self.meter.unload()
                type(self).before = {}
        self.meter.load(CONFIG)

    def run_before_the_load(self, path, config, cgroup, uid):
        """A shell sends after the load what it was started for before."""
        words = "echo ready; read; printf %%%ds x > /dev/udp/127.0.0.1/%d" % (self.size(), lab.PROXY_PORT)
        self.meter.unload()
        type(self).before = {}

        def prepare():
            with open(cgroup + "/cgroup.procs", "w", encoding="ascii") as procs:
                procs.write("0")
            become(uid, uid)

        process = subprocess.Popen(
            [path, "-c", words], preexec_fn=prepare, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            process.stdout.readline()
            self.meter.load(config)
            process.communicate(b"\n", timeout=20)
        finally:
            process.kill()
            process.wait()

    def test_processes_that_run_before_the_load_are_asked_too(self):
        # A shell can wait, and then send a datagram.
        path = os.path.join(self.directory, "shells", "mme")
        os.makedirs(os.path.dirname(path))
        shutil.copy("/bin/bash", path)
        for uid, kind in ((OWNER, SERVICE), (STRANGER, BINARY)):
            self.run_before_the_load(path, CONFIG, self.meter.cgroup, uid)
            self.expect(kind, "mme", self.bytes)

    def test_a_load_changes_who_may(self):
        self.meter.load({**CONFIG, "register_by": {}})
        self.assertEqual(self.as_user(STRANGER, lambda: control(NM_REGISTER, "mme")), 0)
        self.meter.load(CONFIG)
        self.assertEqual(self.as_user(STRANGER, lambda: control(NM_REGISTER, "mme")), errno.EPERM)
        config = lab.run(lab.LOADER, "status", "--config", "--pin-dir", self.meter.pin_dir).decode()
        self.assertIn('register_by:\n  "mme": "uid:%d"' % OWNER, config)

    # --- No name ----------------------------------------------------------------

    def test_arguments_that_are_rewritten_rename_nobody(self):
        size = self.size()
        self.execute([lab.PYTHON, "-m", "magma.victim.main"], size, 0)
        self.expect(SERVICE, "victim", size)

    def test_a_vfork_has_the_name_of_what_it_executes(self):
        size = self.size()
        path = self.program("spawned")
        variables = {"NM_DO": "udp=127.0.0.1:%d/%d" % (lab.PROXY_PORT, size)}

        def spawn():
            # posix_spawn(3) of glibc is clone(CLONE_VM | CLONE_VFORK).
            child = os.posix_spawn(path, [path], variables)
            return os.waitpid(child, 0)[1]

        self.assertEqual(self.as_user(STRANGER, spawn), 0)
        self.expect(BINARY, "spawned", size)

    def test_vforks_of_one_thread_rename_no_other(self):
        """Neither the process that goes on sending nor what is executed meanwhile."""
        size, count = self.size(), 40
        words = "udp=127.0.0.1:%d/%d" % (lab.PROXY_PORT, size)
        command = [lab.PYTHON, "-c", SPAWN, self.program("spawned"), words, str(count)]
        sent = int(self.execute(command, size, STRANGER))
        self.assertGreater(sent, 2 * count)
        expected = {(BINARY, "python3"): sent, (BINARY, "spawned"): 2 * count * size}
        self.expect_all(expected)

    def test_a_user_namespace_hides_nobody(self):
        size = self.size()
        self.execute(["unshare", "--user", "--map-root-user", self.program("hidden")], size, STRANGER)
        self.expect(BINARY, "hidden", size)

    # --- Beside the meter ---------------------------------------------------------

    def rule(self, change, chain, target):
        """Of nftables, in the test's own network namespace, where the sink is."""
        what = ("-p", "udp", "--dport", str(lab.PROXY_PORT), "-j", target)
        lab.run("iptables-nft", "-w", change, chain, *what)

    def test_tcpdump_and_rules_of_nftables_change_no_count(self):
        # It ends when it has seen both datagrams that leave.
        dump = subprocess.Popen(
            ["tcpdump", "-Z", "root", "--immediate-mode", "-i", "lo", "-c", "2", "udp"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lab.die_with_parent,
        )
        self.addCleanup(dump.communicate)
        self.addCleanup(dump.kill)
        while b"listening on lo" not in dump.stderr.readline():
            self.assertIsNone(dump.poll())
        for chain, target, is_sent in (
            ("OUTPUT", "ACCEPT", True),
            ("OUTPUT", "DROP", False),  # before the hook: it is not sent at all
            ("INPUT", "DROP", True),  # no socket gets it, but it has left
        ):
            with self.subTest(chain=chain, target=target):
                size = self.size()
                self.rule("-A", chain, target)
                try:
                    result = self.as_user(STRANGER, lambda: self.send_as("beside", size))
                finally:
                    self.rule("-D", chain, target)
                self.assertEqual(result, 0 if is_sent else errno.EPERM)
                self.expect_all({(SERVICE, "beside"): size} if is_sent else {})
        self.assertEqual(dump.wait(20), 0)

    @staticmethod
    def send_as(name, size):
        """0, or the errno of the datagram."""
        assert control(NM_REGISTER, name) == 0
        try:
            send(size)
        except OSError as error:
            return error.errno
        return 0


class FullTableTest(unittest.TestCase):
    """A stranger who fills the table of processes, for all users."""

    def setUp(self):
        self.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sink.bind(("127.0.0.1", 0))
        self.addCleanup(self.sink.close)
        self.meter = lab.Meter("full")
        self.addCleanup(self.meter.close)
        running = sum(name.isdigit() for name in os.listdir("/proc"))
        port = self.sink.getsockname()[1]
        self.meter.load({"proxy_ports": [port], "max_processes": running + 30})
        self.sends = SEND.replace("8443", str(port))

    def processes_full(self):
        text = subprocess.check_output([lab.LOADER, "status", "--json", "--pin-dir", self.meter.pin_dir])
        return json.loads(text)["misattributed"]["processes"]["full"]

    def start(self, function):
        """In a child, which ends with this process."""
        child = os.fork()
        if child == 0:
            try:
                lab.die_with_parent()
                function()
                os._exit(0)
            finally:
                os._exit(1)
        return child

    def fill(self):
        """Sleepers of the stranger's, until there is no room."""

        def sleepers():
            become(STRANGER, STRANGER)
            for _ in range(20):
                if os.fork() == 0:
                    lab.die_with_parent()
                    while True:
                        signal.pause()
            while True:
                signal.pause()

        before = self.processes_full()
        for _ in range(50):
            if self.processes_full() > before:
                return
            child = self.start(sleepers)
            self.addCleanup(lambda pid=child: (os.kill(pid, 9), os.waitpid(pid, 0)))
            time.sleep(0.2)
        self.fail("there is room for 1,000 processes more")

    def test_it_renames_nobody(self):
        ours, its = socket.socketpair()

        def service():
            self.meter.enter()
            # Other processes of this machine may fill the table, and end.
            while control(NM_REGISTER, "early") != 0:
                time.sleep(0.02)
            its.send(b"x")
            its.recv(1)
            if os.fork() == 0:  # a worker
                if os.fork() == 0:  # and one of its own
                    os.environ["NM_BYTES"] = "111"
                    exec(self.sends, {})
                    os._exit(0)
                os.wait()
                os._exit(0)
            os.wait()

        child = self.start(service)
        ours.recv(1)
        self.fill()
        ours.send(b"x")
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.fill()
        rename = ("import ctypes; ctypes.CDLL(None).prctl(15, b'early', 0, 0, 0)\n") + self.sends

        def stranger():
            self.meter.enter()
            become(STRANGER, STRANGER)
            os.environ["NM_BYTES"] = "222"
            os.execv(lab.PYTHON, [lab.PYTHON, "-c", rename])

        child = self.start(stranger)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        sent = {key[:2]: row["tx_payload_bytes"] for key, row in self.meter.series().items()}
        # If a process on the machine ends meanwhile, there is room for the stranger: then
        # it has the name of the executed path, and otherwise that of the file.
        self.assertEqual(sent.pop((SERVICE, "early")), 111)
        paths = {lab.PYTHON, os.path.realpath(lab.PYTHON)}
        names = {(BINARY, os.path.basename(path)) for path in paths}
        self.assertEqual([size for key, size in sent.items() if key in names], [222])
        self.assertEqual(len(sent), 1)


if __name__ == "__main__":
    lab.main(120)
