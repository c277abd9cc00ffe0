#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A simulated stream of `netmeter sockets --json` into DuckDB and ClickHouse (chdb).

    stores.py [--sockets 10000] [--interval 10] [--seconds 3600] [--netmeter PROGRAM]

Each row is one that `netmeter sockets` has printed of a real connection of this kernel, with
addresses, names and growing totals of its own. The tables and the queries are those of
examples/stores. Prints how long each engine took, its size on disk, and the results; fails where
a result is not what the simulation knows it to be. Needs: pip install duckdb chdb"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import chdb.session
import duckdb

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../.."))
START_NS = 1800000000 * 10**9
SERVICES = ["service%02d" % i for i in range(20)]
HOSTS = ["gateway%d" % i for i in range(3)]
DESTINATIONS = ["destination%d" % i for i in range(8)]


def statements(name):
    with open(os.path.join(ROOT, "examples/stores", name), encoding="utf-8") as file:
        return [text.strip() for text in file.read().split(";\n") if text.strip()]


def real_row(netmeter):
    """What netmeter sockets prints of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(bytes(5000))
            command = [netmeter, "sockets", "--json", "--protocol", "tcp"]
            text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            port = client.getsockname()[1]
            return next(row for row in json.loads(text) if row["local_port"] == port)


class Simulation:
    """Socket i belongs to service i % 20, destination i % 8 and host i % 3. Hosts have the same cookies."""

    GROWING = ("time_ns", "tcpi_rtt", "tcpi_bytes_sent", "tcpi_bytes_acked", "tcpi_segs_out",
               "tcpi_bytes_retrans", "tcpi_total_retrans", "tcpi_busy_time", "tcpi_rwnd_limited",
               "tcpi_sndbuf_limited", "tcpi_snd_cwnd", "tcpi_delivery_rate")

    def __init__(self, options):
        self.options = options
        row = real_row(options.netmeter)
        for name in self.GROWING:
            row.pop(name, None)
        self.heads = []
        for i in range(options.sockets):
            row.update(kind="service", service=SERVICES[i % 20], destination=DESTINATIONS[i % 8],
                       host=HOSTS[i % 3], cookie=i // 3 + 1, inode=100000 + i, local_port=1024 + i % 60000,
                       local_address="192.0.2.%d" % (i // 60000 + 1),
                       remote_address="203.0.113.%d" % (i % 8 + 1), remote_port=443,
                       processes=[{"pid": 1000 + i % 20, "fd": i, "name": SERVICES[i % 20]}])
            self.heads.append(json.dumps(row)[:-1])
        self.tail = ", " + ", ".join('"%s": %%d' % name for name in self.GROWING) + "}\n"

    @property
    def polls(self):
        return self.options.seconds // self.options.interval

    @staticmethod
    def sent(i, poll):
        return (10000 + i) * poll

    @staticmethod
    def again(i, poll):
        return 100 * (i % 20) * poll

    def poll(self, poll):
        """The lines of one reading."""
        now = START_NS + poll * self.options.interval * 10**9
        for i, head in enumerate(self.heads):
            sent, again, busy = self.sent(i, poll), self.again(i, poll), 1000000 * poll
            # 20 ms for each destination's number, and up to 1 ms that moves.
            rtt = 20000 * (i % 8 + 1) + (i * 7 + poll * 13) % 1000
            yield head + self.tail % (now, rtt, sent, sent, sent // 1400, again, again // 1400, busy,
                                      busy * (i % 20) // 100, busy // 50, 10 + poll % 30, 100000 + i)

    def check(self, results):
        """results: rows of the queries."""
        round_trips, again, limits, hosts = results
        last = self.polls - 1
        assert len(round_trips) == min(8, self.options.sockets)
        for destination, _, median, p95 in round_trips:
            base = 20 * (DESTINATIONS.index(destination) + 1)
            assert base <= median <= p95 <= base + 1, (destination, median, p95)
        assert sum(row[1] for row in round_trips) == self.options.sockets * self.polls
        for service, connections, sent, repeated, _ in again:
            own = range(SERVICES.index(service), self.options.sockets, 20)
            assert connections == len(own)
            assert sent == sum(self.sent(i, last) for i in own), (service, sent)
            assert repeated == sum(self.again(i, last) for i in own), (service, repeated)
        for service, receiver, buffer in limits:
            assert abs(receiver - SERVICES.index(service)) < 0.1 and abs(buffer - 2) < 0.1, (service, receiver)
        assert [row[0] for row in hosts] == HOSTS
        for host, connections, sent in hosts:
            own = range(HOSTS.index(host), self.options.sockets, 3)
            assert (connections, sent) == (len(own), sum(self.sent(i, last) for i in own)), (host, sent)


def plain(row):
    """The engines have numbers of many types, and ClickHouse quotes those of 64 bits."""
    return tuple(v if v is None or isinstance(v, str) and not v.isdigit() else float(v) for v in row)


class Duckdb:
    name = "DuckDB " + duckdb.__version__

    def __init__(self, folder):
        self.path = os.path.join(folder, "netmeter.duckdb")
        self.database = duckdb.connect(self.path)
        for statement in statements("duckdb.sql"):
            self.database.execute(statement)

    def insert(self, path, table="sockets"):
        self.database.execute("COPY %s FROM '%s' (FORMAT json)" % (table, path))

    def query(self, text):
        return [plain(row) for row in self.database.execute(text).fetchall()]

    def finish(self):
        self.database.execute("CHECKPOINT")

    def bytes(self):
        return os.path.getsize(self.path)


class Clickhouse:
    def __init__(self, folder):
        self.path = os.path.join(folder, "clickhouse")
        self.session = chdb.session.Session(self.path)
        self.name = "ClickHouse " + self.session.query("SELECT version()").bytes().decode().strip().strip('"')
        self.session.query("CREATE DATABASE netmeter")
        self.session.query("USE netmeter")
        for statement in statements("clickhouse.sql"):
            self.session.query(statement)

    def insert(self, path, table="sockets", form="JSONEachRow", settings=""):
        self.session.query("INSERT INTO %s FROM INFILE '%s' %s FORMAT %s" % (table, path, settings, form))

    def query(self, text):
        lines = self.session.query(text, "JSONCompactEachRow").bytes().decode().splitlines()
        return [plain(json.loads(line)) for line in lines]

    def finish(self):
        self.session.query("OPTIMIZE TABLE sockets FINAL")

    def bytes(self):
        return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(self.path) for name in names)


def run(options, engines):
    simulation = Simulation(options)
    folder = options.folder
    made = 0.0
    spent = {engine.name: 0.0 for engine in engines}
    bytes_of_json = 0
    batch = max(1, min(simulation.polls, 60 // options.interval))
    for first in range(0, simulation.polls, batch):
        path = os.path.join(folder, "batch.ndjson")
        begin = time.monotonic()
        with open(path, "w", encoding="utf-8") as file:
            for poll in range(first, min(first + batch, simulation.polls)):
                file.writelines(simulation.poll(poll))
        made += time.monotonic() - begin
        bytes_of_json += os.path.getsize(path)
        for engine in engines:
            begin = time.monotonic()
            engine.insert(path)
            spent[engine.name] += time.monotonic() - begin
        os.unlink(path)
    rows = options.sockets * simulation.polls
    print("%d rows, %.0f MB of JSON, made in %.0f s" % (rows, bytes_of_json / 1e6, made))
    queries = {"DuckDB": statements("queries_duckdb.sql"), "ClickHouse": statements("queries_clickhouse.sql")}
    shown = None
    for engine in engines:
        engine.finish()
        times, results = [], []
        for text in queries[engine.name.split()[0]]:
            begin = time.monotonic()
            results.append(engine.query(text))
            times.append(time.monotonic() - begin)
        simulation.check(results)
        rounded = [[row if i != 0 else row[:2] for row in result] for i, result in enumerate(results)]
        assert shown is None or shown == rounded, "the engines differ"
        shown = rounded
        print("%s: inserted in %.1f s (%.0f rows/s), %.0f MB on disk, queries %s s" %
              (engine.name, spent[engine.name], rows / spent[engine.name], engine.bytes() / 1e6,
               ", ".join("%.2f" % t for t in times)))
        for result in results:
            for row in result[:3]:
                print("   ", *row)
            print("    (%d rows)" % len(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=10000)
    parser.add_argument("--interval", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--netmeter", default=os.path.join(ROOT, "bazel-bin/lib/apps/netmeter/netmeter"))
    options = parser.parse_args()
    options.folder = tempfile.mkdtemp(prefix="netmeter-stores.")
    try:
        run(options, [Duckdb(options.folder), Clickhouse(options.folder)])
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
