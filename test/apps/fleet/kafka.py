#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rows of a simulated fleet through a real Kafka broker into ClickHouse (chdb); by hand.

    kafka.py FOLDER_OF_JARS

The broker (KRaft, one node) is killed after half of the rows, which were read until then, and kcat
with it. The broker starts again, and all rows are sent again. All messages are then read from the
beginning, so the first half comes three times. The sums must be those of the rows. chdb's Kafka engine does not start
("Shutdown was called"), so kcat(1) reads in its place, and the SQL of clickhouse_kafka.sql is only
parsed. Needs: pip install chdb numpy; kcat; Java 17; the jars of org.apache.kafka:kafka_2.13 and
kafka-tools, by `mvn dependency:copy-dependencies`."""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time

import centre

BROKER, TOPIC = "127.0.0.1:19092", "netmeter.rows"
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:19093
listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:19093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%s/logs
offsets.topic.replication.factor=1
"""


def kcat(*arguments):
    return ["kcat", "-q", "-b", BROKER, *arguments]


def read(path):
    """All messages, from the beginning, into a file; the number of them. None if there is no topic yet."""
    with open(path, "wb") as file:
        subprocess.run(kcat("-C", "-t", TOPIC, "-o", "beginning", "-e"), check=False, stdout=file)
    with open(path, "rb") as file:
        return sum(1 for _ in file)


class Broker:
    def __init__(self, jars, folder):
        self.java = ["java", "-Xmx400m", "-cp", os.path.join(jars, "*")]
        self.properties = os.path.join(folder, "server.properties")
        with open(self.properties, "w", encoding="utf-8") as file:
            file.write(PROPERTIES % (BROKER, folder))
        tool = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", self.properties]
        subprocess.run(self.java + tool, check=True, stdout=subprocess.DEVNULL)

    def start(self):
        self.process = subprocess.Popen(self.java + ["kafka.Kafka", self.properties], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while subprocess.run(kcat("-L", "-m", "2"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            assert self.process.poll() is None, "the broker ended"
            time.sleep(0.2)

    def kill(self):
        self.process.kill()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars")
    options = parser.parse_args()
    gateway, day = centre.Gateway(1, False), datetime.date(2026, 10, 15)
    numbers = centre.numpy.random.default_rng(1).integers(0, 10**9, (2000, len(centre.SERIES), len(centre.COUNTERS)))
    rows = "".join(gateway.day_rows(day + datetime.timedelta(i), numbers[i], 1) for i in range(len(numbers))).encode().splitlines(True)
    half = len(rows) // 2
    with tempfile.TemporaryDirectory() as folder:
        engine, broker, path = centre.Clickhouse(folder), Broker(options.jars, folder), os.path.join(folder, "rows.ndjson")
        for statement in centre.statements("clickhouse_kafka.sql"):
            engine.query("SELECT formatQuery('%s')" % statement.replace("'", "''"))
        broker.start()
        try:
            sender = subprocess.Popen(kcat("-P", "-t", TOPIC, "-X", "acks=all"), stdin=subprocess.PIPE)
            sender.stdin.writelines(rows[:half])
            sender.stdin.flush()
            count = 0
            while count < half - 1000:  # kcat may hold the last ones
                count = read(path)
            engine.insert(path)
            broker.kill()
            print("killed the broker after %d of %d rows" % (count, len(rows)), flush=True)
            sender.kill()  # the gateway keeps its file, and sends it again
            sender.wait()
            broker.start()
            subprocess.run(kcat("-P", "-t", TOPIC, "-X", "acks=all"), check=True, input=b"".join(rows))
            count = read(path)
            assert count >= len(rows) + half - 1000
            print("the topic has %d messages" % count)
            engine.insert(path)
        finally:
            broker.kill()
        engine.refresh()
        expected = [len(rows), int(numbers[..., 0].sum()), int(numbers[..., 1].sum())]
        for table, count in (("traffic FINAL", "count()"), ("days FINAL", "%d" % len(rows))):
            found = [int(n) for n in engine.query("SELECT %s, sum(tx_bytes), sum(rx_bytes) FROM %s" % (count, table))[0]]
            assert found == expected, (table, found, expected)
        print("ClickHouse has %d rows and %d bytes: those of the gateway" % (expected[0], sum(expected[1:])))


if __name__ == "__main__":
    sys.exit(main())
