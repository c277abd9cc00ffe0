# SPDX-License-Identifier: BSD-3-Clause
"""A meter of the test's own: the real loader, on its own cgroup and pin
directory, in its own network namespace. Needs root.

What runs in the cgroup is counted; the test itself is outside. Loopback is
counted to and from the proxy port, 8443, on which cloud() listens."""

import contextlib
import ctypes
import fcntl
import os
import pickle
import signal
import socket
import socketserver
import struct
import subprocess
import threading

LOADER = os.path.join("lib", "loader", "netmeter-loader")
PROXY_PORT = 8443


def private_network():
    """Once per process, before it has threads."""
    clone_newnet = 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "unshare (root is needed)")
    siocgifflags, siocsifflags, iff_up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("h", fcntl.ioctl(sock, siocgifflags, request), 16)[0]
        request = struct.pack("16sh14x", b"lo", flags | iff_up)
        fcntl.ioctl(sock, siocsifflags, request)


def cgroup_root():
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            left, right = line.split(" - ")
            if right.split()[0] == "cgroup2":
                return left.split()[4]
    raise OSError("cgroup v2 is not mounted")


class Lab:
    def __init__(self, name):
        name = "netmeter-python-%s-%d" % (name, os.getpid())
        self.pin_dir = os.path.join("/run", name)
        self.cgroup = os.path.join(cgroup_root(), name)
        os.mkdir(self.cgroup)

    def load(self, *arguments):
        self._run("load", "--quiet", "--cgroup", self.cgroup, "--group", "", *arguments)

    def unload(self):
        self._run("unload", "--quiet")

    def close(self):
        self.unload()
        os.rmdir(self.cgroup)

    def enter(self):
        """Moves the calling process into the cgroup."""
        with open(os.path.join(self.cgroup, "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))

    def inside(self, function, *arguments):
        """Calls function in a forked child in the cgroup; its result."""
        return in_child(lambda: (self.enter(), function(*arguments))[1])

    def _run(self, command, *arguments):
        subprocess.run(
            [LOADER, command, "--pin-dir", self.pin_dir, *arguments], check=True
        )


def in_child(function):
    """Calls function in a forked child; returns or raises what it does."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            result = (True, function())
        except BaseException as error:  # all of it goes to the parent
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


class _Cloud(socketserver.StreamRequestHandler):
    """ "UP n\\n" and n bytes; or "DOWN n\\n", answered by n bytes."""

    def handle(self):
        verb, size = self.rfile.readline().decode().split()
        if verb == "UP":
            self.rfile.read(int(size))
        else:
            self.wfile.write(bytes(int(size)))


class _CloudServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextlib.contextmanager
def cloud():
    """A server on the proxy port, which closes every connection itself."""
    with _CloudServer(("127.0.0.1", PROXY_PORT), _Cloud) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
