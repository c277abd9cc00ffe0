# SPDX-License-Identifier: BSD-3-Clause
"""A small fleet in real engines, ClickHouse (chdb) and DuckDB, from PyPI: centre.py. Each query of
the dashboard has an answer, a refresh that was missed is made up for by the next, and the bill of a
real export is that of netmeter usage."""

import datetime
import json
import os
import subprocess
import tempfile
import time
import unittest

import clients
import tools

HERE = os.path.join("test", "apps", "fleet")

# In the interpreter that has the engines.
CENTRE = """
import sys
sys.path.insert(0, sys.argv[1])
import centre
centre.main("--gateways 40 --by-hour 8 --months 4 --with-samples 5 --duckdb".split())
"""

SMALL = """
import datetime, json, os, sys
sys.path.insert(0, sys.argv[1])
import centre
engine = centre.Clickhouse(sys.argv[2])
gateway, path = centre.Gateway(1, True), os.path.join(sys.argv[2], "rows.ndjson")
day = datetime.date.today() - datetime.timedelta(3)
values = centre.numpy.ones((24, len(centre.SERIES), len(centre.COUNTERS)), dtype=int)

def send(text):
    with open(path, "w") as file:
        file.write(text)
    engine.insert(path)

def billed():
    return [int(n) for n in engine.query("SELECT sum(bytes), count() FROM bill(from = '%s', to = '%s')" % (day, day))[0]]

named = 9 * 2  # billed series, sent and received
begin = {"uplink": "lte", "budget": "lte", "from": str(day), "to": "2100-01-01", "limit_bytes": 1, "used_bytes": 2, "percent": 200}
gap = {"number": 1, "start": centre.text_of(centre.midnight(day)), "end": centre.text_of(centre.midnight(day) + 60), "what": "lost"}
send(gateway.hour_rows(day, values, 100) + gateway.host_row(centre.midnight(day)) + gateway.row("budget", 1, begin) + gateway.row("gap", 1, gap))
engine.refresh()
assert billed()[0] == 24 * named, billed()
# Three inserts between two refreshes; an older row; a row of the day, then newer hours.
send(gateway.hour_rows(day, 0 * values, 99))
send(gateway.day_rows(day, 7 * values[0], 100))
engine.refresh()
assert billed()[0] == 7 * named, billed()
send(gateway.hour_rows(day, 2 * values, 101))
send(gateway.hour_rows(day, 3 * values, 101, [5]))
assert billed()[0] == 7 * named, billed()
engine.refresh()
assert billed()[0] == 49 * named, billed()
# A refresh that was missed: the days are as a fresh sum of everything.
engine.query("TRUNCATE TABLE days")
engine.refresh()
assert billed()[0] == 49 * named, billed()
with open("examples/fleet/grafana.json") as file:
    panels = json.load(file)["panels"]
for panel in panels:
    (target,) = panel["targets"]
    sql = target["rawSql"].replace("$__fromTime", "toDateTime(%d)" % centre.midnight(day)).replace("$__toTime", "now()")
    rows = engine.query(sql)
    assert rows and rows[0][0] not in (0, "0"), (panel["title"], rows)
for number in range(len(centre.QUESTIONS)):
    engine.ask(number, day, day)
for statement in centre.statements("clickhouse_kafka.sql"):
    engine.query("SELECT formatQuery('%s')" % statement.replace("'", "''"))
print(len(panels), "panels have data")
"""

# What netmeter export writes is in both engines what netmeter usage says.
REAL = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import centre
engines = centre.Clickhouse(sys.argv[2]), centre.Duckdb(sys.argv[2])
path, begin, end = sys.argv[3:6]
answers = []
for engine in engines:
    engine.insert(path)
    engine.refresh()
    bill = {row[2]: [int(row[4]), int(row[5])] for row in engine.ask(centre.BILL, begin, end)}
    ((_, _, *percentile),) = engine.ask(centre.PERCENTILE, begin, end)
    ((_, budget, *_),) = engine.ask(centre.OVER_BUDGET, begin, end)
    answers.append([bill, [int(n) for n in percentile], budget])
print(json.dumps(answers))
"""


class CentreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        cls.python = clients.make_venv("duckdb", "", ["chdb"])

    def run_with_engines(self, text, *arguments):
        # Each has folders of its own.
        with tempfile.TemporaryDirectory() as directory:
            command = [self.python, "-c", text, HERE, directory, *arguments]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE if arguments else None).stdout

    def usage(self, database, *options):
        command = [tools.NETMETER, "usage", "--database", database, "--json", *options]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["rows"]

    def test_the_bill_is_that_of_netmeter_usage(self):
        database, path, budgets = (os.path.join(self.directory, name) for name in ("h.db", "rows.ndjson", "budgets.yml"))
        hours = 70 * 24  # the first days are folded
        start = int(time.time()) // 3600 * 3600 - hours * 3600
        subprocess.run([os.path.join(HERE, "make_history"), database, "12", str(start), "0", str(hours - 1)], check=True)
        with open(budgets, "w", encoding="utf-8") as file:
            json.dump({"budgets": [{"name": "all", "limit": "1 B"}]}, file)
        export = [tools.NETMETER, "export", "--database", database, "--budgets", budgets, "--samples", "--running", "--to", path]
        subprocess.run(export, check=True)
        begin, end = (str(datetime.date.today() - datetime.timedelta(days)) for days in (40, 10))
        period = ("--from", begin, "--to", end)
        bill = {row["service"]: [row["tx_bytes"], row["rx_bytes"]] for row in self.usage(database, *period)}
        self.assertEqual(len(bill), 3)
        (rate,) = self.usage(database, *period, "--percentile", "95")
        percentile = [rate["samples"], rate["tx_bits_per_second"], rate["rx_bits_per_second"]]
        for answer in json.loads(self.run_with_engines(REAL, path, begin, end)):
            self.assertEqual(answer, [bill, percentile, "all"])

    def test_the_dashboard_has_data_and_days_follow_their_rows(self):
        self.run_with_engines(SMALL)

    def test_sums_are_those_of_the_histories(self):
        self.run_with_engines(CENTRE)


if __name__ == "__main__":
    unittest.main()
