# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks are to show, in one table, and whether they do.

A target has parts: one figure and its limit each, such as the four columns of
the datapath. It is met if each part is, by its median. It is clear if the whole
spread of every part, the middle half of its samples, lies on one side of the
limit, or that of one part that misses: else another run may well say something
else. What was not measured is "not run", with a reason, which is not "met"; of others
to compare with, those who cannot be had on this machine are named with the verdict.
"""

from summary import Missing, Spread

COLUMNS = ("UDP tx", "UDP rx", "TCP tx", "TCP rx")
PLACES = ("loopback", "veth")
SMALL = {"tcp_rr": "trips/s", "udp_1": "packets/s", "udp_40": "packets/s"}
OTHERS = ("shared hash", "kernsnoopd", "systemd", "Skydive", "netobserv", "tcpdump", "nethogs")


class Part:
    """A figure that shall be at most its limit. `distance` has, by round, how far
    above the limit it was: below zero is good."""

    def __init__(self, label, figure, distance):
        self.label, self.figure = label, figure
        spread = Spread(distance)
        self.distance = spread.median
        self.met = spread.median <= 0
        self.clear = spread.high <= 0 or spread.low > 0


class Absent:
    """Somebody to compare with who is not here: said with the verdict."""

    def __init__(self, name):
        self.name = name


def below(label, spread, limit, form, measured_limit=False):
    """A measured figure and a number, which is shown if it was measured, too."""
    figure = "%s (%s to %s)" % tuple(form % value for value in (spread.median, spread.low, spread.high))
    if measured_limit:
        figure += ", limit " + form % limit
    return Part(label, figure, [value - limit for value in spread.samples])


def datapath(results, way, column, subject="socket table"):
    return results.against("datapath", "%s/%s" % (way, column), subject, "ns")


def limit_of(results, column):
    """That number of atomic adds, as this machine takes for them."""
    add = results.spread("datapath", "atomic add/one CPU", "machine", "ns").median
    return (3 if column == "TCP tx" else 2) * add


def atomic_adds(results):
    for column in COLUMNS:
        limit = limit_of(results, column)
        ours = Spread(datapath(results, "test run, one CPU", column))
        yield below(column, ours, limit, "%.1f ns", measured_limit=True)


def share_of_hash(way, share):
    def parts(results):
        for column in COLUMNS:
            ours, other = (datapath(results, way, column, s) for s in ("socket table", "shared hash"))
            figure = "%.1f ns, the hash %.1f ns" % (Spread(ours).median, Spread(other).median)
            yield Part(column, figure, [a - share * b for a, b in zip(ours, other)])

    return parts


def two_cpus(results):
    for column in COLUMNS:
        one = Spread(datapath(results, "test run, one CPU", column)).median
        both = Spread(datapath(results, "test run, two CPUs", column))
        yield below(column, both, 1.2 * one, "%.1f ns", measured_limit=True)


def losses(results, workload, unit):
    """For each place: (case, loss by netmeter, loss by empty programs)."""
    for place in PLACES:
        case = "%s/%s" % (place, workload)
        yield case, *(results.against("throughput", case, s, unit) for s in ("netmeter", "empty"))


def percent(samples):
    return "%.1f %%" % (100 * Spread(samples).median)


def against_empty(results):
    for workload, unit in SMALL.items():
        for case, ours, empty in losses(results, workload, unit):
            # A gain is noise: then the same is allowed, and no less.
            distance = [a - max(1.2 * b, b) for a, b in zip(ours, empty)]
            yield Part(case, "%s, empty %s" % (percent(ours), percent(empty)), distance)


def below_others(results):
    skipped = results.skipped("throughput")
    yield from (Absent(other) for other in OTHERS if other in skipped)
    for workload, unit in SMALL.items():
        for case, ours, _ in losses(results, workload, unit):
            for other in OTHERS:
                # kernsnoopd sees TCP only, and only what is sent.
                if other in skipped or (other == "kernsnoopd" and workload != "tcp_rr"):
                    continue
                theirs = results.against("throughput", case, other, unit)
                figure = "%s, theirs %s" % (percent(ours), percent(theirs))
                yield Part("%s, %s" % (case, other), figure, [a - b for a, b in zip(ours, theirs)])


def loopback(results):
    ours = Spread(datapath(results, "test run, one CPU", "loopback, not counted"))
    counted_one = min(Spread(datapath(results, "test run, one CPU", column)).median for column in COLUMNS)
    yield below("not counted", ours, counted_one / 2, "%.1f ns", measured_limit=True)


def short_connections(subject, other=None, limit=0):
    """Over veth, where each end is counted."""

    def parts(results):
        case = "veth, both ends/churn"
        ours = results.against("churn", case, subject, "connections/s")
        theirs = results.against("churn", case, other, "connections/s") if other else [limit] * len(ours)
        figure = percent(ours) + (", %s %s" % (other, percent(theirs)) if other else "")
        yield Part(subject, figure, [a - b for a, b in zip(ours, theirs)])

    return parts


def measured(benchmark, case, subject, unit, limit, form="%.1f"):
    def parts(results):
        yield below(case, results.spread(benchmark, case, subject, unit), limit, form + " " + unit)

    return parts


def counted(benchmark, end, limit):
    """Every fact whose name ends so is at most this, and not below zero."""

    def parts(results):
        for name, value in results.facts_ending(benchmark, end).items():
            yield Part(name, "%d" % value, [abs(value) - limit])

    return parts


def cold_load(limit, is_oldest):
    """On 5.10, the oldest kernel, or on a newer one."""

    def parts(results):
        processes = results.fact("load", "processes")
        kernel = results.data["machine"]["kernel"]
        if kernel.startswith("5.10.") != is_oldest:
            raise Missing("load: this machine has Linux " + kernel)
        if processes < 200:
            raise Missing("load: fewer than 200 processes")
        case = "cold, with adoption"
        yield below(case, results.spread("load", case, "netmeter-loader", "ms"), limit, "%.0f ms")

    return parts


def flat(results):
    cases = results.cases("sockets", "ns per run")
    if not cases:
        raise Missing("sockets")
    if len(cases) < 2:
        raise Missing("sockets: one number of sockets only")
    first = Spread(results.against("sockets", cases[0], "netmeter", "ns per run")).median
    for case in cases[1:]:
        cost = Spread(results.against("sockets", case, "netmeter", "ns per run"))
        yield below(case, cost, 1.2 * first, "%.1f ns", measured_limit=True)


# (what, limit, parts)
TARGETS = (
    (
        "datapath, one CPU, over an empty program",
        "3 atomic adds for TCP tx, 2 for the others",
        atomic_adds,
    ),
    ("datapath, one CPU, against the shared hash", "half of it", share_of_hash("test run, one CPU", 0.5)),
    ("two CPUs, one hot series", "the figure of one CPU + 20 %", two_cpus),
    ("two CPUs, against the shared hash", "a sixth of it", share_of_hash("test run, two CPUs", 1 / 6)),
    ("requests and small UDP, against empty programs", "1.2 times their loss", against_empty),
    ("requests and small UDP, against others", "below the loss of each", below_others),
    ("a packet over loopback, not counted", "half of the cheapest counted one", loopback),
    ("short connections", "the loss of the shared hash", short_connections("netmeter", other="shared hash")),
    ("short connections, followed", "30 % lost", short_connections("netmeter, followed", limit=0.3)),
    ("forwarded packets", "0 runs", counted("forwarding", ": runs for forwarded packets", 0)),
    ("read, 16 series of a service", "1 µs", measured("read", "own series", "netmeter", "ns", 1000, "%.0f")),
    ("read, 4,096 series", "100 µs", measured("read", "all series", "netmeter", "ns", 100000, "%.0f")),
    ("read, system calls", "0", counted("read", ": system calls", 0)),
    ("read into the same vector, allocations", "0", counted("read", ": allocations", 0)),
    ("/metrics of 4,096 series", "30 ms", measured("scrape", "/metrics", "netmeter-exporter", "ms", 30)),
    ("GetMetrics of 4,096 series", "20 ms", measured("scrape", "GetMetrics", "netmeter-exporter", "ms", 20)),
    ("many sockets, packets and bytes missing", "0", counted("sockets", "missing in the counters", 0)),
    ("many sockets, cost of a packet", "that with 1,000 sockets + 20 %", flat),
    ("load, cold, with adoption of 200 processes", "150 ms", cold_load(150, False)),
    ("load, cold, on Linux 5.10", "250 ms", cold_load(250, True)),
    ("loader and object on disk", "1 MiB", counted("load", "loader, stripped: bytes", 1 << 20)),
)


def judge(results):
    """The verdicts, in the order of the table."""
    verdicts = []
    for what, limit, make_parts in TARGETS:
        verdict = {"what": what, "limit": limit}
        try:
            found = list(make_parts(results))
            parts = [part for part in found if isinstance(part, Part)]
            verdict["absent"] = [part.name for part in found if isinstance(part, Absent)]
            if not parts:
                raise Missing("nothing to compare with: without " + ", ".join(verdict["absent"]))
            missed = [part for part in parts if not part.met]
            verdict["verdict"] = "not met" if missed else "met"
            # One part that misses for certain is enough, however close others are.
            verdict["clear"] = any(part.clear for part in missed) if missed else all(part.clear for part in parts)
            verdict["figure"] = "; ".join("%s: %s" % (part.label, part.figure) for part in parts)
            worst = max(parts, key=lambda part: part.distance)
            verdict["worst"] = "%s: %s" % (worst.label, worst.figure)
            if len(missed) > 1:
                verdict["worst"] += "; %d of %d missed" % (len(missed), len(parts))
            verdict["missed"] = [part.label for part in missed]
        except Missing as missing:
            verdict.update(verdict="not run", clear=False, figure="", worst="", missed=[], absent=[], missing=str(missing))
        verdicts.append(verdict)
    return verdicts
