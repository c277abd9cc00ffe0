#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A simulated fleet sends rows of `netmeter export` to ClickHouse (chdb), and to DuckDB if asked.

    centre.py [--gateways 10000] [--by-hour 250] [--months 13] [--with-samples 50] [--duckdb]

The tables and the queries are those of examples/fleet. The simulation knows each gateway's
history; the centre sees only the rows, late, twice, and out of order. Fails where a sum of the
centre is not that of the histories, to the byte, for each gateway, uplink and service and each
month from the 15th. Prints times, disk, and bytes on the link. Needs: pip install chdb duckdb numpy"""

import argparse
import datetime
import gzip
import itertools
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time

import numpy

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../.."))
DAY = 86400
ZONE = 2 * 3600  # of all gateways: local days begin at 22:00 UTC
COUNTERS = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_payload_bytes", "rx_payload_bytes", "tx_retransmit_bytes")
COUNTS = ",".join('"%s":%%d' % name for name in COUNTERS) + "}\n"

# uplink, kind, service, destination, transport, path
SERIES = (
    ("lte", "service", "magmad", "", "tcp", "direct"),
    ("lte", "service", "magmad", "control.example", "tcp", "direct"),
    ("lte", "pending", "magmad", "", "tcp", "direct"),
    ("lte", "binary", "sshd", "", "tcp", "direct"),
    ("lte", "container", "nginx", "cdn.example", "tcp", "direct"),
    ("lte", "forwarded", "br0", "", "other", "direct"),
    ("lte", "unnamed", "tunnels and kernel", "", "other", "direct"),
    ("lte", "interface", "lte", "", "other", "interface"),
    ("satellite", "unit", "backup", "store.example", "tcp", "direct"),
    ("satellite", "unnamed", "tunnels and kernel", "", "other", "direct"),
    ("satellite", "interface", "satellite", "", "other", "interface"),
    ("lan", "forwarded", "lte", "", "other", "client direct"),
)
UNNAMED = [i for i, series in enumerate(SERIES) if series[1] == "unnamed"]
LAN = len(SERIES) - 1
FEW = (0, 6, 7, 8)  # of nine gateways in ten

# Gateways with a story of their own. The first four send hours, MOVED days.
LONG_OFFLINE, CURSOR_LOST, LONG_OFFLINE_TOO, CURSOR_LOST_TOO, MOVED, CLONED = range(6)


def statements(name):
    with open(os.path.join(ROOT, "examples/fleet", name), encoding="utf-8") as file:
        return [text.strip() for text in file.read().split(";\n") if text.strip()]


def month_after(day, months):
    month = day.year * 12 + day.month - 1 + months
    return datetime.date(month // 12, month % 12 + 1, day.day)


def text_of(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Gateway:
    """What a gateway is, and the text of its rows."""

    def __init__(self, number, by_hour, which=range(len(SERIES))):
        self.number, self.by_hour = number, by_hour
        self.host_id = "%032x" % random.getrandbits(128)
        self.meter, self.boot_id, self.gaps, self.started = 1, "%032x" % random.getrandbits(128), 0, 0
        self.rename("gateway%05d" % number)
        self.which = list(which)
        self.series = [self.describe(SERIES[i]) for i in self.which]
        self.offline = self.dead = None
        self.backlog = []  # texts, or (day, values, version) of hours

    def rename(self, host):
        self.host = host
        self.head = '","host_id":"%s","host":"%s","labels":{"site":"s%d"},"version":%%d,' % (self.host_id, host, self.number % 100)

    @staticmethod
    def describe(series):
        names = ("uplink", "kind", "service", "destination", "transport", "path")
        return ",".join('"%s":"%s"' % pair for pair in zip(names, series)) + ","

    def row(self, kind, version, fields):
        return '{"row":"' + kind + self.head % version + json.dumps(fields)[1:] + "\n"

    def day_rows(self, day, values, version, series=None):
        begin = '{"row":"day' + self.head % version + '"day":"%s",' % day
        of_series = (series or self.series), (values if series else values[self.which])
        return "".join([begin + name + COUNTS % tuple(v) for name, v in zip(of_series[0], of_series[1].tolist())])

    def hour_rows(self, day, hours, version, which=range(24)):
        rows = []
        for hour in which:
            begin = '{"row":"hour' + self.head % version + '"day":"%s","hour":"%s",' % (day, text_of(midnight(day) + hour * 3600))
            rows += [begin + name + COUNTS % tuple(v) for name, v in zip(self.series, hours[hour][self.which].tolist())]
        return "".join(rows)

    def rows(self, day, values, version):
        return (self.hour_rows if self.by_hour else self.day_rows)(day, values, version)

    def host_row(self, recorded, boot_id=None):
        return self.row("host", recorded, {"meter": self.meter, "boot_id": boot_id or self.boot_id, "started": text_of(self.started),
                                           "recorded": text_of(recorded), "netmeter": "1.0.0"})


def midnight(day):
    """The start of a local day, in Unix time."""
    return (day - datetime.date(1970, 1, 1)).days * DAY - ZONE


class Simulation:
    def __init__(self, options):
        self.options = options
        random.seed(options.seed)
        self.numbers = numpy.random.default_rng(options.seed)
        self.now = int(time.time())
        today = datetime.datetime.fromtimestamp(self.now + ZONE, datetime.timezone.utc).date()
        last = today.replace(day=15) if today.day >= 15 else month_after(today.replace(day=15), -1)
        self.periods = [month_after(last, i - options.months) for i in range(options.months + 1)]
        self.days = [self.periods[0] + datetime.timedelta(i) for i in range((today - self.periods[0]).days + 1)]
        self.gateways = [Gateway(i, i < options.by_hour and i != MOVED, range(12) if i < 6 or i % 10 == 0 else FEW)
                         for i in range(options.gateways)]
        # Bytes of each period, gateway and series, by direction: what the histories have.
        self.truth = numpy.zeros((len(self.periods), options.gateways, len(SERIES), 2), dtype=numpy.int64)
        self.later = {}  # day -> texts that arrive then
        self.gaps = []  # (host number, start)
        self.events = dict.fromkeys(("offline", "offline over 60 days", "reboots", "clock errors", "twice", "older after newer",
                                     "late", "changed later", "renamed", "silent"), 0)
        self.plan()

    def plan(self):
        count = len(self.days)
        for gateway in self.gateways[6:]:
            chance = random.random()
            if chance < 0.05:
                begin = random.randrange(1, count - 62)
                gateway.offline = (begin, begin + random.randrange(1, 61))
                self.events["offline"] += 1
            elif chance < 0.052 or gateway.number == 6:
                gateway.dead = random.randrange(count // 2, count - 3)
                self.events["silent"] += 1
        for number in (LONG_OFFLINE, LONG_OFFLINE_TOO):
            self.gateways[number].offline = (20, 20 + 90)
            self.events["offline over 60 days"] += 1
        typical = self.numbers.lognormal(13, 2, (len(self.gateways), len(SERIES), 1)).clip(100, 4e9)
        typical[:, UNNAMED] = self.numbers.integers(-1000, 5000, (len(self.gateways), len(UNNAMED), 1)) * 100
        for gateway in self.gateways:
            typical[gateway.number, [i for i in range(len(SERIES)) if i not in gateway.which]] = 0
        self.typical = typical
        self.log = {number: [] for number in (CURSOR_LOST, CURSOR_LOST_TOO, MOVED)}
        self.clock = {}  # (gateway, day) -> values of a day when the clock was three days ahead

    def draw(self, typical, shape, divisor=1):
        """Counters about as large as those of each series."""
        bytes_ = (typical / divisor * self.numbers.uniform(0.2, 2, shape)).astype(numpy.int64)
        packets = numpy.sign(bytes_) * (abs(bytes_) // 700 + 1)
        payload = bytes_ - 52 * packets
        return numpy.concatenate([bytes_, packets, payload, payload[..., :1] // 200], axis=-1)

    def batches(self):
        """The text that arrives on each day."""
        for index, day in enumerate(self.days):
            texts = self.later.pop(index, [])
            values = self.draw(self.typical, (len(self.gateways), len(SERIES), 2))
            by_hour = self.options.by_hour
            hours = self.draw(self.typical[:by_hour, None], (by_hour, 24, len(SERIES), 2), 24)
            values[:by_hour] = hours.sum(axis=1)
            for gateway in self.gateways:
                self.one_day(index, day, gateway, values, hours, texts)
            period = sum(day >= begin for begin in self.periods) - 1
            self.truth[period] += values[..., :2]
            yield texts
        yield [text for texts in self.later.values() for text in texts]

    def one_day(self, index, day, gateway, all_values, all_hours, texts):
        number, last = gateway.number, len(self.days) - 1
        if gateway.dead is not None and index >= gateway.dead:
            all_values[number] = 0
            return
        end = min(midnight(day) + DAY - 60, self.now)
        if gateway.started == 0:
            gateway.started = end - DAY
        values = all_hours[number] if gateway.by_hour else all_values[number]
        extra = self.happenings(index, gateway, end)
        if not gateway.by_hour and number > 6 and self.clock_error(index, gateway, all_values, end, texts, extra):
            return
        if number == MOVED:
            self.move(index, gateway, end, texts)
        text = gateway.rows(day, values, end) + extra + gateway.host_row(end)
        if number in self.log:
            self.log[number].append((day, values.copy(), end))
        if gateway.offline and gateway.offline[0] <= index < gateway.offline[1]:
            if gateway.by_hour:
                if not gateway.backlog:  # the first half of this day was sent
                    texts.append(gateway.hour_rows(day, values, end - 12 * 3600, range(12)))
                gateway.backlog.append((day, values.copy(), end))
                self.later.setdefault(gateway.offline[1], []).append(extra)
            else:
                gateway.backlog.append(text)
            return
        if gateway.backlog:
            self.send_backlog(day, gateway, texts)
        self.special(index, day, gateway, values, end, texts)
        self.deliver(index, last, day, gateway, values, end, text, texts)

    def happenings(self, index, gateway, end):
        """Rows of a reboot, or a new name."""
        if index and random.random() < 1 / 30:
            gateway.meter, gateway.boot_id, gateway.started = gateway.meter + 1, "%032x" % random.getrandbits(128), end - 600
            self.events["reboots"] += 1
            return self.gap(gateway, end, "lost")
        if index == len(self.days) // 2 and gateway.number % 100 == 50:
            gateway.rename("renamed%05d" % gateway.number)
            self.events["renamed"] += 1
        return ""

    def gap(self, gateway, end, what):
        gateway.gaps += 1
        self.gaps.append((gateway.number, end - 660))
        return gateway.row("gap", end, {"number": gateway.gaps, "start": text_of(end - 660), "end": text_of(end - 600), "what": what})

    def clock_error(self, index, gateway, all_values, end, texts, extra):
        """A day of which the history says that it was three days later."""
        number = gateway.number
        if (number, index) in self.clock:
            all_values[number] += self.clock.pop((number, index))
        if number % 50 or index != 30 + number % 20 or gateway.offline or index + 3 >= len(self.days):
            return False
        self.clock[number, index + 3] = all_values[number].copy()
        text = gateway.day_rows(self.days[index + 3], all_values[number], end) + self.gap(gateway, end, "clock") + gateway.host_row(end)
        texts.append(text + extra)
        all_values[number] = 0
        self.events["clock errors"] += 1
        return True

    @staticmethod
    def send_backlog(day, gateway, texts):
        if gateway.by_hour:
            for then, hours, version in gateway.backlog:
                if (day - then).days > 60:
                    texts.append(gateway.day_rows(then, hours.sum(axis=0), version))
                else:
                    texts.append(gateway.hour_rows(then, hours, version))
        else:
            random.shuffle(gateway.backlog)
            texts.extend(gateway.backlog)
        gateway.backlog = []

    def special(self, index, day, gateway, values, end, texts):
        number = gateway.number
        if number in (CURSOR_LOST, CURSOR_LOST_TOO) and index == len(self.days) - 20:
            # Sends all that it has: days for which the centre has hours.
            for then, hours, version in self.log[number]:
                if (day - then).days > 60:
                    texts.append(gateway.day_rows(then, hours.sum(axis=0), version))
        if number == CLONED and index >= len(self.days) // 2:
            texts.append(gateway.rows(day, values * 2, end + 1) + gateway.host_row(end + 1, "c" * 32))

    def move(self, index, gateway, end, texts):
        """The uplink of a LAN joins forwarded_clients: its traffic leaves the bill, of earlier days, too."""
        client, direct = gateway.describe(SERIES[LAN]), gateway.describe(SERIES[LAN][:5] + ("direct",))
        gateway.series[LAN] = direct if index < len(self.days) // 2 else client
        if index == len(self.days) // 2:
            for then, old, _ in self.log[MOVED]:
                texts.append(gateway.day_rows(then, 0 * old[LAN:], end, [direct]))
                texts.append(gateway.day_rows(then, old[LAN:], end, [client]))

    def deliver(self, index, last, day, gateway, values, end, text, texts):
        def later(days, what):
            self.later.setdefault(min(last + 1, index + days), []).append(what)

        chance = random.random()
        if gateway.number == MOVED or chance > 0.2:
            texts.append(text)
        elif chance < 0.05:
            texts.append(text)
            (texts.append if chance < 0.03 else lambda t: later(random.randrange(1, 40), t))(text)
            self.events["twice"] += 1
        elif chance < 0.10:
            partly = gateway.rows(day, values // 2, end - 3600)
            texts.append(text)
            later(random.randrange(0, 3), partly)
            self.events["older after newer"] += 1
        elif chance < 0.15:
            later(random.randrange(1, 20), text)
            self.events["late"] += 1
        else:
            texts.append(gateway.rows(day, values - values // 3, end - 3600))
            later(random.randrange(1, 30), text)
            self.events["changed later"] += 1

    def last_rows(self):
        """Budgets and costs, and samples of the last whole period."""
        begin, end = self.periods[-1], month_after(self.periods[-1], 1) - datetime.timedelta(1)
        texts = []
        for gateway in self.gateways:
            for version, percent in ((self.now - 10, 99.0), (self.now, 120.0 if gateway.number % 40 == 0 else 50.0)):
                texts.append(gateway.row("budget", version, {
                    "budget": "lte", "from": str(begin), "to": str(end), "uplink": "lte", "limit_bytes": 10**10,
                    "used_bytes": int(percent * 10**8), "percent": percent}))
            texts.append(gateway.row("cost", self.now, {
                "plan": "lte", "from": str(self.periods[-2]), "to": str(begin - datetime.timedelta(1)), "uplink": "lte", "currency": "EUR",
                "cost_micros": 10**7 + gateway.number, "billed_bytes": 10**9, "used_bytes": 10**9}))
        self.samples = {}
        slots = (begin - self.periods[-2]).days * 288
        for gateway in self.gateways[6:6 + self.options.with_samples]:
            first = midnight(self.periods[-2])
            present = sorted({0, *random.sample(range(slots), slots * random.choice((3, 70, 99)) // 100)})
            sizes = self.numbers.integers(0, 10**8, (len(present), 2)).tolist()
            self.samples[gateway.number] = (slots, sizes)
            for slot, (tx, rx) in zip(present, sizes):
                start = first + slot * 300
                texts.append(gateway.row("sample", start + 300, {
                    "start": text_of(start), "uplink": "lte", "day": str(self.periods[-2] + datetime.timedelta(slot // 288)),
                    "tx_bytes": tx, "rx_bytes": rx}))
        return texts

    def bill(self, period):
        """{(host, uplink, service): (sent, received)} of the histories."""
        sums = self.truth[period].copy()
        sums[:, UNNAMED] = sums[:, UNNAMED].clip(0)
        bill = {}
        for gateway, of_gateway in zip(self.gateways, sums.tolist()):
            for (uplink, _, service, _, _, path), (tx, rx) in zip(SERIES, of_gateway):
                if path == "direct" and tx + rx:
                    old = bill.get((gateway.host, uplink, service), (0, 0))
                    bill[gateway.host, uplink, service] = (old[0] + tx, old[1] + rx)
        return bill


class Clickhouse:
    def __init__(self, folder):
        import chdb.session  # after the fork
        self.path = os.path.join(folder, "clickhouse")
        self.session = chdb.session.Session(self.path)
        self.name = "ClickHouse " + self.query("SELECT version()")[0][0]
        self.session.query("SET max_memory_usage = 4000000000, max_threads = 2")
        for statement in statements("clickhouse.sql"):
            self.session.query(statement)

    def insert(self, path):
        self.session.query("INSERT INTO rows FROM INFILE '%s' SETTINGS date_time_input_format = 'best_effort',"
                           " input_format_skip_unknown_fields = 1 FORMAT JSONEachRow" % path)

    def refresh(self):
        self.session.query("SYSTEM REFRESH VIEW to_days")
        self.session.query("SYSTEM WAIT VIEW to_days")

    def query(self, text):
        lines = self.session.query(text, "JSONCompactEachRow").bytes().decode().splitlines()
        return [json.loads(line) for line in lines]

    def ask(self, number, begin, end):
        """The answer to a query of the file, for a period."""
        self.session.query("SET param_from = '%s', param_to = '%s'" % (begin, end))
        return self.query(statements("queries_clickhouse.sql")[number + 2])

    def bytes(self):
        return {table: int(size) for table, size in self.query(
            "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'netmeter' GROUP BY table ORDER BY table")}


class Duckdb:
    def __init__(self, folder):
        import duckdb
        self.folder = os.path.join(folder, "duckdb")
        os.mkdir(self.folder)
        self.name = "DuckDB " + duckdb.__version__
        self.database = duckdb.connect(os.path.join(folder, "fleet.duckdb"))
        for statement in statements("duckdb.sql"):
            self.database.execute(statement)

    def insert(self, path):
        self.database.execute("COPY rows FROM '%s' (FORMAT json)" % path)

    def refresh(self):
        pass

    def ask(self, number, begin, end):
        self.database.execute("SET VARIABLE first = DATE '%s'; SET VARIABLE last = DATE '%s'" % (begin, end))
        rows = self.database.execute(statements("queries_duckdb.sql")[number + 2]).fetchall()
        return [[int(v) if isinstance(v, int) else v for v in row] for row in rows]


BILL, OVER_BUDGET, GROWTH, GAPS, SILENT, PERCENTILE, CLONES, COST, CHECK = range(9)
QUESTIONS = ("bill", "over budget", "growth", "gaps", "silent", "percentile", "clones", "cost", "check of the sums")


def write_batches(options, folder, queue):
    """In a process of its own: files of what arrives in ten days, in any order, and then the truth."""
    try:
        queue.put(write_all(options, folder, queue))
    finally:
        queue.put(None)


def write_all(options, folder, queue):
    simulation = Simulation(options)
    batches = simulation.batches()
    for index in range(0, len(simulation.days) + 1, 10):
        texts = [text for batch in itertools.islice(batches, 10) for text in batch]
        random.shuffle(texts)
        path = os.path.join(folder, "day%d.ndjson" % index)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(texts)
        queue.put(path)
    path = os.path.join(folder, "last.ndjson")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(simulation.last_rows())
    queue.put(path)
    return simulation


def percentile(sizes, count):
    """lib/apps/history/samples.cc"""
    zeros, rank = count - len(sizes), (count * 95 + 99) // 100
    return (0 if rank <= zeros else sorted(sizes)[rank - zeros - 1]) * 8 // 300


def check(simulation, engine):
    """Compares each answer; returns the seconds that each took."""
    seconds = {}

    def ask(question, begin, end):
        started = time.monotonic()
        answer = engine.ask(question, begin, end)
        seconds.setdefault(question, time.monotonic() - started)
        return answer

    gateways, cloned = simulation.gateways, simulation.gateways[CLONED].host
    bills, rows = [], 0
    ends = [begin - datetime.timedelta(1) for begin in simulation.periods[1:]] + [month_after(simulation.periods[-1], 1) - datetime.timedelta(1)]
    for period in reversed(range(len(simulation.periods))):
        truth = simulation.bill(period)
        bills.insert(0, truth)
        found = {(row[0], row[1], row[2]): (int(row[4]), int(row[5])) for row in ask(BILL, simulation.periods[period], ends[period])}
        wrong = {key for key in truth.keys() | found.keys() if truth.get(key) != found.get(key) and key[0] != cloned}
        assert not wrong, (engine.name, period, len(wrong), [(key, truth.get(key), found.get(key)) for key in sorted(wrong)[:5]])
        rows += len(found)
    seconds.pop(BILL)
    begin, end = simulation.periods[-2], ends[-2]
    ask(BILL, begin, end)  # of a whole month
    hosts = {row[0] for row in ask(OVER_BUDGET, begin, end)}
    assert hosts == {gateway.host for gateway in gateways if gateway.number % 40 == 0}, hosts
    growth = {}
    for sign, bill in ((1, bills[-2]), (-1, bills[-3])):
        for key, (tx, rx) in bill.items():
            growth[key[0]] = growth.get(key[0], 0) + sign * (tx + rx)
    growth.pop(cloned)
    expected = sorted(growth.items(), key=lambda item: (-item[1], item[0]))[:19]
    assert [(row[0], int(row[3])) for row in ask(GROWTH, begin, end) if row[0] != cloned][:19] == expected
    starts = [start for _, start in simulation.gaps if begin <= datetime.date(1970, 1, 1) + datetime.timedelta(start // DAY) <= end]
    assert len(ask(GAPS, begin, end)) == len(starts) > 0
    hosts = {row[0] for row in ask(SILENT, begin, end)}
    assert hosts == {gateway.host for gateway in gateways if gateway.dead is not None}, hosts
    found = {row[0]: [int(n) for n in row[2:]] for row in ask(PERCENTILE, begin, end)}
    expected = {gateways[number].host: [count, percentile([tx for tx, _ in sizes], count), percentile([rx for _, rx in sizes], count)]
                for number, (count, sizes) in simulation.samples.items() if gateways[number].dead is None}
    assert {host: row for host, row in found.items() if host in expected} == expected
    assert [row[0] for row in ask(CLONES, begin, end)] == [gateways[CLONED].host_id] * len({row[1] for row in ask(CLONES, begin, end)})
    ((plan, currency, count, _, cost),) = ask(COST, begin, end)
    assert (plan, currency, int(count)) == ("lte", "EUR", len(gateways))
    assert round(float(cost) * 10**6) == 10**7 * len(gateways) + sum(gateway.number for gateway in gateways), cost
    if isinstance(engine, Clickhouse):
        assert ask(CHECK, begin, end) == []
    print("%s: %d sums of %d periods are those of the histories, to the byte" % (engine.name, rows, len(simulation.periods)))
    print("    " + ", ".join("%s %.2f s" % (QUESTIONS[question], spent) for question, spent in seconds.items()))


def link(simulation, series, by_hour):
    """Bytes of 30 days on the link: gzip of each piece, without HTTP and TLS."""
    gateway = Gateway(0, by_hour)
    names = [SERIES[i % 12][:2] + ("%s%d" % (SERIES[i % 12][2], i // 12),) + SERIES[i % 12][3:] for i in range(series)]
    gateway.which, gateway.series = range(series), [gateway.describe(name) for name in names]
    typical = numpy.concatenate([simulation.typical[i // 12 * 10 % len(simulation.gateways)][i % 12:i % 12 + 1] for i in range(series)])
    total = pieces = 0
    for index, day in enumerate(simulation.days[:30]):
        for hour in range(24 if by_hour else 1):
            end = midnight(day) + (hour + 1) * (3600 if by_hour else DAY)
            values = simulation.draw(typical, (series, 2), 24 if by_hour else 1)
            text = gateway.hour_rows(day, {hour: values}, end, [hour]) if by_hour else gateway.day_rows(day, values, end)
            total += len(gzip.compress((text + gateway.host_row(end)).encode(), 6))
            pieces += 1
    return total, pieces


def run(options, folder):
    queue = multiprocessing.Queue(2)
    writer = multiprocessing.Process(target=write_batches, args=(options, folder, queue), daemon=True)
    writer.start()
    engines = [Clickhouse(folder)] + ([Duckdb(folder)] if options.duckdb else [])
    spent, size, refresh = 0.0, 0, 0.0
    while isinstance(item := queue.get(), str):
        size += os.path.getsize(item)
        begin = time.monotonic()
        for engine in engines:
            engine.insert(item)
        spent += time.monotonic() - begin
        os.unlink(item)
        begin = time.monotonic()
        engines[0].refresh()
        refresh = max(refresh, time.monotonic() - begin)
        # As an hour later: a refresh does not look at these again.
        engines[0].session.query("TRUNCATE TABLE arrivals")
    assert item, "the simulation failed"
    simulation = item
    keys = engines[0].query("SELECT count() FROM traffic FINAL")[0][0]
    print("%d gateways, %d of them by hour, %d days: %.1f GB of JSON, inserted in %.0f s; refreshes of ten days took up to %.1f s" %
          (options.gateways, options.by_hour, len(simulation.days), size / 1e9, spent, refresh))
    print("    " + ", ".join("%d %s" % (count, name) for name, count in simulation.events.items()))
    for engine in engines:
        check(simulation, engine)
    engine = engines[0]
    for table in ("traffic", "days", "samples"):
        engine.session.query("OPTIMIZE TABLE %s FINAL SETTINGS optimize_skip_merged_partitions = 1" % table)
    months = len(simulation.days) / 30 * options.gateways
    of = engine.bytes()
    print("    %s rows of traffic; on disk %s" % (keys, ", ".join("%s %.1f MB" % (table, size / 1e6) for table, size in of.items())))
    for what, condition in (("by day", "NOT IN"), ("by hour", "IN")):
        (count,) = engine.query("SELECT count() FROM traffic WHERE host_id %s (SELECT host_id FROM traffic WHERE hour != 0)" % condition)[0]
        print("    rows of gateways %s: %s" % (what, count))
    print("    %.1f kB of days a gateway and month (30 days)" % (of["days"] / months / 1e3))
    for series in (12, 100):
        for by_hour in (False, True):
            total, pieces = link(simulation, series, by_hour)
            print("    link, %d series by %s: %.3f MB in 30 days, %d pieces of %d bytes" %
                  (series, "hour" if by_hour else "day", total / 1e6, pieces, total // pieces))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, default=10000)
    parser.add_argument("--by-hour", type=int, default=250, help="how many of them send hours")
    parser.add_argument("--months", type=int, default=13)
    parser.add_argument("--with-samples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duckdb", action="store_true")
    options = parser.parse_args(arguments)
    folder = tempfile.mkdtemp(prefix="netmeter-centre.")
    try:
        run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
