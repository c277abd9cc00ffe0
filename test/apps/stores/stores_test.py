# SPDX-License-Identifier: BSD-3-Clause
"""examples/stores in real engines, DuckDB and ClickHouse (chdb), from PyPI: what `netmeter
sockets` prints of this host goes into the tables, as JSON and as protobuf, and the queries
find what a simulated stream is known to have."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import clients
import lab
import tools
from flows_traffic import TCP, THERE, UDP, echo, serve

HERE = os.path.join("test", "apps", "stores")

# In the interpreter that has the engines: two of chdb's sessions in a process are one.
INSERT = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import stores
folder, schema = sys.argv[2], os.path.realpath("lib/apps/connections/sockets.proto")
question = "SELECT count(*), sum(tcpi_bytes_sent), count(tcpi_rtt), max(cookie) FROM sockets"
duckdb, clickhouse = stores.Duckdb(folder), stores.Clickhouse(folder)
duckdb.insert(folder + "/sockets.ndjson")
clickhouse.insert(folder + "/sockets.ndjson")
answers = [duckdb.query(question), clickhouse.query(question)]
clickhouse.query("TRUNCATE TABLE sockets")
clickhouse.insert(folder + "/sockets.pb", form="Protobuf", settings="SETTINGS format_schema='%s:Socket'" % schema)
answers.append(clickhouse.query(question))
for engine in (duckdb, clickhouse):
    engine.insert(folder + "/flows.ndjson", "flows")
    answers.append(engine.query("SELECT service, tx_bytes, \\"end\\", duration_ns, part FROM flows ORDER BY record"))
    exported = folder + "/flows.parquet"
    if engine is duckdb:
        engine.query("COPY flows TO '%s' (FORMAT parquet)" % exported)
        answers.append(engine.query("SELECT service, tx_bytes, \\"end\\", duration_ns, part FROM '%s' ORDER BY record" % exported))
for statement in stores.statements("clickhouse_kafka.sql"):
    clickhouse.query("SELECT formatQuery('%s')" % statement.replace("'", "''"))
print(json.dumps(answers))
"""

# Sums by host and series, of the files that are named.
SUMS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import stores
answers = []
for engine in (stores.Duckdb(sys.argv[2]), stores.Clickhouse(sys.argv[2])):
    for path in sys.argv[3:]:
        engine.insert(path, "flows")
    answers.append(engine.query(
        "SELECT host, kind, service, coalesce(destination, ''), transport, path, sum(tx_bytes), sum(rx_bytes), sum(tx_packets),"
        " sum(rx_packets), sum(tx_payload_bytes), sum(rx_payload_bytes) FROM flows WHERE record != 'lost'"
        " GROUP BY host, kind, service, coalesce(destination, ''), transport, path"))
print(json.dumps(answers))
"""

# A process with a channel that lives, as gRPC has, a socket of UDP, and short
# connections. Each line on its stdin makes it send on all of them.
CHANNEL = """
import socket, sys
server, udp = (%r, %d), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel = socket.create_connection(server)
udp.connect((%r, %d))
print("ready", flush=True)
for line in sys.stdin:
    channel.sendall(b"x" * 1000)
    udp.send(b"u" * 100)
    udp.recv(2000)
    with socket.create_connection(server) as short:
        short.sendall(b"s" * 50)
        short.shutdown(socket.SHUT_WR)
        while short.recv(65536): pass
    print("sent", flush=True)
channel.shutdown(socket.SHUT_WR)
while channel.recv(65536): pass
"""

# A pipe that stays open, as that of a stream: parts of the table come meanwhile.
STREAM = """
import glob, json, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import stores
folder, table, path, form, settings = sys.argv[2:]
clickhouse = stores.Clickhouse(folder)
with open(path, "rb") as file:
    rows = file.read()
pipe, written, parts = folder + "/pipe", [0], []
os.mkfifo(pipe)

def write():
    with open(pipe, "wb", buffering=0) as stream:
        end = time.monotonic() + 60
        while not parts and time.monotonic() < end:
            stream.write(rows)
            written[0] += 1
            time.sleep(0.2)
            parts.extend(glob.glob(folder + "/clickhouse/store/*/*/20[0-9]*"))

threading.Thread(target=write).start()
clickhouse.insert(pipe, table, form, settings)
print(json.dumps([len(parts), written[0], clickhouse.query("SELECT count(*) FROM " + table)[0][0]]))
"""


class Gateway:
    """A host of a fleet: a meter of its own, its follower, and the process above."""

    def __init__(self, test, folder, name):
        self.test, self.name = test, name
        self.path = os.path.join(folder, name + ".ndjson")
        self.meter = lab.Meter(name)
        test.addCleanup(self.meter.close)
        self.meter.load()
        follow = [tools.NETMETER, "flows", "--follow", "--json", "--active", "0.1", "--pin-dir", self.meter.pin_dir]
        with open(self.path, "wb") as out:
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, *follow]
            self.follower = subprocess.Popen(command, stdout=out, preexec_fn=lab.die_with_parent)
        test.addCleanup(self.follower.kill)
        lab.wait_for(lambda: lab.run("bpftool", "cgroup", "show", self.meter.cgroup).count(b"nm_flow_") == 4, "a follower")

    def start(self):
        """After all meters are loaded: each forks a process, which would keep the sockets."""
        code = CHANNEL % (THERE, TCP, THERE, UDP)
        self.process = self.meter.start([lab.PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.test.addCleanup(self.process.kill)
        self.test.assertEqual(self.process.stdout.readline(), b"ready\n")

    def send(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def updates(self):
        with open(self.path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.endswith("\n")]
        return sum(row.get("end") == "active" and row["protocol"] == "tcp" for row in rows)

    def finish(self):
        """{(host, series): counters}, as the meter counted them."""
        self.process.communicate(timeout=60)
        self.follower.send_signal(signal.SIGINT)
        self.follower.wait(60)
        return {
            (self.name, *key): [float(row[counter]) for counter in lab.COUNTERS] for key, row in self.meter.series().items()
        }


class StoresTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = clients.make_venv("duckdb", "", ["chdb"])
        lab.private_network()

    def run_python(self, *arguments):
        done = subprocess.run([self.python, *arguments], stdout=subprocess.PIPE, timeout=300, check=True)
        return done.stdout.decode()

    def test_what_the_commands_print_goes_into_the_tables(self):
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server, \
                socket.create_connection(server.getsockname()) as client:
            client.sendall(bytes(5000))
            # A reading as a stream has an object a line.
            for name, options in (("ndjson", ["--json", "--interval", "1", "--count", "1"]), ("pb", ["--protobuf"])):
                with open(os.path.join(folder, "sockets." + name), "wb") as file:
                    command = [tools.NETMETER, "sockets", "--protocol", "tcp", "--port", str(server.getsockname()[1])]
                    subprocess.run(command + options, check=True, stdout=file, stderr=subprocess.DEVNULL)
            with open(os.path.join(folder, "sockets.ndjson"), encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
            with open(os.path.join(folder, "flows.ndjson"), "w", encoding="utf-8") as file:
                file.write('{"record": "flow", "service": "mme", "tx_bytes": 18446744073709551615, "end": "fin", "duration_ns": 0, "part": 0}\n')
                file.write('{"record": "lost", "start_ns": 1800000000000000000, "end_ns": 1800000001000000000, "records": 3}\n')
            answers = json.loads(self.run_python("-c", INSERT, HERE, folder).splitlines()[-1])
        sent = sum(row.get("tcpi_bytes_sent", 0) for row in rows)
        self.assertGreaterEqual(sent, 5000)
        wanted = [[len(rows), sent, sum("tcpi_rtt" in row for row in rows), max(row["cookie"] for row in rows)]]
        self.assertEqual(answers[:3], [wanted] * 3)
        flow = ["mme", 2.0**64, "fin", 0, 0]
        for answer in answers[3:]:
            self.assertEqual([row for row in answer if row[0] == "mme"], [flow])
            self.assertEqual(len(answer), 2)

    def test_rows_of_a_pipe_that_stays_open_are_in_the_table(self):
        # Nothing was inserted before the pipe's end, or a million rows.
        with open(os.path.join("examples", "stores", "clickhouse_stream.settings"), encoding="utf-8") as file:
            settings = "SETTINGS " + file.read()
        schema = os.path.realpath("lib/apps/connections/sockets.proto")
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
            command = [tools.NETMETER, "sockets", "--protocol", "tcp", "--port", str(server.getsockname()[1])]
            for form, options, more in (
                ("JSONEachRow", ["--json", "--interval", "1", "--count", "1"], ""),
                ("Protobuf", ["--protobuf"], ", format_schema = '%s:Socket'" % schema),
            ):
                path, own = os.path.join(folder, form), os.path.join(folder, "of" + form)
                os.mkdir(own)
                with open(path, "wb") as file:
                    subprocess.run(command + options, check=True, stdout=file, stderr=subprocess.DEVNULL)
                text = self.run_python("-c", STREAM, HERE, own, "sockets", path, form, settings + more)
                parts, written, count = json.loads(text.splitlines()[-1])
                self.assertGreater(parts, 0, form)
                self.assertEqual(count, written, form)

    def test_flows_that_live_sum_up_to_the_series_of_each_host(self):
        # An hour of --active 60: 60 records of a channel.
        cloud = lab.Cloud()
        with cloud.inside():
            server = socket.create_server((THERE, TCP), backlog=64)
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind((THERE, UDP))
        for function, argument in (serve, server), (echo, udp):
            threading.Thread(target=function, args=(argument,), daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            gateways = [Gateway(self, folder, "gateway%d" % i) for i in range(3)]
            for gateway in gateways:
                gateway.start()

            def all_have_an_hour():
                for gateway in gateways:
                    gateway.send()
                return min(gateway.updates() for gateway in gateways) >= 60

            lab.wait_for(all_have_an_hour, "60 updates of each channel", 200)
            counted = {}
            for gateway in gateways:
                counted.update(gateway.finish())
            text = self.run_python("-c", SUMS, HERE, folder, *(gateway.path for gateway in gateways))
        self.assertEqual(len({key[0] for key in counted}), 3)
        for rows in json.loads(text.splitlines()[-1]):
            self.assertEqual({tuple(row[:6]): row[6:] for row in rows}, counted)

    def test_queries_find_what_the_simulation_has(self):
        text = self.run_python(
            os.path.join(HERE, "stores.py"), "--sockets", "200", "--seconds", "200", "--netmeter", tools.NETMETER)
        self.assertIn("4000 rows", text)
        self.assertIn("ClickHouse", text)


if __name__ == "__main__":
    unittest.main()
