#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of demo.sh, and its proofs. Exits with 0 if nothing differs.

    demo_proof.py bill LIST BEFORE... AFTER...
    demo_proof.py causes LIST
    demo_proof.py rows LIST SS REQUESTS CURL SUBSCRIBERDB MOBILITYD MAGMAD
    demo_proof.py cells SERIES COUNTERS

LIST is the output of `netmeter list --json`, SS of `ss -tinpOH`, CURL of curl's
-w; REQUESTS is nghttpx's log: port of the client, and requested host; SERIES and
COUNTERS are dumps of `bpftool -j`. BEFORE and AFTER are five numbers each of the
interface. The others are process ids.
"""

import collections
import json
import re
import sys

SUFFIX = "-controller.magma.test"
PROXY = "nghttpx"
PROXY_PORT = "8443"
# The server names that magmad and the proxy send in TLS.
SERVER_NAMES = {"magmad": "bootstrapper", PROXY: "cloud"}
MIB = 1 << 20
# The headers of IP and of TCP with timestamps; SYNs have 8 bytes more.
HEADERS, SYN = 52, 8
ETHERNET = 14

# Independent counts for a row of the table. packets: None if there is no such count.
Count = collections.namedtuple("Count", "sent received packets_sent packets_received connections")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_series(path):
    """{(name, destination, path): series}"""
    rows = [row for row in json.loads(read(path)) if row["tx_packets"] or row["rx_packets"]]
    return {(row["name"], row["destination"], row["path"]): row for row in rows}


def connections(ss, requests, services):
    """(name, destination, path), Count of each connection that is open."""
    asked = collections.defaultdict(set)  # by the client's port
    for line in requests.splitlines():
        port, host = line.split()
        asked[port].add(host[: -len(SUFFIX)] if host.endswith(SUFFIX) else host)
    for line in ss.splitlines():
        local, remote = (address.rsplit(":", 1)[1] for address in line.split()[3:5])
        program, pid = re.search(r'\(\("(.*?)",pid=(\d+)', line).groups()
        name = services.get(int(pid), program)
        n = collections.Counter({key: int(value) for key, value in re.findall(r" (\w+):(\d+)(?= |$)", line)})
        packets = n["segs_out"], n["segs_in"]
        if remote == PROXY_PORT:
            (destination,) = asked[local]  # the same one for all its requests
            row = name, destination, "proxy"
        elif local == PROXY_PORT:
            # The packets of the handshakes belong to the listening socket.
            row, packets = (name, "", "proxy"), (None, None)
        else:
            row = name, SERVER_NAMES.get(name, ""), "direct"
        yield row, Count(n["bytes_sent"] - n["bytes_retrans"], n["bytes_received"], *packets, 1)


def add(a, b):
    return Count(*(None if None in pair else sum(pair) for pair in zip(a, b)))


def count_by_others(ss, requests, curl, services):
    """{(name, destination, path): Count} of all that somebody else counted."""
    counted = {}
    for row, count in connections(read(ss), read(requests), services):
        counted[row] = add(counted[row], count) if row in counted else count
    request, header, download = map(int, read(curl).split())
    counted["curl", "", "direct"] = Count(request, header + download, None, None, 1)
    counted["python3", "", "direct"] = Count(len(f"UP {3 * MIB}\n") + 3 * MIB, 0, None, None, 1)
    counted["subscriberdb", "checkin", "direct"] = Count(500 * 1000, 500 * 1000, 500, 500, 0)
    return counted


def compare_row(row, series, count):
    """Prints one line; returns what is wrong in it."""
    name, destination, path = row
    ours = series["tx_payload_bytes"], series["rx_payload_bytes"], series["tx_packets"] + series["rx_packets"]
    packets = None if count.packets_sent is None else count.packets_sent + count.packets_received
    good = ours[:2] == (count.sent, count.received) and packets in (None, ours[2])
    print(
        f"{name:13} {destination or '-':12} {path:6}"
        + f"{ours[0]:13,}{count.sent:12,}{ours[1]:13,}{count.received:12,}{ours[2]:10,}"
        + (f"{packets:8,}" if packets else f"{'-':>8}") + ("" if good else "  WRONG")
    )
    errors = [] if good else [f"{name} {destination} ({path}) differs"]
    # Handshakes have no payload, but their packets are on the wire.
    if packets and count.connections:
        for way in "tx", "rx":
            least = series[way + "_payload_bytes"] + HEADERS * series[way + "_packets"] + SYN * count.connections
            if series[way + "_bytes"] < least:
                errors.append(f"{name} {destination} ({path}): headers are missing in its {way}_bytes")
    return errors


def compare_rows(series, ss, requests, curl, *pids):
    services = dict(zip(map(int, pids), ("subscriberdb", "mobilityd", "magmad")))
    seen = read_series(series)
    counted = count_by_others(ss, requests, curl, services)
    print(f'{"":32}{"PAYLOAD SENT":>25}{"PAYLOAD RECEIVED":>25}{"PACKETS":>18}')
    print(f'{"NAME":13} {"DESTINATION":12} {"PATH":6}' + f'{"netmeter":>13}{"others":>12}' * 2 + f'{"netmeter":>10}{"others":>8}')
    errors = []
    for row in sorted(counted, key=lambda row: (row[0] not in services.values(), row[0], row[2] != "proxy", row[1])):
        errors += compare_row(row, seen.get(row, collections.Counter()), counted[row])
    # No other name or path has traffic.
    for row in seen.keys() - counted.keys():
        if seen[row]["kind"] in ("service", "binary", "pending"):
            errors.append("%s %s (%s) should not be there" % row)
    pairs = {row[:2] for row in counted if row[0] in services.values()}
    if len(pairs) < 4:
        errors.append("there are fewer than four pairs of service and destination")
    return errors


def compare_bill(series, *numbers):
    rows = [row for row in json.loads(read(series)) if row["path"] == "direct"]
    before, after = [int(n) for n in numbers[:5]], [int(n) for n in numbers[5:]]
    rx_bytes, rx_packets, tx_bytes, tx_packets, dropped = (a - b for a, b in zip(after, before))

    def total(field):
        return sum(row[field] for row in rows)

    billed = tx_bytes - ETHERNET * tx_packets, rx_bytes - ETHERNET * rx_packets
    counted = total("tx_bytes"), total("rx_bytes")
    table = [
        ("interface, packets", tx_packets, rx_packets),
        ("libnetmeter, packets", total("tx_packets"), total("rx_packets")),
        ("interface, bytes", tx_bytes, rx_bytes),
        ("  less Ethernet headers", ETHERNET * tx_packets, ETHERNET * rx_packets),
        ("billed bytes", *billed),
        ("libnetmeter, bytes", *counted),
        ("difference, bytes", counted[0] - billed[0], counted[1] - billed[1]),
    ]
    print(f'{"":24}{"SENT":>14}{"RECEIVED":>14}')
    for name, sent, received in table:
        print(f"{name:24}{sent:>14,}{received:>14,}")

    errors = []
    if table[0][1:] != table[1][1:] or counted != billed:
        errors.append("interface and libnetmeter differ")
    if dropped:
        errors.append(f"the interface dropped {dropped} packets, which libnetmeter has counted; is this machine overloaded?")
    if min(tx_bytes, rx_bytes) < 10_000_000:
        errors.append("there was too little traffic")
    return errors


def by_path(rows):
    """{(name, destination): {path: (sent, received)}}; the proxy's own row with
    path proxy is left out, as it is the other end of the services' rows."""
    causes = collections.defaultdict(dict)
    for row in rows:
        if row["path"] == "proxy" and row["name"] == PROXY:
            continue
        paths = causes[row["name"], row["destination"]]
        sent, received = paths.get(row["path"], (0, 0))
        paths[row["path"]] = sent + row["tx_bytes"], received + row["rx_bytes"]
    return causes


def print_cause(name, destination, paths, total):
    def cells(path):
        return "".join(f"{n:>14,}" for n in paths[path]) if path in paths else f'{"-":>14}{"-":>14}'

    share = f'{sum(paths["direct"]) / total:>8.1%}' if "direct" in paths else f'{"-":>8}'
    print(f"{name:13} {destination or '-':12}{cells('direct')}{share}{cells('proxy')}")


def show_causes(series):
    causes = by_path(json.loads(read(series)))
    sums = {
        path: tuple(sum(paths.get(path, (0, 0))[way] for paths in causes.values()) for way in (0, 1))
        for path in ("direct", "proxy")
    }
    total = sum(sums["direct"])
    print(f'{"":26}{"ON THE UPLINK":>28}{"":>8}{"TO THE PROXY":>28}')
    print(f'{"NAME":13} {"DESTINATION":12}' + f'{"SENT":>14}{"RECEIVED":>14}{"SHARE":>8}{"SENT":>14}{"RECEIVED":>14}')
    order = sorted(causes.items(), key=lambda item: [-sum(item[1].get(path, (0, 0))) for path in ("direct", "proxy")])
    for (name, destination), paths in order:
        print_cause(name, destination, paths, total)
    print_cause("sum", "", sums, total)
    return []


def show_cells(series, counters):
    series, cells = ([entry["formatted"] for entry in json.loads(read(name))] for name in (series, counters))
    pending = 6  # NM_KIND_PENDING: connections that have not named their destination yet
    transports = ("other", "tcp", "udp", "sctp", "icmp")
    ids = ("service", "destination", "transport", "path")
    names = {tuple(e["key"][i] for i in ids): e["value"] for e in series}
    lines = []
    for cell in cells:
        key, value = cell["key"], cell["value"]
        if value["service"] and (value["tx_bytes"] or value["rx_bytes"]) and value["kind"] != pending:
            name = names[tuple(value[i] for i in ids)]
            who = f'{name["service_name"]} {name["destination_name"]}'.strip()
            numbers = "  ".join(f"{field} {value[field]:<9}" for field in ("tx_bytes", "rx_bytes", "tx_packets"))
            lines.append(f"counters[{key}]".ljust(14) + who.ljust(46) + f'{transports[value["transport"]]}  {numbers}')
    print("\n".join(lines[:10] + [f"... and {len(lines) - 10} more"] * (len(lines) > 10)))
    return []


COMMANDS = {"bill": compare_bill, "causes": show_causes, "rows": compare_rows, "cells": show_cells}


def main():
    errors = COMMANDS[sys.argv[1]](*sys.argv[2:])
    for error in errors:
        print("demo.sh:", error, file=sys.stderr)
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
