#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter flows` beside what the meter counts: 10,000 connections of all kinds,
whose records sum up to the series to the byte; a reader that stops; two readers, and
one that is killed."""

import collections
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import lab
import protobuf_stream
import tools
from flows_traffic import (
    HERE,
    NM_SERVICE,
    NM_SOL,
    NM_TAG,
    NO_FLOW,
    OURS,
    SILENT,
    SPOOFED,
    TCP,
    THERE,
    UDP,
    aborted,
    connect_slowly,
    datagrams,
    echo,
    exchange,
    half_open,
    many_peers,
    pings,
    refused,
    serve,
    spoofed_datagrams,
    timed_out,
)

SCHEMA = lab.path("lib/flows/flows.proto")
COUNTERS = lab.COUNTERS + ("tx_retransmit_bytes",)
KEY = ("kind", "service", "destination", "transport", "path", "uplink")


ATTACHED = "netmeter: attached: connections that begin now are seen from their beginning\n"


class FlowsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cls.cloud = lab.Cloud()
        with cls.cloud.inside():
            cls.server = socket.create_server((THERE, TCP), backlog=4096)
            cls.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            cls.udp.bind((THERE, UDP))
        for address in (SILENT, SPOOFED):
            lab.run("ip", "neighbour", "replace", address, "lladdr", lab.Cloud.MAC, "dev", "gate")
        with open("/proc/sys/net/ipv4/tcp_synack_retries", "w") as file:
            file.write("1")
        cls.meter = lab.Meter("flows")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load()
        threading.Thread(target=serve, args=(cls.server,), daemon=True).start()
        threading.Thread(target=echo, args=(cls.udp,), daemon=True).start()

    def setUp(self):
        self.followers = 0

    def programs(self):
        shown = subprocess.run(["bpftool", "-j", "cgroup", "show", self.meter.cgroup], stdout=subprocess.PIPE, timeout=20).stdout
        return sum(p["name"].startswith("nm_flow_") for p in json.loads(shown or "[]"))

    def known_followers(self):
        """What the meter's programs know: how many see each packet, and how many there are."""
        show = lambda *words: json.loads(lab.run("bpftool", "-j", *words))
        # Debian 13's bpftool shows a pinned link, and exits with 255.
        pin = os.path.join(self.meter.pin_dir, "link_egress")
        command = ["bpftool", "-j", "link", "show", "pinned", pin]
        link = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
        maps = show("prog", "show", "id", str(link["prog_id"]))["map_ids"]
        (word,) = [number for number in maps if show("map", "show", "id", str(number)).get("name") == ".data.followers"]
        value = show("map", "lookup", "id", str(word), "key", *4 * ["0"])["value"]
        number = int.from_bytes(bytes(int(byte, 16) for byte in value), "little")
        return number >> 16, number & 0xFFFF

    def follow(self, *options, form="--json", through=()):
        """Starts a follower, and waits until it is attached."""
        name = os.path.join(self.directory, "flows-%d" % self.followers)
        before = self.programs()
        with open(name, "wb") as out, open(name + ".errors", "wb") as errors:
            follower = subprocess.Popen(
                [*through, tools.NETMETER, "flows", "--follow", form, "--pin-dir", self.meter.pin_dir, *options],
                stdout=out,
                stderr=errors,
                preexec_fn=lab.die_with_parent,
            )
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.followers += 1
        follower.file = name
        lab.wait_for(lambda: self.errors(follower) == ATTACHED or follower.poll(), "the line on stderr")
        self.assertIsNone(follower.poll(), self.errors(follower))
        self.assertEqual(self.programs(), before + 4)
        return follower

    def errors(self, follower):
        with open(follower.file + ".errors", encoding="utf-8") as file:
            return file.read()

    def read(self, follower):
        with open(follower.file, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def finish(self, follower):
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(60), 0, self.errors(follower))
        return self.read(follower)

    @staticmethod
    def waits(process):
        with open("/proc/%d/status" % process.pid, encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))

    def wait_for_flows(self, follower, count, seconds=40):
        def enough():
            return sum(row["record"] == "flow" for row in self.read(follower)) >= count

        lab.wait_for(enough, "%d records" % count, seconds)

    def series(self):
        """{key: {counter: value}}, as KEY: with the uplink."""
        found = collections.defaultdict(collections.Counter)
        rows = json.loads(lab.run(tools.NETMETER, "list", "--json", "--pin-dir", self.meter.pin_dir))
        for row in rows:
            key = tuple(row.get("name" if k == "service" else k) or "" for k in KEY)
            found[key].update({c: row[c] for c in COUNTERS})
        return found

    def check_balance(self, before, rows):
        """The lines of all kinds are what the series counted."""
        sums = collections.defaultdict(collections.Counter)
        for row in rows:
            if row["record"] != "lost":
                key = tuple(row.get(k, "") for k in KEY)
                sums[key].update({c: row[c] for c in COUNTERS if row[c]})
        deltas = collections.defaultdict(collections.Counter)
        for key, row in self.series().items():
            old = before.get(key, {})
            deltas[key].update({c: row[c] - old.get(c, 0) for c in COUNTERS if row[c] != old.get(c, 0)})
        deltas = {key: value for key, value in deltas.items() if value}
        self.assertEqual(dict(sums), deltas)
        self.assertTrue(deltas)

    def python(self, code):
        """A process in the cgroup, once it has said that it is ready."""
        code = "import socket, sys; sys.path.insert(0, %r)\nimport flows_traffic as t\n%s" % (
            os.path.dirname(os.path.abspath(__file__)),
            code,
        )
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(lab.__file__))
        process = self.meter.start([lab.PYTHON, "-B", "-c", code], stdout=subprocess.PIPE, env=environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def ours(self):
        """A server in the cgroup."""
        self.python(
            "l = socket.create_server((t.HERE, t.OURS), backlog=4096)\nprint('ready', flush=True); t.serve(l)"
        )

    def test_ten_thousand_connections_sum_up_to_the_series(self):
        self.ours()
        before = self.series()
        follower = self.follow("--idle", "5")
        begin = time.monotonic()
        self.meter.inside(exchange, 3000)
        self.meter.inside(aborted, 1500)
        self.meter.inside(refused, 500)
        self.meter.inside(timed_out, 500)
        self.meter.inside(datagrams, 3000)
        with self.cloud.inside():
            half_open(500)
        with self.cloud.inside():
            exchange(990, address=(HERE, OURS))
        self.meter.inside(many_peers, 10)
        print("10,000 connections took %.1f s" % (time.monotonic() - begin))
        self.wait_for_flows(follower, 10000)
        rows = self.finish(follower)
        flows = [row for row in rows if row["record"] == "flow"]
        kinds = collections.Counter((r["protocol"], r.get("opened_by"), r["end"], r.get("closed_by")) for r in flows)
        self.assertEqual(
            kinds,
            {
                ("tcp", "local", "fin", "local"): 3000,
                ("tcp", "local", "rst", "local"): 1500,
                ("tcp", "local", "rst", "remote"): 500,
                ("tcp", "local", "timeout", None): 500,
                ("tcp", "remote", "half_open", None): 500,
                ("tcp", "remote", "fin", "remote"): 990,
                ("udp", "local", "closed", "local"): 3010,
            },
        )
        fin, syn, rst, psh, ack = 1, 2, 4, 8, 16
        whole = fin | syn | psh | ack
        self.assertEqual(
            {(r["opened_by"], r["end"], r.get("closed_by"), r["tx_tcp_flags"], r["rx_tcp_flags"]) for r in flows if r["protocol"] == "tcp"},
            {
                ("local", "fin", "local", whole, whole),
                ("local", "rst", "local", syn | rst | psh | ack, syn | ack),
                ("local", "rst", "remote", syn, rst | ack),
                ("local", "timeout", None, syn, 0),
                ("remote", "half_open", None, syn | ack, syn),
                ("remote", "fin", "remote", whole, whole),
            },
        )
        own = os.stat("/proc/thread-self/ns/net").st_ino
        self.assertEqual({(r["interface_name"], r["network"]) for r in flows}, {("gate", own)})
        self.assertEqual(len({row["cookie"] for row in flows if row["end"] == "fin"}), 3990)
        self.assertTrue(all(row["rtt_us"] and row["duration_ns"] for row in flows if row["end"] == "fin"))
        self.assertFalse(any(row.get("partial") for row in flows))
        self.assertEqual([row for row in rows if row["record"] == "lost"], [])
        self.check_balance(before, rows)

    def test_strangers_leave_room_for_connections(self):
        # SYNs and datagrams with unused source addresses filled the table, and no
        # connection had a record any more.
        self.ours()
        self.python(
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((t.HERE, t.SINK))\n"
            "print('ready', flush=True)\nwhile True: u.recv(2000)"
        )
        for strangers in (half_open, spoofed_datagrams):
            before = self.series()
            follower = self.follow("--max-flows", "1000", "--idle", "20")
            with self.cloud.inside():
                strangers(1500)
                exchange(100, 5000, address=(HERE, OURS))
            self.meter.inside(exchange, 100, 5000)
            self.meter.inside(datagrams, 100)
            self.wait_for_flows(follower, 300)
            time.sleep(3)  # SYN-ACKs are sent again after a second
            rows = self.finish(follower)
            ends = collections.Counter((row["end"], row.get("opened_by")) for row in rows if row["record"] == "flow")
            self.assertEqual((ends["fin", "remote"], ends["fin", "local"], ends["closed", "local"]), (100, 100, 100))
            self.assertEqual(sum(ends.values()) - 300, 500)
            self.assertTrue(any(row.get("reason") == "table_full" for row in rows))
            self.check_balance(before, rows)

    def test_a_reader_that_stops_loses_a_number_that_is_known(self):
        before, began = self.series(), time.time_ns()
        follower = self.follow("--buffer", "1")
        follower.send_signal(signal.SIGSTOP)
        self.meter.inside(exchange, 2500, 10)
        self.meter.inside(datagrams, 3000)
        follower.send_signal(signal.SIGCONT)
        rows = self.finish(follower)
        flows = [row for row in rows if row["record"] == "flow"]
        lost = [row["records"] for row in rows if row["record"] == "lost"][-1]
        print("%d records, %d lost" % (len(flows), lost))
        self.assertGreater(lost, 500)
        self.assertEqual(len(flows) + lost, 5500)
        remainder = [row for row in rows if row.get("reason") == "lost_records"]
        self.assertEqual(sum(row["records"] for row in remainder), lost)
        # Lines without a time were of 1970 in a store.
        others = [row for row in rows if row["record"] != "flow"]
        self.assertTrue(all(began <= row["start_ns"] <= row["end_ns"] <= time.time_ns() for row in others))
        self.check_balance(before, rows)
        self.assertIn("%d records were lost" % lost, self.errors(follower))

    def test_a_flow_has_the_ends_of_its_socket_behind_nat(self):
        # A datagram and its answer were two flows. In `netmeter sockets`, a
        # dual-stack socket had ::ffff:10.96.0.11.
        cluster, translated = "10.96.0.11", "10.88.0.3"
        lab.run("ip", "address", "add", translated + "/24", "dev", "gate")
        lab.run("ip", "route", "add", cluster, "dev", "gate", "src", HERE)
        lab.run("iptables", "-t", "nat", "-A", "OUTPUT", "-d", cluster, "-j", "DNAT", "--to-destination", THERE)
        lab.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-d", THERE, "-j", "SNAT", "--to-source", translated)
        self.addCleanup(lab.run, "iptables", "-t", "nat", "-F")
        code = (
            "import socket, sys\n"
            "def open_and_talk(kind, family, to, port):\n"
            "    s = socket.socket(family, kind)\n"
            "    s.connect((to, port)); s.send(b'x' * 100)\n"
            "    if kind == socket.SOCK_STREAM: s.shutdown(1)\n"
            "    while s.recv(2000) and kind == socket.SOCK_STREAM: pass\n"
            "    return s\n"
            "all = [open_and_talk(kind, family, before + %r, port)\n"
            "       for kind, port in ((socket.SOCK_STREAM, %d), (socket.SOCK_DGRAM, %d))\n"
            "       for family, before in ((socket.AF_INET, ''), (socket.AF_INET6, '::ffff:'))]\n"
            "print('ready', flush=True); sys.stdin.readline()\n" % (cluster, TCP, UDP)
        )
        before = self.series()
        follower = self.follow()
        process = self.meter.start([lab.PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            command = [tools.NETMETER, "sockets", "--json", "--address", cluster, "--pin-dir", self.meter.pin_dir]
            sockets = {row["cookie"]: row for row in json.loads(lab.run(*command)) if row["protocol"] == "udp"}
        rows = self.finish(follower)
        flows = [row for row in rows if row["record"] == "flow"]
        ends = ("family", "local_address", "local_port", "remote_address", "remote_port")
        for row in flows:
            self.assertEqual(
                (row["family"], row["local_address"], row["remote_address"]), ("ipv4", HERE, cluster), row
            )
            self.assertEqual((row["tx_payload_bytes"], row["rx_payload_bytes"]), (100, 100))
        udp = {row["cookie"]: row for row in flows if row["protocol"] == "udp"}
        self.assertEqual((len(flows), len(udp), len(sockets)), (4, 2, 2))
        for cookie, row in udp.items():
            self.assertEqual([row[end] for end in ends], [sockets[cookie][end] for end in ends])
        self.check_balance(before, rows)

    def test_a_process_id_that_is_used_again_gives_no_name(self):
        # A flow of a process that had ended got the name of the process with its id, and
        # `netmeter sockets` said that this one had made the socket.
        code = (
            "import os, signal, socket, sys, time\n"
            "s = socket.create_connection((%r, %d)); s.sendall(b'x')\n"
            "if sys.argv[1] == 'leaves' and os.fork(): print('ready', flush=True); os._exit(0)\n"
            "if sys.argv[1] == 'stays': print('ready', flush=True)\n"
            "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
            "s.shutdown(1); s.recv(2); s.close(); signal.pause()\n" % (THERE, TCP)
        )
        # fork() with this process id, as in test/names/sockets_test.py.
        reuse = (
            "import array, ctypes, os, signal, sys\n"
            "libc = ctypes.CDLL(None)\n"
            "ids = array.array('i', [int(sys.argv[1])])\n"
            "arguments = array.array('Q', [0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ids.buffer_info()[0], 1])\n"
            "clone3, pr_set_name = 435, 15\n"
            "child = libc.syscall(clone3, ctypes.c_void_p(arguments.buffer_info()[0]), 8 * len(arguments))\n"
            "if child == 0: libc.prctl(pr_set_name, b'stranger'); print('ready', flush=True); signal.pause()\n"
            "signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL)); os.waitpid(child, 0)\n"
        )
        follower = self.follow()
        end = os.path.join(self.directory, "end")

        def start(*arguments):
            process = self.meter.start([lab.PYTHON, "-c", *arguments], stdout=subprocess.PIPE)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.terminate)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            return process

        stays, leaves = start(code, "stays", end), start(code, "leaves", end)
        self.assertEqual(leaves.wait(20), 0)
        stranger = start(reuse, str(leaves.pid))
        with open("/proc/%d/comm" % leaves.pid, encoding="utf-8") as file:
            self.assertEqual(file.read(), "stranger\n")
        command = [tools.NETMETER, "sockets", "--json", "--port", str(TCP), "--pin-dir", self.meter.pin_dir]
        rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=20, check=True).stdout)
        self.assertEqual({row.get("owner_pid") for row in rows}, {stays.pid, None})
        open(end, "w").close()
        self.wait_for_flows(follower, 2)
        flows = {row["owner_pid"]: row.get("process") for row in self.finish(follower) if row["record"] == "flow"}
        self.assertEqual(flows, {stays.pid: "python3", leaves.pid: None})

    def test_a_connection_that_was_there_before_is_partial(self):
        code = (
            "import socket, sys\n"
            "s = socket.create_connection((%r, %d)); s.sendall(b'x' * 1000)\n"
            "print('ready', flush=True); sys.stdin.readline()\n"
            "s.sendall(b'x' * 500); s.shutdown(1)\n"
            "while s.recv(65536): pass\n" % (THERE, TCP)
        )
        process = self.meter.start([lab.PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            before = self.series()
            follower = self.follow()
            process.stdin.write(b"\n")
            process.stdin.flush()
            self.wait_for_flows(follower, 1)
        rows = self.finish(follower)
        (flow,) = [row for row in rows if row["record"] == "flow"]
        self.assertEqual((flow["partial"], flow["opened_by"], flow["end"]), (1, "local", "fin"))
        self.assertEqual((flow["tx_payload_bytes"], flow["rx_payload_bytes"]), (500, 1500))
        self.check_balance(before, rows)

    def test_a_connection_that_is_tagged_goes_on_in_another_record(self):
        def tagged():
            with socket.create_connection((THERE, TCP)) as one:
                one.sendall(b"x" * 1000)
                time.sleep(0.1)
                one.setsockopt(NM_SOL, NM_TAG, b"streamer")
                one.sendall(b"x" * 300)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass

        before = self.series()
        follower = self.follow()
        self.meter.inside(tagged)
        self.wait_for_flows(follower, 2)
        rows = self.finish(follower)
        first, second = [row for row in rows if row["record"] == "flow"]
        self.assertEqual((first["end"], first["tx_payload_bytes"]), ("moved", 1000))
        self.assertEqual((second["end"], second["tx_payload_bytes"]), ("fin", 300))
        self.assertEqual((second["destination"], second["part"]), ("streamer", 1))
        self.assertEqual(first["cookie"], second["cookie"])
        self.check_balance(before, rows)

    def test_a_handshake_that_moves_is_the_first_part_of_its_connection(self):
        # The second record had part 0, no SYN, and as handshake_ns the time since then.
        with open("/proc/sys/net/ipv4/tcp_migrate_req", "w") as file:  # Linux 5.14
            file.write("1")
        code = (
            "import socket, sys\n"
            "def listener(name):\n"
            "    one = socket.socket()\n"
            "    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
            "    one.setsockopt(%d, %d, name)\n"
            "    one.bind((%r, %d)); one.listen()\n"
            "    return one\n"
            "first = second = listener(b'first')\n"
            "print('ready', flush=True)\n"
            "if sys.stdin.readline() == 'name\\n': first.setsockopt(%d, %d, b'second')\n"
            "else: second = listener(b'second'); first.close()\n"
            "print('moved', flush=True)\n"
            "one = second.accept()[0]\n"
            "while one.recv(100): pass\n"
            "one.close()\n" % (NM_SOL, NM_SERVICE, HERE, OURS, NM_SOL, NM_SERVICE)
        )
        fin, syn, ack = 1, 2, 16
        for port, move in ((11001, b"name\n"), (11002, b"listener\n")):
            with self.subTest(move):
                before = self.series()
                follower = self.follow()
                process = self.meter.start([lab.PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

                def change():
                    process.stdin.write(move)
                    process.stdin.flush()
                    self.assertEqual(process.stdout.readline(), b"moved\n")

                with process:
                    self.assertEqual(process.stdout.readline(), b"ready\n")
                    with self.cloud.inside():
                        took = connect_slowly(port, change)
                self.wait_for_flows(follower, 2)
                rows = self.finish(follower)
                first, second = [row for row in rows if row["record"] == "flow"]
                self.assertEqual((first["service"], first["end"], first["part"]), ("first", "moved", 0))
                self.assertEqual((first["tx_tcp_flags"], first["rx_tcp_flags"]), (syn | ack, syn))
                self.assertEqual((second["service"], second["end"], second["part"]), ("second", "fin", 1))
                self.assertEqual((second["tx_tcp_flags"], second["rx_tcp_flags"]), (fin | syn | ack, fin | syn | ack))
                self.assertGreaterEqual(second["handshake_ns"], took)
                self.check_balance(before, rows)

    def test_an_open_connection_is_seen_while_it_lives(self):
        # A channel of gRPC that lives for weeks had no record before its end.
        code = (
            "import socket, sys\n"
            "s = socket.create_connection((%r, %d))\n"
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((%r, %d))\n"
            "print('ready', flush=True)\n"
            "for line in sys.stdin: s.sendall(b'x' * 1000); u.send(b'u' * 100); u.recv(2000)\n"
            "s.shutdown(1)\n"
            "while s.recv(65536): pass\n" % (THERE, TCP, THERE, UDP)
        )
        before = self.series()
        follower = self.follow("--active", "0.2")
        process = self.meter.start([lab.PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            for count in range(3):
                process.stdin.write(b"\n")
                process.stdin.flush()
                self.wait_for_flows(follower, 2 * (count + 1))
        self.wait_for_flows(follower, 8)
        rows = self.finish(follower)
        for protocol, end, sent in (("tcp", "fin", 3000), ("udp", "closed", 300)):
            flow = [row for row in rows if row.get("protocol") == protocol]
            *active, last = flow
            self.assertEqual({row["end"] for row in active}, {"active"})
            self.assertEqual((last["end"], last["opened_by"]), (end, "local"))
            self.assertEqual([row["part"] for row in flow], list(range(len(flow))))
            self.assertEqual(len({row["cookie"] for row in flow}), 1)
            self.assertEqual(sum(row["tx_payload_bytes"] for row in flow), sent)
            self.assertTrue(all(row["start_ns"] <= row["end_ns"] for row in flow))
            for earlier, later in zip(flow, flow[1:]):
                self.assertLessEqual(earlier["start_ns"] + 200000000, later["start_ns"])
        self.check_balance(before, rows)

    def test_slots_beyond_the_first_extent_have_records(self):
        self.meter = lab.Meter("grown")
        self.addCleanup(self.meter.close)
        self.meter.load({"max_series": 64, "max_names": 64})
        self.meter.load({"max_series": 200, "max_names": 200})

        def tagged():
            for i in range(100):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                    one.setsockopt(NM_SOL, NM_TAG, b"tag%d" % i)
                    one.sendto(b"x" * 100, (THERE, UDP))
                    one.recv(2000)

        before = self.series()
        follower = self.follow()
        self.meter.inside(tagged)
        self.wait_for_flows(follower, 100)
        rows = self.finish(follower)
        self.check_balance(before, rows)
        self.assertEqual({row["destination"] for row in rows if row["record"] == "flow"}, {"tag%d" % i for i in range(100)})

    def test_a_proxy_on_loopback_has_records_at_both_ends(self):
        self.addCleanup(self.meter.load)
        self.meter.load({"proxy_ports": [lab.PROXY_PORT]})

        def both():
            server = socket.create_server(("127.0.0.1", lab.PROXY_PORT))
            threading.Thread(target=serve, args=(server,), daemon=True).start()
            other = socket.create_server(("127.0.0.1", 0))
            threading.Thread(target=serve, args=(other,), daemon=True).start()
            exchange(50, address=("127.0.0.1", lab.PROXY_PORT))
            exchange(50, address=other.getsockname())
            time.sleep(0.5)

        before = self.series()
        follower = self.follow()
        self.meter.inside(both)
        self.wait_for_flows(follower, 100)
        rows = self.finish(follower)
        self.check_balance(before, rows)
        paths = collections.Counter((row["path"], row["opened_by"]) for row in rows if row["record"] == "flow")
        self.assertEqual(paths, {("proxy", "local"): 50, ("proxy", "remote"): 50})

    def test_connections_without_a_record_do_not_wake_the_reader(self):
        # Each of them did, because its record was reserved and discarded. That made
        # loopback that is not counted dearer than loopback that is.
        def local():
            server = socket.create_server(("127.0.0.1", 0))
            threading.Thread(target=serve, args=(server,), daemon=True).start()
            exchange(2000, address=server.getsockname())

        follower = self.follow()
        before = self.waits(follower)
        self.meter.inside(local)
        # It looks four times a second by itself.
        self.assertLess(self.waits(follower) - before, 500)
        self.assertEqual([row for row in self.finish(follower) if row["record"] == "flow"], [])

    def loaded_anew(self):
        return "netmeter: the meter at %s was unloaded, or loaded again (run this again)\n" % self.meter.pin_dir

    def test_a_new_load_ends_it_with_a_message(self):
        self.addCleanup(self.meter.load)
        follower = self.follow()
        self.meter.load({"proxy_ports": [lab.PROXY_PORT + 1]})
        self.assertEqual(follower.wait(20), 1)
        self.assertEqual(self.errors(follower), ATTACHED + self.loaded_anew())
        lab.wait_for(lambda: self.programs() == 0, "programs that go")

    def test_a_meter_that_another_version_made_is_followed(self):
        # Its records are longer: it was "of another version" after a downgrade.
        self.addCleanup(self.meter.load)
        for name, size in (("info", 1232), ("stats", 576)):
            pin = os.path.join(self.meter.pin_dir, name)
            value = json.loads(lab.run("bpftool", "-j", "map", "lookup", "pinned", pin, "key", *4 * ["0"]))["value"]
            os.unlink(pin)
            words = "type array key 4 value %d entries 1 flags 0x400 name nm_%s" % (size, name)
            lab.run("bpftool", "map", "create", pin, *words.split())
            value += (size - len(value)) * ["0"]
            lab.run("bpftool", "map", "update", "pinned", pin, "key", *4 * ["0"], "value", *value)
        self.meter.load({"proxy_ports": [lab.PROXY_PORT + 2]})
        before = self.series()
        follower = self.follow("--idle", "1")
        self.meter.inside(datagrams, 5)
        self.wait_for_flows(follower, 1)
        self.check_balance(before, self.finish(follower))

    def test_a_lost_reader_ends_it_also_where_nothing_is_printed(self):
        command = [tools.NETMETER, "flows", "--follow", "--json", "--pin-dir", self.meter.pin_dir, "--service", "nobody"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent) as follower:
            lab.wait_for(lambda: self.programs() == 4, "four programs")
            follower.stdout.close()
            self.assertEqual(follower.wait(20), 1)

    def test_silent_udp_ends_by_the_time_out_and_what_is_open_has_a_record(self):
        def silent():
            open_one = socket.create_connection((THERE, TCP))
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.sendto(b"u" * 10, (THERE, UDP))
            one.recv(10)
            os.read(ends, 1)
            return one.fileno() + open_one.fileno()

        ends, end = os.pipe()
        before = self.series()
        follower = self.follow("--idle", "1")
        child = threading.Thread(target=self.meter.inside, args=(silent,))
        child.start()
        self.wait_for_flows(follower, 1)
        rows = self.finish(follower)
        self.check_balance(before, rows)
        os.write(end, b"x")
        child.join()
        found = sorted((row["protocol"], row["end"]) for row in rows if row["record"] == "flow")
        self.assertEqual(found, [("tcp", "open"), ("udp", "idle")])

    def test_pings_are_a_flow(self):
        follower = self.follow("--protocol", "icmp")
        self.meter.inside(pings, 5)
        self.meter.inside(datagrams, 5)
        self.wait_for_flows(follower, 1)
        # The kernel's own answers have no socket that a process made.
        self.cloud.run("ping", "-c", "1", "-W", "5", HERE)
        (flow,) = [row for row in self.finish(follower) if row["record"] == "flow"]
        self.assertEqual((flow["protocol"], flow["transport"], flow["end"], flow["opened_by"]), ("icmp", "icmp", "closed", "local"))
        self.assertEqual((flow["remote_address"], flow["tx_packets"], flow["rx_packets"]), (THERE, 5, 5))
        self.assertEqual((flow["tx_bytes"], flow["rx_bytes"]), (140, 140))
        self.assertNotIn("tx_tcp_flags", flow)

    def test_two_followers_tell_the_same_and_a_killed_one_leaves_nothing(self):
        first = self.follow()
        second = self.follow(form="--protobuf")
        killed = self.follow()
        self.assertEqual(self.programs(), 12)
        killed.kill()
        killed.wait()
        lab.wait_for(lambda: self.programs() == 8, "programs that go")
        lab.wait_for(lambda: self.known_followers() == (2, 2), "a number without the killed one")
        self.meter.inside(exchange, 200)
        self.meter.inside(datagrams, 100)
        self.wait_for_flows(first, 300)
        rows = self.finish(first)
        self.finish_protobuf(second, rows)
        lab.wait_for(lambda: self.programs() == 0, "programs that go")
        self.assertEqual(self.known_followers(), (0, 0))

    def finish_protobuf(self, follower, rows):
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(60), 0)
        with open(follower.file, "rb") as file:
            others = [
                {field.name: value for field, value in message.ListFields()}
                for message in protobuf_stream.messages(file.read(), protobuf_stream.schema(SCHEMA).Flow)
            ]
        self.assertEqual(len(others), len(rows))
        # Each takes its own times; one may find a process that has gone for the other.
        own = ("start_ns", "end_ns", "duration_ns", "handshake_ns", "process")
        strip = lambda row: sorted((k, v) for k, v in row.items() if k not in own and v != 0)
        self.assertEqual(sorted(map(strip, rows)), sorted(map(strip, others)))

    def test_filters_choose(self):
        follower = self.follow("--protocol", "udp", "--port", str(UDP), "--address", THERE)
        self.meter.inside(exchange, 5)
        self.meter.inside(datagrams, 5)
        # A filter also applies to traffic that is in no record. Before, that was always
        # printed.
        self.meter.run([lab.PYTHON, "-c", NO_FLOW % (1, THERE)])
        self.wait_for_flows(follower, 5)
        rows = self.finish(follower)
        self.assertEqual([row["protocol"] for row in rows if row["record"] == "flow"], ["udp"] * 5)
        self.assertEqual({row["transport"] for row in rows if row["record"] != "lost"}, {"udp"})

    def test_a_filter_keeps_other_records_out_of_the_buffer(self):
        # Records that no one wanted filled the buffer, and wanted ones were lost.
        for filters, wanted in (("--port", str(TCP)), 51), (("--protocol", "tcp"), 51), (("--address", "192.0.2.0/24"), 0):
            with self.subTest(filters=filters):
                follower = self.follow("--buffer", "1", *filters)
                # The reader refuses a series at its first record.
                self.meter.inside(datagrams, 1)
                self.meter.inside(exchange, 1)
                self.wait_for_flows(follower, min(wanted, 1))
                follower.send_signal(signal.SIGSTOP)
                self.meter.inside(datagrams, 6000)
                self.meter.inside(exchange, 50)
                follower.send_signal(signal.SIGCONT)
                rows = self.finish(follower)
                self.assertEqual(collections.Counter(row.get("protocol") for row in rows if row["record"] == "flow"), {"tcp": wanted} if wanted else {})
                self.assertEqual([row for row in rows if row["record"] == "lost"], [])

    def refuse(self, program, *arguments, **options):
        done = subprocess.run([program, "flows", *arguments], capture_output=True, timeout=20, **options)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, 1, error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertEqual(done.stdout, b"")
        return error

    def test_without_a_meter_or_root_one_line_says_so(self):
        self.assertIn("netmeter-loader load", self.refuse(tools.NETMETER, "--follow", "--pin-dir", "/nonexistent"))
        # In a directory where every user may execute it.
        os.chmod(self.directory, 0o755)
        program = shutil.copy(tools.NETMETER, self.directory)
        options = {"preexec_fn": lambda: os.setuid(65534), "cwd": "/"}
        self.assertIn("root", self.refuse(program, "--follow", "--pin-dir", self.meter.pin_dir, **options))


if __name__ == "__main__":
    lab.main(280)
