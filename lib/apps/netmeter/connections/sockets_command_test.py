#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter sockets` from outside: JSON, protobuf, table and options, on sockets
of this process. No meter and no root are needed; test/apps/live/sock_diag_test.cc
has both."""

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import pwd
import random
import re
import socket
import struct
import subprocess
import termios
import time
import unittest

import protobuf_stream

PROGRAM = os.path.abspath("lib/apps/netmeter/netmeter")
SCHEMA = os.path.abspath("lib/apps/connections/sockets.proto")


def run(*arguments):
    done = subprocess.run([PROGRAM, "sockets", "--pin-dir", "/nonexistent", *arguments], capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


class SocketsCommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.listener = socket.create_server(("127.0.0.1", 0), backlog=3)
        cls.port = cls.listener.getsockname()[1]
        cls.client = socket.create_connection(("127.0.0.1", cls.port))
        cls.server = cls.listener.accept()[0]
        cls.client.sendall(b"x" * 12345)
        cls.udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        cls.udp.bind(("::1", cls.port))
        time.sleep(0.3)  # delayed acknowledgements

    @classmethod
    def tearDownClass(cls):
        for one in (cls.listener, cls.client, cls.server, cls.udp):
            one.close()

    def rows(self, *arguments):
        status, out, error = run("--json", "--port", str(self.port), *arguments)
        self.assertEqual(status, 0, error)
        return json.loads(out)

    def test_json_has_the_sockets_and_what_tcp_knows(self):
        rows = self.rows()
        self.assertEqual(sorted((row["protocol"], row["state"]) for row in rows), [
            ("tcp", "ESTABLISHED"), ("tcp", "ESTABLISHED"), ("tcp", "LISTEN"), ("udp", "CLOSE")])
        sent = [row for row in rows if row["remote_port"] == self.port and row["protocol"] == "tcp"][0]
        self.assertEqual(sent["tcpi_bytes_sent"], 12345)
        self.assertEqual(sent["tcpi_bytes_acked"], 12346)  # and the SYN
        self.assertEqual(sent["inode"], os.fstat(self.client.fileno()).st_ino)
        name = open("/proc/self/comm").read().strip()
        self.assertEqual(sent["processes"], [{"pid": os.getpid(), "fd": self.client.fileno(), "name": name}])
        received = [row for row in rows if row["local_port"] == self.port and row["state"] == "ESTABLISHED"][0]
        self.assertEqual(received["rqueue"], 12345)
        # Two fields of 6.18 were hexadecimal digits.
        if os.access("/sys/kernel/btf/vmlinux", os.R_OK):
            self.assertNotIn("tcp_info_more", sent)

    def test_columns_choose_fields_of_json_and_protobuf(self):
        columns = ("--columns", "tcpi_bytes_sent,processes,cookie")
        rows = {row["cookie"]: row for row in self.rows(*columns)}
        sent = [row for row in rows.values() if row.get("tcpi_bytes_sent") == 12345]
        self.assertEqual([sorted(row) for row in sent], [["cookie", "host", "processes", "tcpi_bytes_sent"]])
        self.assertEqual(sent[0]["processes"][0]["fd"], self.client.fileno())
        status, out, error = run("--protobuf", "--port", str(self.port), *columns)
        self.assertEqual(status, 0, error)
        messages = list(protobuf_stream.messages(out, protobuf_stream.schema(SCHEMA).Socket))
        self.assertEqual(len(messages), len(rows))
        for message in messages:
            self.assertEqual(sorted(field.name for field, _ in message.ListFields()), sorted(rows[message.cookie]))
        # A socket of UDP has no such field.
        self.assertEqual(self.rows("--columns", "tcpi_rtt", "--protocol", "udp"), [{"host": socket.gethostname()}])

    def test_csv_has_one_line_of_names(self):
        columns = "local_port,user,process,remote,tcpi_bytes_sent"
        status, out, error = run("--csv", "--columns", columns, "--port", str(self.port), "--interval", "0.1", "--count", "2")
        self.assertEqual(status, 0, error)
        rows = list(csv.DictReader(io.StringIO(out.decode())))
        self.assertEqual(len(rows), 8)
        self.assertEqual(out.decode().splitlines()[0], columns)
        name = open("/proc/self/comm").read().strip()
        sent = [row for row in rows if row["local_port"] == str(self.client.getsockname()[1])]
        self.assertEqual(sent, 2 * [{
            "local_port": str(self.client.getsockname()[1]),
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "process": "%s/%d" % (name, os.getpid()),
            "remote": "127.0.0.1:%d" % self.port,
            "tcpi_bytes_sent": "12345",
        }])
        self.assertEqual({row["tcpi_bytes_sent"] for row in rows if row["remote"].startswith("[::]")}, {""})

    def test_a_remote_name_is_that_of_the_resolver(self):
        columns = "remote_address,remote_port,remote_name"
        rows = list(csv.DictReader(io.StringIO(run("--csv", "--columns", columns, "--port", str(self.port), "--state", "established")[1].decode())))
        try:
            name = socket.getnameinfo(("127.0.0.1", 0), socket.NI_NAMEREQD)[0]
        except socket.gaierror:
            name = ""
        self.assertEqual([(row["remote_address"], row["remote_name"]) for row in rows], 2 * [("127.0.0.1", name)])

    def test_bytes_by_remote_address_are_one_line_of_awk(self):
        with open("docs/peers.md", encoding="utf-8") as file:
            command = re.search(r"sockets_command_test.py -->\n```sh\n(.*?)```", file.read(), re.S).group(1)
        path = {**os.environ, "PATH": os.path.dirname(PROGRAM) + ":" + os.environ["PATH"]}
        lines = subprocess.run(["sh", "-c", command], env=path, stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode().splitlines()
        sums = {address: int(count) for count, address in map(str.split, lines)}
        self.assertGreaterEqual(sums["127.0.0.1"], 2 * 12345)  # sent and received

    def test_a_sample_has_the_same_sockets_each_time(self):
        own = "127.%d.%d.%d" % tuple(random.randrange(1, 255) for _ in range(3))

        def cookies_of(*arguments):
            return {row["cookie"] for row in json.loads(run("--json", "--address", own, *arguments)[1])}

        with contextlib.ExitStack() as stack:
            for i in range(60):
                one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                one.bind((own, 0))
            cookies = cookies_of()
            seen = cookies_of("--sample", "3")
            again = cookies_of("--sample", "3")
        self.assertEqual(len(cookies), 60)
        self.assertEqual(seen, {c for c in cookies if ((c * 0x9E3779B97F4A7C15 & (2**64 - 1)) >> 32) % 3 == 0})
        self.assertEqual(seen, again)

    def test_protobuf_is_the_same_by_the_schema(self):
        kind = protobuf_stream.schema(SCHEMA).Socket
        labels = ("--label", "site=ulm", "--label", "tenant=a=b")
        rows = {row["cookie"]: row for row in self.rows(*labels)}
        status, out, _ = run("--protobuf", "--port", str(self.port), *labels)
        self.assertEqual(status, 0)
        seen = 0
        for message in protobuf_stream.messages(out, kind):
            row = rows[message.cookie]
            fields = {field.name: value for field, value in message.ListFields()}
            fields["labels"] = dict(message.labels)
            self.assertEqual((message.host, fields["labels"]), (socket.gethostname(), {"site": "ulm", "tenant": "a=b"}))
            fields["processes"] = [{"pid": p.pid, "fd": p.fd, "name": p.name} for p in message.processes]
            self.assertEqual(sorted(fields), sorted(row))
            for name, value in fields.items():
                if not name.startswith("tcpi_last_") and name != "time_ns":
                    self.assertEqual(value, row[name], name)
            seen += 1
        self.assertEqual(seen, len(rows))

    def test_every_field_of_the_schema_is_a_column_and_the_other_way_round(self):
        kind = protobuf_stream.schema(SCHEMA).Socket
        names = [field.name for field in kind.DESCRIPTOR.fields if field.name not in ("processes", "host", "labels")]
        status, out, error = run("--columns", ",".join(names), "--sort", names[-1], "--port", str(self.port))
        self.assertEqual(status, 0, error)
        self.assertEqual(out.decode().splitlines()[0].lower().split(), names)
        known = {field.name for field in kind.DESCRIPTOR.fields}
        for row in self.rows():
            self.assertLessEqual(set(row), known)

    def test_a_table_has_its_columns_and_its_order(self):
        columns = "local_port,state,tcpi_bytes_sent"
        status, out, _ = run("--columns", columns, "--protocol", "tcp", "--port", str(self.port), "--sort", "local_port", "--exact")
        self.assertEqual(status, 0)
        lines = [line.split() for line in out.decode().splitlines()]
        self.assertEqual(lines[0], ["LOCAL_PORT", "STATE", "TCPI_BYTES_SENT"])
        ports = [int(line[0]) for line in lines[1:]]
        self.assertEqual(ports, sorted(ports, reverse=True))
        self.assertIn([str(self.client.getsockname()[1]), "ESTABLISHED", "12345"], lines)

    def on_terminal(self, width, *arguments):
        """The lines on a terminal of so many columns."""
        ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        command = [PROGRAM, "sockets", "--pin-dir", "/nonexistent", "--port", str(self.port), *arguments]
        with subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL) as process:
            os.close(terminal)
            text = b""
            with contextlib.suppress(OSError):  # EIO: the program has ended
                while part := os.read(ours, 65536):
                    text += part
            self.assertEqual(process.wait(), 0)
        os.close(ours)
        return text.decode().splitlines()

    def test_a_table_fits_the_terminal(self):
        # It was as wide as in a file, and each line was broken.
        everything = run("--port", str(self.port))[1].decode().splitlines()
        self.assertGreater(len(everything[0]), 150)
        for width in (80, 120):
            lines = self.on_terminal(width)
            self.assertEqual(len(lines), len(everything))
            self.assertLessEqual(max(map(len, lines)), width)
            self.assertLessEqual(set(lines[0].split()), set(everything[0].split()))
            self.assertIn("REMOTE", lines[0])
        # What was asked for stays.
        columns = "local,remote,tcpi_total_retrans,tcpi_bytes_received,tcpi_bytes_sent"
        self.assertEqual(self.on_terminal(60, "--columns", columns)[0].lower().split(), columns.split(","))

    def test_filters_leave_out(self):
        self.assertEqual(len(self.rows("--state", "listen")), 1)
        self.assertEqual(len(self.rows("--address", "127.0.0.0/8")), 3)
        self.assertEqual(len(self.rows("--address", "::1", "--address", "127.0.0.1")), 4)
        self.assertEqual(len(self.rows("--protocol", "udp")), 1)
        self.assertEqual(self.rows("--address", "192.0.2.0/24"), [])

    def test_an_interval_prints_lines_and_ends_after_count(self):
        begin = time.monotonic()
        status, out, error = run("--json", "--interval", "0.2", "--count", "3", "--state", "listen", "--port", str(self.port), "--stats")
        self.assertGreaterEqual(time.monotonic() - begin, 0.4)
        self.assertEqual(status, 0)
        times = [json.loads(line)["time_ns"] for line in out.splitlines()]
        self.assertEqual(len(times), 3)
        self.assertEqual(times, sorted(times))
        self.assertEqual(error.count("1 sockets in "), 3)

    def test_without_a_meter_there_is_no_service_and_one_line_says_why(self):
        status, out, error = run("--json", "--port", str(self.port))
        self.assertEqual(status, 0)
        self.assertNotIn("service", json.loads(out)[0])
        self.assertEqual(error, "netmeter: services are not shown: no meter at /nonexistent (run: netmeter-loader load --pin-dir /nonexistent)\n")
        status, out, error = run("--service", "mme")
        self.assertEqual((status, out), (1, b""))
        self.assertEqual(error, "netmeter: no meter at /nonexistent (run: netmeter-loader load --pin-dir /nonexistent)\n")

    def test_wrong_use_is_one_line(self):
        for arguments in (["--state", "up"], ["--address", "nowhere"], ["--port", "65536"], ["--columns", "lokal"],
                          ["--sort", "local"], ["--protocol", "quic"], ["--count", "3"], ["--interval", "0"],
                          ["--json", "--protobuf"], ["--json", "--csv"], ["--csv", "--exact"], ["--csv", "--label", "a=b"],
                          ["--json", "--columns", "local"], ["--columns", "processes"], ["--sample", "0"],
                          ["--json", "--exact"], ["--pin-dir", ""], ["extra"]):
            status, out, error = run(*arguments)
            self.assertEqual((status, out, error.count("\n")), (2, b"", 1), (arguments, error))
            self.assertTrue(error.startswith("netmeter: ") and error.endswith("(see: netmeter sockets --help)\n"), error)

    def test_a_lost_reader_ends_it_also_where_nothing_is_printed(self):
        # It was noticed by a write alone.
        command = [PROGRAM, "sockets", "--pin-dir", "/nonexistent", "--json", "--interval", "30", "--address", "192.0.2.7"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            time.sleep(0.5)
            self.assertIsNone(process.poll())
            process.stdout.close()
            self.assertEqual(process.wait(10), 1)


if __name__ == "__main__":
    unittest.main()
