# SPDX-License-Identifier: BSD-3-Clause
"""What the root tests in Python share: a meter of the test's own (the real
loader, on its own cgroup and pin directory), network namespaces, and what the
meter saw. Needs root.

    lab.private_network()
    meter = lab.Meter("example")
    meter.load({"proxy_ports": [lab.PROXY_PORT]})
    meter.run(["curl", "-s", "http://127.0.0.1:8443/"])
    print(meter.series())
    meter.close()

What runs in the cgroup is counted. The test itself is outside."""

import contextlib
import ctypes
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest


def path(name):
    """The absolute path of a file of the test, because the programs that a test
    starts have other working directories."""
    return os.path.abspath(name)


LOADER = path("lib/netmeter_loader/netmeter-loader")
BINDING = path("bindings/python")
PYTHON = "/usr/bin/python3"
PROXY_PORT = 8443

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x20000
_LIBC = ctypes.CDLL(None, use_errno=True)

COUNTERS = (
    "tx_bytes",
    "rx_bytes",
    "tx_packets",
    "rx_packets",
    "tx_payload_bytes",
    "rx_payload_bytes",
)


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def run(*arguments, **options):
    """Runs a command that must succeed; shows its output if it fails."""
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    if done.returncode != 0:
        text = done.stdout.decode(errors="backslashreplace")
        raise RuntimeError("%s: status %d\n%s" % (arguments, done.returncode, text))
    return done.stdout


def unshare(namespaces):
    _check(_LIBC.unshare(namespaces), "unshare (root is needed)")


def private_network():
    """The calling thread's. Call it once per process, before it has threads."""
    unshare(CLONE_NEWNET)
    run("ip", "link", "set", "lo", "up")


class Network:
    """Another network namespace."""

    def __init__(self):
        self._own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        private_network()
        self._there = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._go(self._own)
        self.path = "/proc/%d/fd/%d" % (os.getpid(), self._there)
        self.enter = ["nsenter", "--net=" + self.path]

    @staticmethod
    def _go(network):
        _check(_LIBC.setns(network, CLONE_NEWNET), "setns")

    @contextlib.contextmanager
    def inside(self):
        """The calling thread opens its sockets there, and starts programs there."""
        self._go(self._there)
        try:
            yield
        finally:
            self._go(self._own)

    def run(self, *arguments, **options):
        with self.inside():
            return run(*arguments, **options)

    def start(self, test, *arguments, **options):
        """A process there, until the class of the test ends."""
        with self.inside():
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, preexec_fn=die_with_parent, **options)
        test.addClassCleanup(process.wait)
        test.addClassCleanup(process.kill)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                test.addClassCleanup(pipe.close)
        return process

    def serve(self, test, source, *arguments):
        """Starts a server in Python, which prints "ready"; the process."""
        server = self.start(test, PYTHON, "-c", source, *arguments)
        assert server.stdout.readline() == b"ready\n"
        return server

    def join(self, here, there, network, addresses="10.77"):
        """A cable on which each packet is real and of a socket: without offloads, without
        IPv6, whose neighbour discovery would send packets at any time, and without ARP."""
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.path)
        for do, link, own, other in ((run, here, 1, 2), (self.run, there, 2, 1)):
            mac, address = "02:00:00:00:%02x:%%02x" % network, "%s.%d.%%d" % (addresses, network)
            do("sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=1" % link)
            do("ethtool", "-K", link, "tso", "off", "gso", "off", "gro", "off")
            do("ip", "link", "set", link, "address", mac % own)
            do("ip", "address", "add", address % own + "/24", "dev", link)
            do("ip", "link", "set", link, "up")
            do("ip", "neighbour", "replace", address % other, "lladdr", mac % other, "dev", link, "nud", "permanent")

    def join_ipv6(self, here, there, network):
        """IPv6 on a cable, also without packets of the kernel's own."""
        for do, link, own, peer in ((run, here, 1, 2), (self.run, there, 2, 1)):
            do("ip6tables", "-A", "OUTPUT", "-o", link, "-p", "icmpv6", "-j", "DROP")
            do("ip", "link", "set", link, "addrgenmode", "none")
            do("sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=0" % link)
            do("ip", "-6", "address", "add", "fd77:%d::%d/64" % (network, own), "dev", link, "nodad")
            mac = "02:00:00:00:%02x:%02x" % (network, peer)
            address = "fd77:%d::%d" % (network, peer)
            do("ip", "neighbour", "replace", address, "lladdr", mac, "dev", link, "nud", "permanent")


class Cloud(Network):
    """A network that is joined to this one by the cable from "gate" to "cloud"."""

    HERE, THERE = "10.88.0.1", "10.88.0.2"
    MAC = "02:00:00:00:00:02"  # of THERE

    def __init__(self):
        super().__init__()
        self.join("gate", "cloud", 0, "10.88")


def counters():
    """{link: {"tx": (bytes, packets), "rx": ...}} as the interfaces have it."""
    return {
        link["ifname"]: {way: (link["stats64"][way]["bytes"], link["stats64"][way]["packets"]) for way in ("tx", "rx")}
        for link in json.loads(run("ip", "-json", "-statistics", "link", "show"))
    }


def _unescape_mount(field):
    """Undoes the escapes of /proc/self/mountinfo: a space is \\040 there."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda found: chr(int(found.group(1), 8)), field)


def cgroup_root():
    """Where cgroup v2 is mounted."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            left, right = line.split(" - ")
            if right.split()[0] == "cgroup2":
                return _unescape_mount(left.split(" ")[4])
    raise OSError("cgroup v2 is not mounted")


class Meter:
    """A cgroup, with a meter on it once load() was called."""

    def __init__(self, name):
        name = "netmeter-test-%s-%d" % (name, os.getpid())
        self.pin_dir = os.path.join("/run", name)
        self.cgroup = os.path.join(cgroup_root(), name)
        os.mkdir(self.cgroup)
        self._start_janitor()

    def _start_janitor(self):
        """Starts a process that removes everything when this one ends."""
        readable, self._alive = os.pipe()
        self._janitor = os.fork()
        if self._janitor == 0:
            try:
                os.setsid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.alarm(0)
                os.close(self._alive)
                os.read(readable, 1)
                if os.path.exists(self.cgroup):
                    self._clean()
                for directory in _DIRECTORIES:
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os._exit(0)
        os.close(readable)
        # Another meter of this process has a janitor of its own.
        _DIRECTORIES.clear()

    def load(self, config=None, group=""):
        """config: the contents of the file; None: no file. group: may read the meter."""
        options = ["--quiet", "--group", group, "--cgroup", self.cgroup]
        if config is None:
            self._load("load", *options)
            return
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            # JSON is YAML.
            json.dump(config, file)
            file.flush()
            self._load("load", *options, "--config", file.name)

    def unload(self):
        self._load("unload", "--quiet")

    def _load(self, command, *arguments):
        run(LOADER, command, "--pin-dir", self.pin_dir, *arguments)

    def close(self):
        self._clean()
        os.close(self._alive)
        os.waitpid(self._janitor, 0)

    def _clean(self):
        try:
            self.kill()
        finally:
            try:
                self.unload()
            finally:  # even if the loader cannot run
                os.rmdir(self.cgroup)

    def kill(self):
        """Ends what still runs in the cgroup, which is the test's own."""
        for _ in range(500):
            # cgroup.procs no longer has a process whose last thread is ending, for which
            # rmdir(2) fails.
            with open(os.path.join(self.cgroup, "cgroup.events")) as events:
                if "populated 0\n" in events:
                    return
            with open(os.path.join(self.cgroup, "cgroup.procs")) as procs:
                left = [int(pid) for pid in procs]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        raise RuntimeError("processes are left in " + self.cgroup)

    def enter(self):
        """Moves the calling process into the cgroup."""
        # Takes no lock, because this may be the child of a threaded process.
        procs = os.open(self.cgroup + "/cgroup.procs", os.O_WRONLY)
        os.write(procs, b"0")
        os.close(procs)

    def inside(self, function, *arguments):
        """Calls function in a forked child in the cgroup; its result."""
        return in_child(lambda: (self.enter(), function(*arguments))[1])

    def start(self, arguments, **options):
        """Popen in the cgroup."""
        return subprocess.Popen(arguments, preexec_fn=self.enter, **options)

    def run(self, arguments, timeout=60, status=0, **options):
        """Runs a program in the cgroup; its output. status None: any."""
        done = subprocess.run(
            arguments,
            preexec_fn=self.enter,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            **options,
        )
        if status is not None and done.returncode != status:
            text = done.stdout.decode(errors="backslashreplace")
            raise RuntimeError("%s: status %d\n%s" % (arguments, done.returncode, text))
        return done.stdout

    def series(self):
        """{(kind, name, destination, transport, path): {counter: value}} of
        the series that are not zero."""
        import netmeter  # programs without Bazel use this file, too, and may not have it

        found = {}
        with netmeter.Meter.open(self.pin_dir) as meter:
            samples = meter.read_host()
        for one in samples:
            key = (one.kind.value, one.name, one.destination, one.transport.value, one.path.value)
            counters = {counter: getattr(one, counter) for counter in COUNTERS}
            if any(counters.values()):
                assert key not in found, key
                found[key] = counters
        return found


def make_certificate(directory, name, *options):
    """One that its key has signed, and the key: their paths."""
    made = os.path.join(directory, "cert"), os.path.join(directory, "key")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    run("openssl", "req", "-x509", "-nodes", *curve, "-subj", "/CN=" + name, *options, "-out", made[0], "-keyout", made[1])
    return made


def in_child(function):
    """Calls function in a forked child; returns or raises what it does."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            result = (True, function())
        except BaseException as error:  # the parent gets every error
            result = (False, error)
        with os.fdopen(writable, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if not answer:
        raise RuntimeError("the child ended with status %#x" % status)
    good, result = pickle.loads(answer)
    if not good:
        raise result
    return result


def wait_for(condition, what="it", seconds=20):
    """Until condition() is true; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError("%s: not in %d seconds" % (what, seconds))
        time.sleep(0.02)
    return value


def make_package(directory, service, source):
    """magma.<service>.main below directory."""
    package = os.path.join(directory, "magma", service)
    os.makedirs(package, exist_ok=True)
    for init in (os.path.join(directory, "magma"), package):
        open(os.path.join(init, "__init__.py"), "w").close()
    with open(os.path.join(package, "main.py"), "w") as file:
        file.write(source)


def start_service(test, name, source, *arguments, **options):
    """Runs source as the service of this name, told by its command line, in
    test.meter and test.directory, until the test ends. It can import netmeter,
    and talks with the test by its standard input and output."""
    make_package(test.directory, name, source)
    process = test.meter.start(
        [PYTHON, "-m", "magma.%s.main" % name, *arguments],
        cwd=test.directory,
        env=dict(
            os.environ,
            PYTHONPATH=test.directory + ":" + BINDING,
            PYTHONDONTWRITEBYTECODE="1",
            PIN_DIR=test.meter.pin_dir,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.stdin.close)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)
    return process


_DIRECTORIES = []


def temporary_directory(test):
    """Before the meter is made, whose janitor removes it, too."""
    directory = tempfile.mkdtemp(prefix="netmeter-test.")
    _DIRECTORIES.append(directory)
    test.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
    return directory


def die_with_parent():
    """For preexec_fn of what is not in the cgroup."""
    pr_set_pdeathsig = 1
    _LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


def print_table(title, header, rows):
    rows = [tuple(header)] + [tuple(str(cell) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    print("\n" + title)
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    sys.stdout.flush()


def main(seconds):
    """unittest.main() that never takes longer."""
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(seconds)
    unittest.main(verbosity=2)


def _ended(_signal, _frame):
    raise KeyboardInterrupt("ended by a signal")


def _too_long(_signal, _frame):
    # unittest goes on with the next test, which gets some more seconds.
    signal.alarm(10)
    raise TimeoutError("the test took too long")
