#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`netmeter export --to https://...` to a receiver that fails in each way. Afterwards the
receiver has each row as the history has it: none is lost, none is there twice. A failed call
is one line and status 1. Sixty days come in pieces, by a process that stays small."""

import contextlib
import datetime
import os
import re
import sqlite3
import subprocess
import time
import unittest

import lab
import receiver

NETMETER = lab.path("lib/apps/netmeter/netmeter")
MAKE_HISTORY = lab.path("test/apps/fleet/make_history")
HOURS = 60 * 24
MOST_ROWS = 11000  # of a piece: 10,000, and the hour that exceeds it
MOST_KILOBYTES = 64 * 1024
COUNTERS = (
    *("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_payload_bytes", "rx_payload_bytes"),
    "tx_retransmit_bytes",
)
# Prints the most memory in KiB of a command and its children, after its output. A small
# process starts it, because exec(2) does not forget the memory of the one that forked.
MEASURE = """
import os, sys
child = os.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print("memory", usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class ReceiverTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        cls.certificate = cls.make_certificate("good", "IP:127.0.0.1")
        cls.other_host = cls.make_certificate("elsewhere", "DNS:elsewhere.example")
        cls.token_file = cls.write("token", "secret\n")
        cls.wrong_token_file = cls.write("wrong-token", "guess\n")

    @classmethod
    def make_certificate(cls, name, subject):
        os.mkdir(os.path.join(cls.directory, name))
        return lab.make_certificate(os.path.join(cls.directory, name), name, "-addext", "subjectAltName=" + subject)

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.directory, name), "w") as file:
            file.write(text)
        return file.name

    def start_history(self, series):
        """Nothing of it is so old that hours become days."""
        self.database = os.path.join(self.directory, self.id() + ".db")
        self.cursor = self.database + ".cursor"
        self.series = series
        self.start = int(time.time()) // 3600 * 3600 - (HOURS - 24) * 3600
        self.recorded = 0

    def record(self, hours):
        first, self.recorded = self.recorded, self.recorded + hours
        lab.run(MAKE_HISTORY, self.database, str(self.series), str(self.start), str(first), str(self.recorded - 1))

    def command(self, url, token_file=None, ca=None, more=()):
        return [
            *(NETMETER, "export", "--since-last", "--running", "--database", self.database, "--cursor", self.cursor),
            *("--to", url, "--token-file", token_file or self.token_file, "--ca-file", ca or self.certificate[0]),
            *("--timeout", "2", *more),
        ]

    def export(self, *arguments, **options):
        """Its status, what it printed, and the most memory that it or curl took."""
        command = [lab.PYTHON, "-c", MEASURE, *self.command(*arguments, **options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.stdout, "")
        text, kilobytes = re.fullmatch(r"((?:.|\n)*?)memory (\d+)\n", done.stderr).groups()
        self.assertLess(int(kilobytes), MOST_KILOBYTES)
        return done.returncode, text, int(kilobytes)

    def expected(self):
        """{key: counters} of the history's own tables."""
        query = "SELECT day, hour, uplink, kind, name, destination, transport, path, %s FROM traffic" % ", ".join(COUNTERS)
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % self.database, uri=True)) as history:
            rows = history.execute(query).fetchall()
        expected = {}
        for day, hour, *series in rows:
            day = "%d-%02d-%02d" % (day // 10000, day // 100 % 100, day % 100)
            hour = datetime.datetime.fromtimestamp(hour, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            expected[(day, hour, *series[:6])] = tuple(series[6:])
        self.assertEqual(len(expected), len(rows))
        return expected

    def check(self, requests):
        """A store that keeps the newest row of each key has the history."""
        rows = receiver.newest(requests)
        hours = {key[2:]: tuple(row[name] for name in COUNTERS) for key, row in rows.items() if row["row"] == "hour"}
        self.assertEqual(len({key[0] for key in rows}), 1)
        self.assertEqual(hours, self.expected())
        for request in requests:
            self.assertLess(len(receiver.rows_of(request)), MOST_ROWS)

    def test_each_failure_is_a_line_and_loses_nothing(self):
        self.start_history(40)
        server = receiver.Receiver(self.certificate, "secret")
        url = server.url + "?query=INSERT+INTO+rows+FORMAT+JSONEachRow"
        self.record(24)
        self.assertEqual(self.export(url)[:2], (0, ""))
        self.check(server.requests)
        self.assertEqual(len(server.requests), 1)

        def fails(line, hours=3, **options):
            self.record(hours)
            status, text, _ = self.export(url, **options)
            self.assertEqual(status, 1)
            self.assertRegex(text, r"^netmeter: %s\n$" % line)
            outcomes.append((name, status, text.strip()))

        outcomes = []
        host = "127.0.0.1:%d" % server.port
        for name, fault, line in (
            ("killed while it receives", receiver.killed_while_receiving, host + ": .*"),
            ("killed before it answers", receiver.killed_before_the_answer, host + ": .*"),
            ("slow", receiver.silent, host + ": Operation timed out .*"),
            ("full", receiver.answer(507, "Code: 243. DB::Exception: Not enough space"), host + r" answered 507: Code: 243\. DB::Exception: Not enough space"),
            ("500", receiver.answer(500, "out of order\n" * 50), host + " answered 500: out of order"),
            ("429", receiver.answer(429, Retry_After="120"), host + r" answered 429 \(try again in 120 s\)"),
            ("302", receiver.answer(302, Location="/elsewhere"), host + r" answered 302 \(redirects are not followed: \S+\)"),
            ("no HTTP", receiver.no_http, host + ": .*"),
            ("an endless answer", receiver.endless(200), host + " answered 200 with more than 16 kB: .*"),
        ):
            server.fault = fault
            fails(line)
            self.assertGreater(server.faults, 0)
            server.fault, server.faults = None, 0
            # Every second failure is followed by another one.
            if len(outcomes) % 2:
                self.assertEqual(self.export(url)[:2], (0, ""))
                self.check(server.requests)
        name = "a wrong token"
        fails(host + r" answered 401 \(the token of \S+/wrong-token\?\): no such token", token_file=self.wrong_token_file)
        name = "an unknown authority"
        fails(host + ": SSL certificate problem: .*", ca=self.other_host[0])
        server.close()
        name = "down"
        fails(host + ": Failed to connect .*|" + host + ": .*refused.*")
        other = receiver.Receiver(self.other_host, "secret", port=server.port)
        name = "a certificate of another host"
        fails(host + ": SSL: .*", ca=self.other_host[0])
        self.assertEqual(other.requests, [])
        other.close()
        again = receiver.Receiver(self.certificate, "secret", port=server.port)
        self.addCleanup(again.close)
        again.requests = server.requests
        self.assertEqual(self.export(url)[:2], (0, ""))
        self.check(again.requests)
        lab.print_table("A receiver that is", ("STATE", "STATUS", "LINE"), outcomes)

    def test_a_cursor_that_cannot_be_written_is_found_before_anything_is_sent(self):
        self.start_history(1)
        self.record(2)
        server = receiver.Receiver(self.certificate, "secret")
        self.addCleanup(server.close)
        self.cursor = os.path.join(self.directory, "nowhere", "cursor")
        status, text, _ = self.export(server.url)
        self.assertEqual((status, text), (1, "netmeter: write %s: No such file or directory\n" % self.cursor))
        self.assertEqual(server.requests, [])

    def test_sixty_days_come_in_pieces_to_a_receiver_that_is_killed(self):
        self.start_history(50)
        self.record(HOURS - 24)
        kept = os.path.join(self.directory, "kept")
        os.mkdir(kept)
        server = receiver.Receiver(self.certificate, "secret")
        url, port = server.url, server.port
        server.fault = receiver.full(2)
        budgets = self.write("budgets.yml", "budgets: [{name: week, limit: 1 TB, days: 7}]")
        status, text, most = self.export(url, more=["--budgets", budgets])
        server.close()
        # The bug: they came with the last piece alone, and later calls left out former
        # periods.
        rows = receiver.rows_of(server.requests[0])
        self.assertGreaterEqual(sum(row["row"] == "budget" for row in rows), 8)
        self.assertEqual(status, 1)
        self.assertRegex(text, r"^netmeter: 127.0.0.1:%d answered 507: .*\n$" % port)
        self.assertEqual(len(server.requests), 2)
        runs, failed = 1, 1
        # Each receiver is killed when it has two more pieces.
        finished = False
        while not finished:
            before = len(os.listdir(kept))
            process = receiver.Process(kept, port, self.certificate, "secret")
            self.addCleanup(process.kill)
            command = [lab.PYTHON, "-c", MEASURE, *self.command(url)]
            sender = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            lab.wait_for(lambda: sender.poll() is not None or len(os.listdir(kept)) >= before + 2, "two pieces", 60)
            process.kill()
            text = sender.communicate(timeout=60)[1]
            kilobytes = int(re.search(r"memory (\d+)\n$", text)[1])
            most, runs = max(most, kilobytes), runs + 1
            finished = sender.returncode == 0
            if not finished:
                failed += 1
                self.assertEqual(sender.returncode, 1)
                self.assertRegex(text, r"^netmeter: 127.0.0.1:%d: .*\nmemory" % port)
            self.assertLess(runs, 30)
        requests = server.requests + receiver.kept(kept)
        self.check(requests)
        counts = [sum(row["row"] != "budget" for row in receiver.rows_of(request)) for request in requests]
        rows = self.series * (HOURS - 24)
        lab.print_table(
            "Sixty days",
            ("ROWS", "PIECES", "LARGEST", "TWICE", "CALLS", "FAILED", "KIB SENT", "MOST KIB OF MEMORY"),
            [(rows, len(counts), max(counts), sum(counts) - rows - len(counts), runs, failed,
              sum(len(request.body) for request in requests) // 1024, most)],
        )
        self.assertGreaterEqual(len(counts), rows // MOST_ROWS)
        self.assertGreaterEqual(failed, 3)
        # Only the piece that was being sent comes again.
        self.assertLessEqual(sum(counts) - rows - len(counts), failed * MOST_ROWS)
        self.assertLess(most, MOST_KILOBYTES)


if __name__ == "__main__":
    lab.main(200)
