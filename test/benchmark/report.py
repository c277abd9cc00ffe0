#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes docs/performance.md from files of benchmark.py, and writes the claim of
README.md.

  test/benchmark.sh report FILE... [--out DIR]

The tables are of the first file. The verdicts are of all files, so that one sees
whether the runs agree. The page has medians, and quartiles of netmeter's losses only,
as these are close to noise; the files have every sample. A smoke run makes no page in
docs/: its figures mean nothing.
"""

import argparse
import itertools
import json
import os
import sys
import textwrap

import summary
import targets

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# What each benchmark measures, for the reader of the page. benchmark -> (title,
# sentences, units that make a table each).
SECTIONS = {
    "datapath": (
        "What one packet costs",
        "Nanoseconds of one run of a program, over an empty program at the same hook. `netmeter` finds the series of a "
        "packet in the `socket table`; `socket storage` is the path of sockets without room in it. `shared hash` is a hash "
        "of series that all CPUs write to. `floor` is the least work of any meter by sockets: the cookie, two lookups, the "
        "first bytes of the packet, three plain adds. `one uplink` and `four uplinks` have uplinks in the configuration.",
        ["ns"],
    ),
    "structures": (
        "Data structures",
        "Nanoseconds to count a packet's bytes for its flow, over a program that only chooses the flow. `when full`: the "
        "share lost with double the flows that a table has room for. An LRU hash evicts flows with their counts; netmeter "
        "adds the packets to its overflow. `per-CPU array and hash`: the first flow of each place of the array, the others "
        "in the hash. `claimed adds`: for sent packets, if the kernel preempts programs.",
        ["ns", "reader ns", "share lost", "share lost when full", "KiB"],
    ),
    "throughput": (
        "Traffic",
        "The lost share of the operations a second, against no meter, and the CPU time of an operation. A loss below zero is "
        "noise. Over loopback netmeter counts proxy ports only, so the cost there is that of the test for them. `netmeter, "
        "followed` runs `netmeter flows --follow --json`, whose CPU time is included.",
        ["trips/s", "packets/s", "CPU ns per operation"],
    ),
    "download": (
        "A download",
        "One TCP connection over a virtual cable, by one thread for both ends, of which the receiver is counted. With TSO "
        "packets of up to 64 KiB arrive whole; GRO joins packets before the stack. An operation is a megabyte. The time of "
        "netmeter's programs is by the kernel's clock, which includes some 20 ns of its own for a packet.",
        ["MB/s", "CPU ns per operation"],
    ),
    "churn": (
        "Short connections",
        "Connect, one request, close by RST, one after the other. Over `veth` the client is counted, with `both ends` the "
        "server, too. The port over loopback is no proxy's, so netmeter counts nothing there.",
        ["connections/s", "CPU ns per operation"],
    ),
    "ablate": (
        "A short connection by parts",
        "The CPU time of a connection in the cgroup, beyond that of one outside of it. Two threads take turns on one CPU. "
        "`off` shows the noise. Empty programs stand at netmeter's hooks: `empty` at those for packets, `empty, 6 hooks` at "
        "all, `no ...` at all but these, and `storage` with 136 bytes of storage for each socket. The last table has the "
        "runs of a program in a connection, and their time together.",
        ["us more", "% more"],
    ),
    "forwarding": (
        "Forwarded packets",
        "Packets through a router, of one flow and of 1,000, and those that the router itself sends. `clients` counts by "
        "address in the LAN, too. `netobserv, its own` is the project's compiled object at both interfaces, and `netobserv` "
        "its table, rewritten; their records go nowhere. `tc` is the least that would count by traffic control.",
        ["packets/s", "CPU ns per packet"],
    ),
    "names": (
        "Names on the wire",
        "All runs of the egress program while a connection sends its first 16 KiB in one packet: bytes of real clients, and "
        "bytes crafted to be read to the last one. No later packet of the connection is read.",
        ["us per connection"],
    ),
    "read": (
        "Reading",
        "Nanoseconds of a read by the library, from source in C++ and installed, of the 16 series of a service and of 4,096.",
        ["ns"],
    ),
    "scrape": (
        "A scrape",
        "How long a client waits, and the CPU time of netmeter-exporter, for 4,096 series if no other number is given.",
        ["ms", "CPU ms"],
    ),
    "load": (
        "Loading",
        "netmeter-loader: `cold`, if no meter is loaded, and `warm`, if one is. With adoption: 200 processes, 1,000 sockets.",
        ["ms", "CPU ms", "KiB"],
    ),
    "sockdiag": (
        "Listing sockets",
        "`netmeter sockets` beside `ss -tinpuOHa`: every TCP socket with its process and TCP_INFO. Wall time, CPU time, and "
        "the most memory of the process.",
        ["us per socket", "CPU us per socket", "KiB"],
    ),
    "flows": (
        "Many forwarded flows",
        "Open flows of UDP through a router, and `netmeter flows --forwarded` with room for all of them, or for fewer. Time "
        "of a packet by the sender's CPU time, the whole way.",
        ["CPU ns per packet", "CPU ns of a flow's first packet", "% of a CPU of the idle reader", "seconds to its end"],
    ),
    "sockets": (
        "Many sockets",
        "All sockets are open and send. Time of a program's run over an empty one by the kernel's clock, and of the first "
        "send by the sender's; kernel memory of a socket, without the socket table.",
        ["ns per run", "ns per send", "ns of the first send", "bytes per socket"],
    ),
}
# The page has these of what was counted once; the file has all.
PAGE_FACTS = ("/metrics: bytes", " series: bytes", "stripped: bytes", "resident KiB", "of a megabyte", "counted packets of a connection", "bytes of the socket table")


def number(value):
    """Three digits that mean something."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def cell(results, name, case, subject, unit, is_page):
    """The median, and mostly the quartiles; against the reference if there is one."""
    try:
        series = results.series(name, case, subject, unit)
    except summary.Missing:
        return "-"
    against = series.get("against")
    is_loss = against and against["how"] == "loss" and series["better"] == "more"
    if is_loss:
        texts = ["%.1f %%" % (100 * against["median"]), "%.1f" % (100 * against["low"]), "%.1f" % (100 * against["high"])]
    elif against and against["how"] == "difference":
        texts = ["%+.1f" % against["median"], "%.1f" % against["low"], "%.1f" % against["high"]]
    else:
        texts = [number(series[key]) for key in ("median", "low", "high")]
    has_quartiles = not is_page or (is_loss and subject.startswith("netmeter"))
    return "%s (%s to %s)" % tuple(texts) if has_quartiles else texts[0]


def table(head, rows):
    """Markdown. Not padded: one long cell would make each line as long."""

    def line(row):
        return "|" + "|".join(" %s " % text if text else " " for text in row) + "|"

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def padded(lines):
    """The same for a terminal: the tables in columns that can be read as they are."""
    made = []
    for is_table, group in itertools.groupby(lines, lambda line: line.startswith("|")):
        rows = [[text.strip() for text in line.split("|")[1:-1]] if is_table else line for line in group]
        if is_table:
            widths = [max(map(len, column)) for column in zip(*rows)]
            rows = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
        made += rows
    return made


# The page does not have these: zeros, and what is lost in noise.
FILE_UNITS = ("share lost", "ns per send")


def unit_table(results, name, unit, is_page):
    """A row per case, a column per subject; nothing if nothing has the unit."""
    if is_page and unit in FILE_UNITS:
        return []
    cases = results.cases(name, unit)
    subjects = list(dict.fromkeys(s for case in cases for s in results.subjects(name, case, unit)))
    rows = [[case, *(cell(results, name, case, subject, unit, is_page) for subject in subjects)] for case in cases]
    return table([unit, *subjects], rows) if rows else []


def joined_table(results, name, units):
    """One table of all units if a benchmark has one subject, or one case; else none."""
    cases = list(dict.fromkeys(c for unit in units for c in results.cases(name, unit)))
    subjects = list(dict.fromkeys(s for unit in units for case in cases for s in results.subjects(name, case, unit)))
    units = [unit for unit in units if results.cases(name, unit)]
    if len(units) < 2 or (len(cases) > 1 and len(subjects) > 1):
        return []
    if len(subjects) == 1:
        rows = [[case, *(cell(results, name, case, subjects[0], unit, True) for unit in units)] for case in cases]
        return table(["", *units], rows)
    rows = [[unit, *(cell(results, name, cases[0], subject, unit, True) for subject in subjects)] for unit in units]
    return table([cases[0], *subjects], rows)


def fact_lines(results, name, is_page):
    facts, tables = [], []
    for key, value in results.data["benchmarks"][name]["facts"].items():
        if isinstance(value, dict):
            columns = list(next(iter(value.values()), {}))
            rows = [[one, *("{:,}".format(value[one][c]) for c in columns)] for one in value]
            tables += ["", *table([key, *columns], rows)]
        elif not is_page or (key.endswith(PAGE_FACTS) and not key.startswith("GetMetrics")):
            facts.append("- %s: %s" % (key, "{:,.0f}".format(value) if isinstance(value, (int, float)) else value))
    return facts + tables


def table_lines(results, name, is_page=False):
    """All of one benchmark, or what the page has of it."""
    title, text, units = SECTIONS[name]
    lines = ["## " + title, "", text]
    tables = [joined_table(results, name, units)] if is_page else []
    if not any(tables):
        tables = [unit_table(results, name, unit, is_page) for unit in units]
    for made in filter(None, tables):
        lines += ["", *made]
    part = results.data["benchmarks"][name]
    facts = fact_lines(results, name, is_page)
    if facts:
        lines += ["", *facts]
    skipped = ["- not here: %s" % ", ".join(filter(None, s.values())) for s in part["skipped"]]
    return lines + (["", *skipped] if skipped else [])


def verdict_text(verdict):
    if verdict["verdict"] == "not run":
        return "not run: " + verdict["missing"]
    text = verdict["verdict"]
    if not verdict["clear"]:
        text += ", but within the spread: another run may say otherwise"
    if verdict["absent"]:
        text += ", without %s" % ", ".join(verdict["absent"])
    return text


def verdict_of_runs(verdicts):
    """One text for the verdicts of all runs about a target. A run that is not clear contradicts none."""
    if len({verdict["verdict"] for verdict in verdicts}) == 1:
        # One that is clear decides.
        return verdict_text(next((verdict for verdict in verdicts if verdict["clear"]), verdicts[0]))
    if any(verdict["verdict"] == "not run" for verdict in verdicts):
        return "; ".join(dict.fromkeys(map(verdict_text, verdicts)))
    met = sum(verdict["verdict"] == "met" for verdict in verdicts)
    agree = len({verdict["verdict"] for verdict in verdicts if verdict["clear"]}) < 2
    reason = "the limit is within the spread" if agree else "THEY DO NOT AGREE"
    return "met in %d of %d runs: %s" % (met, len(verdicts), reason)


def target_lines(files, only_run=False):
    """A row for each target; every verdict anew, by the table as it is. The figure is that of the first file
    which is farthest above its limit, or closest below."""
    judged = [targets.judge(summary.Results(data)) for data in files]
    rows = []
    for verdicts in zip(*judged):
        if only_run and verdicts[0]["verdict"] == "not run":
            continue
        rows.append([verdicts[0]["what"], verdicts[0]["limit"], verdicts[0]["worst"] or "-", verdict_of_runs(verdicts)])
    return ["## Targets", "", *table(["what", "at most", "worst figure", "verdict"], rows)] if rows else []


def conditions(data):
    machine, source = data["machine"], data["source"]
    return (
        "Measured on %s (UTC) on %d x %s%s, %.1f GiB of memory, Linux %s, preemption: %s, JIT %s; commit %s%s."
        % (
            data["started"],
            machine["cpus"],
            machine["cpu"],
            " (a virtual machine)" if machine["virtual"] else "",
            machine["memory_bytes"] / (1 << 30),
            machine["kernel"],
            machine["preemption"],
            "on" if machine["jit"] else "off",
            source["commit"][:12],
            " with changes" if source["changed"] else "",
        )
    )


# Subject -> its name in README.md, in this order.
COMPARED = {
    "off": "nothing",
    "netmeter": "**libnetmeter**",
    "systemd": "systemd, `IPAccounting=`",
    "kernsnoopd": "kernsnoopd",
    "netobserv": "netobserv",
    "Skydive": "Skydive",
    "nethogs": "nethogs",
    "tcpdump": "tcpdump",
}
# What README.md shows: the title, the case of throughput, and the unit of operations.
COMPARISONS = (
    ("requests by TCP", "veth/tcp_rr", "trips/s"),
    ("small UDP packets", "veth/udp_40", "packets/s"),
)


def comparison(results):
    """The table of README.md. A dash: it was not measured."""

    def median(name, case, subject, unit):
        return results.series(name, case, subject, unit)["median"]

    def cell_of(subject, case, unit):
        try:
            text = number(median("throughput", case, subject, "CPU ns per operation")) + " ns"
            against = results.series("throughput", case, subject, unit).get("against")
            return text + (", %.1f %%" % (100 * against["median"]) if against else "")
        except summary.Missing:
            return "-"

    # Its threads take turns, so other programs on the machine add less noise.
    def connection(subject):
        try:
            case = ("ablate", "veth, client", subject)
            return "-" if subject == "off" else "%.1f µs, %.1f %%" % (median(*case, "us more"), median(*case, "% more"))
        except summary.Missing:
            return "-"

    rows = [[name, *(cell_of(subject, *rest) for _, *rest in COMPARISONS), connection(subject)] for subject, name in COMPARED.items()]
    return table(["", *(title for title, *_ in COMPARISONS), "more for a short connection"], rows)


def claim(files):
    """What README.md and the page say first: the medians of the first file."""
    sentence = (
        "The CPU time of one operation at both ends of a virtual cable, and the share of the operations a second that is "
        "lost; for a short connection, the CPU time that is added. The client alone is counted."
    )
    return "\n".join([textwrap.fill(sentence, 112, break_long_words=False), "", *comparison(summary.Results(files[0]))])


def verdicts(files):
    """How many targets are met. A target that one run misses is not met."""
    runs = "" if len(files) == 1 else " in all of %d runs" % len(files)
    judged = [{v["what"]: v["verdict"] for v in targets.judge(summary.Results(data))} for data in files]
    run = [what for what in judged[0] if all(one[what] != "not run" for one in judged)]
    met = sum(all(one[what] == "met" for one in judged) for what in run)
    return "%d of the %d targets that were run are met%s." % (met, len(run), runs)


# In README.md.
CLAIM_BEGIN, CLAIM_END = "<!-- claim: test/benchmark.sh report -->\n", "<!-- /claim -->\n"


def put_claim(readme, files):
    """The text of README.md with the claim in its place."""
    before, begin, rest = readme.partition(CLAIM_BEGIN)
    _, end, after = rest.partition(CLAIM_END)
    if not begin or not end:
        sys.exit("report: README.md has no place for the claim: %s...%s" % (CLAIM_BEGIN, CLAIM_END))
    return before + begin + claim(files) + "\n" + end + after


# In docs/performance.md.
HAND_BEGIN, HAND_END = "<!-- by hand -->\n", "<!-- /by hand -->\n"


def by_hand():
    """The part of docs/performance.md that is written by hand: each new page keeps it."""
    with open(os.path.join(ROOT, "docs/performance.md"), encoding="utf-8") as file:
        _, begin, rest = file.read().partition(HAND_BEGIN)
    text, end, _ = rest.partition(HAND_END)
    if not begin or not end:
        sys.exit("report: docs/performance.md has no part by hand: %s...%s" % (HAND_BEGIN, HAND_END))
    return begin + text + end


def page(files):
    results = summary.Results(files[0])
    lines = [
        "<!-- Made by test/benchmark.sh report, except what is written by hand between two comments: edit that alone. -->",
        "# Performance",
        "",
        by_hand(),
        "## Beside other tools",
        "",
        claim(files),
        "",
        "The tables of kernsnoopd, systemd, Skydive and netobserv are rewritten from their projects, and count what these "
        "count; tcpdump and nethogs are Debian's.",
        "",
        "## How it was measured",
        "",
        "`test/benchmark.sh all --json FILE` measures all of this on your machine, and `test/benchmark.sh report FILE` makes "
        "this page. " + conditions(files[0]),
        "",
        "Each figure is a median; netmeter's losses have their quartiles in brackets. Compared subjects ran in turn, and pairs are "
        "compared. `tx` is sent, `rx` received.",
    ]
    failed = dict.fromkeys(name for data in files for name in data.get("failed", ()))
    if failed:
        lines += ["", "FAILED, AND SO NOT IN EACH RUN: %s." % ", ".join(failed)]
    if len(files) > 1:
        lines += ["", "The verdicts are of %d runs; the figures are of the first." % len(files)]
    for name in SECTIONS:
        if name in results.data["benchmarks"]:
            lines += ["", *table_lines(results, name, is_page=True)]
    head, *rest = target_lines(files)
    return "\n".join([*lines, "", head, "", verdicts(files), *rest]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="results, of the runs that are to agree")
    parser.add_argument("--out", metavar="DIR", default=os.path.join(ROOT, "docs"), help="where to (docs)")
    options = parser.parse_args()
    files = []
    for path in options.files:
        with open(path, encoding="utf-8") as file:
            files.append(json.load(file))
    docs = os.path.realpath(options.out) == os.path.realpath(os.path.join(ROOT, "docs"))
    if docs and any(data["smoke"] for data in files):
        sys.exit("report: a smoke run makes no page in docs/ (--out DIR shows what it would look like)")
    text = page(files)
    if any(data["smoke"] for data in files):
        text = text.replace("# Performance\n", "# Performance: A SMOKE RUN, THE FIGURES MEAN NOTHING\n", 1)
    with open(os.path.join(options.out, "performance.md"), "w", encoding="utf-8") as file:
        file.write(text)
    if docs:
        readme = os.path.join(ROOT, "README.md")
        with open(readme, encoding="utf-8") as file:
            text = put_claim(file.read(), files)
        with open(readme, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
