#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes docs/performance.md from files of benchmark.py, and writes the claim of
README.md.

  test/benchmark.sh report FILE... [--out DIR]

The tables are of the first file; the verdicts are of all of them,
so that one sees whether they agree. Nothing in the page is written by hand. A
smoke run makes no page in docs/: its figures mean nothing.
"""

import argparse
import itertools
import json
import os
import sys
import textwrap

import summary
import targets
from summary import Spread

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# What each benchmark measures, for the reader of the page. benchmark -> (title,
# sentences, units that make a table each).
SECTIONS = {
    "datapath": (
        "What one packet costs",
        "Nanoseconds of one run of a program, over an empty program at the same hook. \"floor\" is the least "
        "work of any meter by sockets: the cookie, two lookups, the first bytes of the packet, three plain "
        "adds; no checks, no guard of the adds, nothing of TCP.",
        ["ns"],
    ),
    "structures": (
        "Data structures",
        "Nanoseconds to count a packet's bytes for its flow, over a program that only chooses the flow. A "
        "reader of the buffers' events costs more, and events without room are lost. netmeter adds plainly for"
        " received packets, and for sent ones if the kernel does not preempt programs; otherwise it first "
        "claims the CPU by an exchange: \"claimed adds\". With double the flows that it has room for, a table "
        "loses the packets of the others; an LRU hash evicts flows with what it counted for them; netmeter adds "
        "them to its overflow. \"per-CPU array and hash\": the first flow of each place of the array, the others "
        "in the hash.",
        ["ns", "reader ns", "share lost", "share lost when full", "KiB"],
    ),
    "throughput": (
        "Traffic",
        "The lost share of the operations a second, against no meter, and the CPU time of an operation. A gain"
        " is noise, and shows its size. Over loopback netmeter counts proxy ports only, so the cost there is "
        "that of the test for them. \"netmeter, followed\" is a meter with \"netmeter flows --follow --json\","
        " whose CPU time is included.",
        ["trips/s", "packets/s", "CPU ns per operation"],
    ),
    "churn": (
        "Short connections",
        "Connect, one request, close by RST, one after the other: what \"churn\" measures, as above. Over \"veth\" the "
        "client is counted, and with \"both ends\" the server, too. The port over loopback is no proxy's, so netmeter "
        "counts nothing there.",
        ["connections/s", "CPU ns per operation"],
    ),
    "ablate": (
        "A short connection by parts",
        "The CPU time of a connection in the cgroup, beyond that of one outside of it. Two threads take turns on one CPU. "
        "\"off\" shows the noise. Empty programs stand at netmeter's hooks: \"empty\" at those for packets, \"empty, 6 "
        "hooks\" at all, \"no ...\" at all but these, and \"storage\" with 136 bytes of storage for each socket. The port "
        "over loopback is no proxy's. The last table has the runs of a program in a connection, and their time together.",
        ["us more", "% more"],
    ),
    "forwarding": (
        "Forwarded packets",
        "Packets a second through a router with each of them, of one flow and of 1,000, and those that the router itself "
        "sends. Without uplinks, netmeter's programs do not run for forwarded packets, which the last lines count. "
        "\"clients\" counts by address in the LAN, too. \"netobserv, its own\" is the project's compiled object at both "
        "interfaces, and \"netobserv\" its table, rewritten; their records go nowhere. \"tc\" is the least that would "
        "count forwarded packets by traffic control, on kernels without netfilter programs.",
        ["packets/s", "CPU ns per packet"],
    ),
    "names": (
        "Names on the wire",
        "All runs of the egress program while a connection sends its first 16 KiB in one packet: bytes of real"
        " clients, and bytes crafted to be read to the last one. No later packet of the connection is read.",
        ["us per connection"],
    ),
    "read": ("Reading", "Nanoseconds of a read by the library: from source in C++, and installed, by C and in C++.", ["ns"]),
    "scrape": ("A scrape", "How long a client waits, and the CPU time of netmeter-exporter.", ["ms", "CPU ms"]),
    "load": (
        "Loading",
        "netmeter-loader: cold, if no meter is loaded, and warm, if one is.",
        ["ms", "CPU ms", "KiB"],
    ),
    "sockdiag": (
        "Listing sockets",
        "netmeter sockets beside ss -tinpuOHa: both print every TCP socket with its process and TCP_INFO. "
        "Wall time, CPU time, and the most memory of the process.",
        ["us per socket", "CPU us per socket", "KiB"],
    ),
    "flows": (
        "Many forwarded flows",
        "Open flows of UDP through a router, and a follower of forwarded flows (netmeter flows --forwarded) with room "
        "for all of them, or for fewer. Time of a packet by the sender's CPU time, the whole way; memory of the machine.",
        ["CPU ns per packet", "CPU ns of a flow's first packet", "% of a CPU of the idle reader", "seconds to its end"],
    ),
    "sockets": (
        "Many sockets",
        "All sockets are open and send. Time of a program's run over an empty one by the kernel's clock, and "
        "of a send by the sender's; kernel memory of a socket, without the socket table.",
        ["ns per run", "ns per send", "ns of the first send", "bytes per socket"],
    ),
}


def number(value):
    """Three digits that mean something."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def cell(series):
    """The median and the quartiles; against the reference where there is one."""
    against = series.get("against")
    if against and against["how"] == "loss" and series["better"] == "more":
        return "%.1f %% (%.1f to %.1f)" % tuple(100 * against[key] for key in ("median", "low", "high"))
    if against and against["how"] == "difference":
        return "%+.1f (%.1f to %.1f)" % tuple(against[key] for key in ("median", "low", "high"))
    return "%s (%s to %s)" % tuple(number(series[key]) for key in ("median", "low", "high"))


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


def unit_table(results, name, unit):
    """A row per case, a column per subject; nothing where nothing has the unit."""
    cases = results.cases(name, unit)
    subjects = list(dict.fromkeys(s for case in cases for s in results.subjects(name, case, unit)))
    rows = []
    for case in cases:
        row = [case]
        for subject in subjects:
            try:
                row.append(cell(results.series(name, case, subject, unit)))
            except summary.Missing:
                row.append("-")
        rows.append(row)
    return table([unit, *subjects], rows) if rows else []


def fact_lines(results, name):
    facts, tables = [], []
    for key, value in results.data["benchmarks"][name]["facts"].items():
        if isinstance(value, dict):
            columns = list(next(iter(value.values()), {}))
            rows = [[one, *("{:,}".format(value[one][c]) for c in columns)] for one in value]
            tables += ["", *table([key, *columns], rows)]
        else:
            facts.append("- %s: %s" % (key, "{:,.0f}".format(value) if isinstance(value, (int, float)) else value))
    return facts + tables


def table_lines(results, name):
    """All of one benchmark."""
    title, text, units = SECTIONS[name]
    lines = ["## " + title, "", text]
    for unit in units:
        made = unit_table(results, name, unit)
        if made:
            lines += ["", *made]
    part = results.data["benchmarks"][name]
    facts = fact_lines(results, name)
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
    """Each target beside its figures, a row of each; every verdict anew, by the table as it is. The verdict stands in
    the first row of a target; a figure that misses, in any of the files, says so itself."""
    judged = [targets.judge(summary.Results(data)) for data in files]
    rows = []
    for verdicts in zip(*judged):
        if only_run and verdicts[0]["verdict"] == "not run":
            continue
        missed = tuple(label + ": " for verdict in verdicts for label in verdict["missed"])
        figures = [part + (", missed" if part.startswith(missed) else "") for part in verdicts[0]["figure"].split("; ")]
        rows.append([verdicts[0]["what"], verdicts[0]["limit"], figures[0] or "-", verdict_of_runs(verdicts)])
        rows += [["", "", figure, ""] for figure in figures[1:]]
    if not rows:
        return []
    return ["## Targets", "", *table(["what", "at most", "figure", "verdict"], rows)]


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
# What README.md shows: the title, the benchmark, the case, and the unit of operations.
COMPARISONS = (
    ("requests by TCP", "throughput", "veth/tcp_rr", "trips/s"),
    ("small UDP packets", "throughput", "veth/udp_40", "packets/s"),
    ("short connections", "churn", "veth/churn", "connections/s"),
)


def comparison(results):
    """The table of README.md. A dash: it was not measured."""

    def cell_of(subject, name, case, unit):
        try:
            text = number(results.series(name, case, subject, "CPU ns per operation")["median"]) + " ns"
            against = results.series(name, case, subject, unit).get("against")
            return text + (", %.1f %%" % (100 * against["median"]) if against else "")
        except summary.Missing:
            return "-"

    rows = [[name, *(cell_of(subject, *rest) for _, *rest in COMPARISONS)] for subject, name in COMPARED.items()]
    return table(["", *(title for title, *_ in COMPARISONS)], rows)


def claim(files):
    """What README.md and the page say first: the medians of the first file."""
    results = summary.Results(files[0])
    text = []
    try:

        def costs(way, subject):
            found = [Spread(targets.datapath(results, way, c, subject)).median for c in targets.COLUMNS]
            least, most = "%.0f" % min(found), "%.0f" % max(found)
            return "%s ns" % least if least == most else "%s to %s ns" % (least, most)

        one, both = "test run, one CPU", "test run, two CPUs"
        text.append(
            "A run of libnetmeter's program for a packet takes %s more than that of an empty program. If two CPUs count at "
            "once, it takes %s more. With a hash that all CPUs share it takes %s, and %s."
            % (costs(one, "socket table"), costs(both, "socket table"), costs(one, "shared hash"),
               costs(both, "shared hash"))
        )
    except summary.Missing:
        pass
    text.append(
        "The table has the CPU time of one operation over a virtual cable: of both ends, of which the client is counted, "
        "of the kernel's hooks and of the meter's own processes. The percentage is the lost share of the operations a second, against no meter."
    )
    return "\n".join([textwrap.fill(" ".join(text), 92, break_long_words=False, break_on_hyphens=False), "", *comparison(results)])


def verdicts(files):
    """How many targets are met, and which are not."""
    runs = "" if len(files) == 1 else " in all of %d runs" % len(files)
    names = by_verdict(files)
    met, run = len(names["met"]), len(names["met"] + names["not met"])
    return ("%d of the %d targets that were run are met%s. %s" % (met, run, runs, missed(files))).strip()


def by_verdict(files):
    """The names of the targets by their worst verdict."""
    judged = [targets.judge(summary.Results(data)) for data in files]
    names = {"met": [], "not met": [], "not run": []}
    for verdicts in zip(*judged):
        found = {verdict["verdict"] for verdict in verdicts}
        worst = next(word for word in ("not met", "not run", "met") if word in found)
        names[worst].append(verdicts[0]["what"])
    return names


def missed(files):
    """Which targets are not met, or were not run."""
    names = by_verdict(files)
    return " ".join(
        "%s: %s." % (word.capitalize(), "; ".join(names[word])) for word in ("not met", "not run") if names[word]
    )


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
        "The cost of counting, beside other tools that count. `test/benchmark.sh all --json FILE` measures it "
        "on your machine, and `test/benchmark.sh report FILE` makes this page.",
        "",
        conditions(files[0]),
        "",
        "Each figure is a median, with the quartiles in brackets. Compared subjects ran in turn, and pairs are"
        " compared. The tables of kernsnoopd, systemd, Skydive and netobserv are rewritten from their "
        "projects, and count what these count; tcpdump and nethogs are Debian's.",
        "",
        claim(files),
        "",
        verdicts(files),
        "",
        "`tx` is sent, `rx` received. `netmeter` is the meter; `socket table` is its fast path, which finds "
        "the series of a packet in a table by the socket's cookie. `one uplink` and `four uplinks` have "
        "uplinks in the configuration. `socket storage` is the path of sockets without room in the table, and "
        "`shared hash` a hash of series that all CPUs write to. `floor` is the least work of any meter by "
        "sockets. A loss below zero is noise.",
        "",
        *target_lines(files),
    ]
    failed = dict.fromkeys(name for data in files for name in data.get("failed", ()))
    if failed:
        lines += ["", "FAILED, AND SO NOT IN EACH RUN: %s." % ", ".join(failed)]
    if len(files) > 1:
        lines += ["", "The verdicts are of %d runs; the figures are of the first." % len(files)]
    for name in SECTIONS:
        if name in results.data["benchmarks"]:
            lines += ["", *table_lines(results, name)]
    return "\n".join(lines) + "\n"


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
