#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What demo.sh compares libnetmeter with. Exits with 0 if nothing differs.

    demo_proof.py rows LIST SS REQUESTS CURL SUBSCRIBERDB MOBILITYD MAGMAD
    demo_proof.py sum LIST BEFORE... AFTER...

LIST is the output of `netmeter list --json`, SS of `ss -tinpOH`, CURL of curl's
-w; REQUESTS is nghttpx's log: port of the client, and requested host. The
others are process ids; and five numbers each of the interface.
"""

import collections
import json
import re
import sys

SUFFIX = "-controller.magma.test"
PROXY_PORT = "8443"
# IP's header and TCP's with timestamps; the first packet has 8 bytes more.
HEADERS, SYN = 52, 8

# What somebody else counted for a row of the table. packets: None where nobody
# did.
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
            (destination,) = asked[local]  # one for all of its requests
            row = name, destination, "proxy"
        elif local == PROXY_PORT:
            # The listening socket did the handshakes.
            row, packets = (name, "", "proxy"), (None, None)
        else:
            row = name, "bootstrapper" if name == "magmad" else "", "direct"
        yield row, Count(n["bytes_sent"] - n["bytes_retrans"], n["bytes_received"], *packets, 1)


def add(a, b):
    return Count(*(None if None in pair else sum(pair) for pair in zip(a, b)))


def compare_rows(series, ss, requests, curl, *pids):
    services = dict(zip(map(int, pids), ("subscriberdb", "mobilityd", "magmad")))
    seen = read_series(series)
    counted = {}
    for row, count in connections(read(ss), read(requests), services):
        counted[row] = add(counted[row], count) if row in counted else count
    request, header, download = map(int, read(curl).split())
    counted["curl", "", "direct"] = Count(request, header + download, None, None, 1)
    counted["python3", "", "direct"] = Count(len("UP 3000000\n") + 3000000, 0, None, None, 1)
    counted["subscriberdb", "checkin", "direct"] = Count(500 * 1000, 500 * 1000, 500, 500, 0)

    errors = []
    print(f'{"":32}{"PAYLOAD SENT":>25}{"PAYLOAD RECEIVED":>25}{"PACKETS":>18}')
    print(f'{"NAME":13} {"DESTINATION":12} {"PATH":6}' + f'{"netmeter":>13}{"others":>12}' * 2 + f'{"netmeter":>10}{"others":>8}')
    for row in sorted(counted, key=lambda row: (row[0] not in services.values(), row[0], row[2] != "proxy", row[1])):
        count = counted[row]
        s = seen.get(row, collections.Counter())
        name, destination, path = row
        ours = s["tx_payload_bytes"], s["rx_payload_bytes"], s["tx_packets"] + s["rx_packets"]
        packets = None if count.packets_sent is None else count.packets_sent + count.packets_received
        good = ours[:2] == (count.sent, count.received) and packets in (None, ours[2])
        print(
            f"{name:13} {destination or '-':12} {path:6}"
            + f"{ours[0]:13,}{count.sent:12,}{ours[1]:13,}{count.received:12,}{ours[2]:10,}"
            + (f"{packets:8,}" if packets else f"{'-':>8}") + ("" if good else "  WRONG")
        )
        if not good:
            errors.append(f"{name} {destination} ({path}) differs")
        # Handshakes have no payload, but their packets are on the wire.
        if packets and count.connections:
            for way in "tx", "rx":
                least = s[way + "_payload_bytes"] + HEADERS * s[way + "_packets"] + SYN * count.connections
                if s[way + "_bytes"] < least:
                    errors.append(f"{name} {destination} ({path}): headers are missing in its {way}_bytes")
    # Nothing went to another name or path.
    for row in seen.keys() - counted.keys():
        if seen[row]["kind"] in ("service", "binary", "pending"):
            errors.append("%s %s (%s) should not be there" % row)
    pairs = {row[:2] for row in counted if row[0] in services.values()}
    if len(pairs) < 4:
        errors.append("there are fewer than four pairs of service and destination")
    return errors


def compare_sum(series, *numbers):
    rows = [row for row in json.loads(read(series)) if row["path"] == "direct"]
    before, after = [int(n) for n in numbers[:5]], [int(n) for n in numbers[5:]]
    rx_bytes, rx_packets, tx_bytes, tx_packets, dropped = (a - b for a, b in zip(after, before))

    def total(field):
        return sum(row[field] for row in rows)

    table = [
        ("interface, packets", tx_packets, rx_packets),
        ("libnetmeter, packets", total("tx_packets"), total("rx_packets")),
        ("interface, bytes", tx_bytes, rx_bytes),
        ("less 14 bytes a packet", tx_bytes - 14 * tx_packets, rx_bytes - 14 * rx_packets),
        ("libnetmeter, bytes", total("tx_bytes"), total("rx_bytes")),
        (
            "difference, bytes",
            total("tx_bytes") - tx_bytes + 14 * tx_packets,
            total("rx_bytes") - rx_bytes + 14 * rx_packets,
        ),
    ]
    print(f'{"":24}{"sent":>14}{"received":>14}')
    for name, sent, received in table:
        print(f"{name:24}{sent:>14,}{received:>14,}")

    errors = []
    if table[0][1:] != table[1][1:] or table[-1][1:] != (0, 0):
        errors.append("interface and libnetmeter differ")
    if dropped:
        errors.append(f"the interface dropped {dropped} packets, which libnetmeter has counted; is this machine overloaded?")
    if min(tx_bytes, rx_bytes) < 10_000_000:
        errors.append("there was too little traffic")
    return errors


def main():
    errors = {"rows": compare_rows, "sum": compare_sum}[sys.argv[1]](*sys.argv[2:])
    for error in errors:
        print("demo.sh:", error, file=sys.stderr)
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
