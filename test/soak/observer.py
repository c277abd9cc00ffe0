#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""observer.py EXPORTER RESULT PIN_DIR TEST: the third reader of test/soak.sh, in Python,
and the exporter. Reads all series and scrapes /metrics, again and again, until SIGTERM.
Appends what it has seen in TEST to the file RESULT, as a line of JSON. Exits with 1 if a
read or a scrape failed, if a value went back whose series was not evicted, or the sum
did, or if one of the two processes has grown by more than 4 MiB since its first minute."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import netmeter

GROWTH_KIB = 4096
SETTLED_SECONDS = 60

VALUES = (
    "tx_bytes",
    "rx_bytes",
    "tx_packets",
    "rx_packets",
    "tx_payload_bytes",
    "rx_payload_bytes",
    "tx_retransmit_bytes",
)

# All bytes on the link (docs/metrics.md#the-bill).
SUM = ("netmeter_wire_bytes_total", "netmeter_pending_bytes", "netmeter_evicted_bytes_total")


class Monotonic:
    """Values by key, which may not go back, nor their sum. One that is gone, or less, is
    that of a series which was evicted, if the meter says that there were some. Then its
    bytes are in kind `evicted`: that kind, those of no owner and the sum never go back."""

    def __init__(self, result):
        self._last, self._result = {}, result
        self._total = 0
        self._evicted = self._evicted_before = 0

    def see(self, values, total, pending, evicted):
        """`values` has (value, whether its series may be evicted) by key; `total` and
        `pending` are sums, and `evicted` is Health.evicted_series after the read."""
        # Compared with the number before the values were read that are there since. The
        # exporter may give the same ones again.
        excused = evicted > self._evicted_before
        for key, (before, may_evict) in self._last.items():
            value = values.get(key, (0,))[0]
            if value < before and not (may_evict and excused):
                self._fault(key, before, value)
            elif value < before:
                self._result["resets"] += 1
        # Pending traffic moves to its own series. A read in the middle may have it twice,
        # and the next one has it once.
        if total < self._total:
            self._fault("the sum", self._total, total)
        if evicted < self._evicted:
            self._fault("evicted_series", self._evicted, evicted)
        if values != self._last:
            self._evicted_before = self._evicted
        self._last, self._total = values, total - pending
        self._evicted = evicted

    def _fault(self, key, before, value):
        self._result["backwards"] += 1
        self._result["last"] = "%s: %s, then %s" % (key, before, value)


FIXED = ("unattributed", "overflow", "evicted")  # kinds that are never evicted


def series(meter, monotonic):
    values, total, pending = {}, 0, 0
    for sample in meter.read_host():
        size = sample.tx_bytes + sample.rx_bytes
        total += size
        if sample.kind == netmeter.Kind.PENDING:
            pending += size
            continue
        key = tuple(
            str(getattr(sample, field))
            for field in ("kind", "name", "destination", "transport", "path", "uplink")
        )
        for value in VALUES:
            values[key + (value,)] = (getattr(sample, value), sample.kind.value not in FIXED)
    monotonic.see(values, total, pending, meter.read_health().evicted_series)


def scrape(url, monotonic, meter):
    with urllib.request.urlopen(url, timeout=20) as reply:
        text = reply.read().decode()
    values, total, pending = {}, 0, 0
    for line in text.splitlines():
        match = re.fullmatch(r"((netmeter_\w+)(\{.*\})?) (\S+)", line)
        if not match:
            continue
        metric, family, labels, value = match[1], match[2], match[3] or "", float(match[4])
        if family in SUM:
            total += value
        if family == "netmeter_pending_bytes":
            pending += value
        if family.endswith("_total"):
            kind = re.search(r'\bkind="(\w+)"', labels)
            fixed = not kind or kind[1] in FIXED or "_evicted_" in family
            values[metric] = (value, not fixed)
    monotonic.see(values, total, pending, meter.read_health().evicted_series)


def resident_kib(pid):
    with open("/proc/%s/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * 4


def start_exporter(program, pin_dir):
    """The process, and where its metrics are."""
    process = subprocess.Popen(
        [program, "--pin-dir", pin_dir, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    for line in process.stdout:
        said.append(line)
        match = re.search(r"http://[^ ]*/metrics", line)
        if match:
            return process, match[0]
    sys.exit("observer: no exporter: " + "".join(said))


def main():
    program, result_file, pin_dir, test = sys.argv[1:]
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    result = {"reads": 0, "scrapes": 0, "backwards": 0, "resets": 0, "errors": 0, "last": ""}
    begin = time.monotonic()
    exporter, url = start_exporter(program, pin_dir)
    pids = {"python_kib": os.getpid(), "exporter_kib": exporter.pid}
    settled = {}
    of_series, of_metrics = Monotonic(result), Monotonic(result)
    with netmeter.Meter.open(pin_dir=pin_dir) as meter:
        while not stopped:
            try:
                series(meter, of_series)
                result["reads"] += 1
                scrape(url, of_metrics, meter)
                result["scrapes"] += 1
            except (netmeter.Error, OSError) as error:
                result["errors"] += 1
                result["last"] = str(error)
            for name, pid in pids.items():
                result[name] = resident_kib(pid)
                if time.monotonic() - begin > SETTLED_SECONDS:
                    settled.setdefault(name, result[name])
            time.sleep(0.2)
    exporter.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        exporter.wait(timeout=10)
    exporter.kill()
    grown = {name: result[name] - settled.get(name, result[name]) for name in pids}
    result["grown_kib"] = grown
    with open(result_file, "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "observer": result}) + "\n")
    print("observer:", json.dumps(result), flush=True)
    bad = result["backwards"] or result["errors"] or not result["scrapes"]
    return 1 if bad or max(grown.values()) > GROWTH_KIB else 0


if __name__ == "__main__":
    sys.exit(main())
