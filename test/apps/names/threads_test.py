# SPDX-License-Identifier: BSD-3-Clause
"""A process is not its main thread. A real service whose main thread has ended, as
after pthread_exit(3), and whose other threads have descriptors and a network namespace
of their own, runs when the meter is loaded. It had no name, its sockets were
unattributed, and no command found who holds them."""

import json
import os
import subprocess
import unittest

import lab
import tools

PORT = 9000

# The third thread holds a program of the meter, in a table of its own.
HEADLESS = """import ctypes, os, socket, sys, threading
libc = ctypes.CDLL(None)
CLONE_FILES, CLONE_NEWNET, SYS_BPF, BPF_OBJ_GET = 0x400, 0x40000000, %(bpf)d, 7
port, link = int(sys.argv[1]), sys.argv[2].encode()
ready, loaded = threading.Barrier(4), threading.Event()

def udp():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", port))
    return one

def wait(kept=None):
    ready.wait()
    loaded.wait()

def own_table():
    libc.unshare(CLONE_FILES)
    kept = udp()
    wait()
    path = ctypes.create_string_buffer(link)
    attributes = (ctypes.c_uint64 * 2)(ctypes.addressof(path), 0)
    assert libc.syscall(SYS_BPF, BPF_OBJ_GET, attributes, 16) > 0
    print("holds", flush=True)
    threading.Event().wait()

def own_network():
    assert libc.unshare(CLONE_NEWNET) == 0
    os.system("ip link set lo up")
    kept = udp()
    wait()
    threading.Event().wait()

def listen():
    kept = socket.create_server(("127.0.0.1", port))
    ready.wait()
    print("ready", flush=True)
    assert sys.stdin.readline() == "loaded\\n"
    loaded.set()
    threading.Event().wait()

for run in own_table, own_network, listen:
    threading.Thread(target=run).start()
ready.wait()
libc.pthread_exit(0)
"""


class ThreadsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cls.meter = lab.Meter("threads")
        cls.addClassCleanup(cls.meter.close)

    def start(self):
        bpf = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
        link = os.path.join(self.meter.pin_dir, "link_ingress")
        process = lab.start_service(self, "headless", HEADLESS % {"bpf": bpf}, str(PORT), link)
        self.assertEqual(process.stdout.readline(), "ready\n")
        stat = "/proc/%d/stat" % process.pid

        def main_thread_has_ended():
            with open(stat, encoding="utf-8") as file:
                return file.read().split()[2] == "Z"

        lab.wait_for(main_thread_has_ended, "the end of the main thread")
        return process

    def test_a_process_without_its_main_thread_keeps_its_name_and_what_it_holds(self):
        process = self.start()
        self.meter.load({})
        process.stdin.write("loaded\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "holds\n")
        command = [tools.NETMETER, "sockets", "--json", "--port", str(PORT), "--pin-dir", self.meter.pin_dir]
        # A note on stderr says that some namespaces may not be looked at.
        rows = json.loads(subprocess.run([*command, "--all-netns"], stdout=subprocess.PIPE, check=True).stdout)
        # Other namespaces of the host may have a socket of this port, too.
        rows = [row for row in rows if process.pid in [holder["pid"] for holder in row.get("processes", [])]]
        found = {(row["protocol"], row["network"] == rows[0]["network"]): row for row in rows}
        # The own namespace comes first, with the listener. Each has a datagram socket.
        self.assertEqual(len(rows), 3, rows)
        self.assertEqual(set(found), {("tcp", True), ("udp", True), ("udp", False)})
        for key, row in found.items():
            with self.subTest(socket=key):
                self.assertEqual((row.get("kind"), row.get("service")), ("service", "headless"))
                self.assertEqual(row["owner_pid"], process.pid)
                self.assertEqual({(p["pid"], p["name"]) for p in row["processes"]}, {(process.pid, "python3")})
        cost = json.loads(lab.run(tools.NETMETER, "cost", "--all", "--json", "--seconds", "1"))
        self.assertIn("%d/python3" % process.pid, json.dumps(cost))


if __name__ == "__main__":
    lab.main(60)
