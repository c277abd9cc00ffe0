#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""observer.py EXPORTER RESULT PIN_DIR TEST: the third reader of test/soak.sh, in Python,
and the exporter. Reads all series and scrapes /metrics, again and again, until SIGTERM.
Appends what it has seen in TEST to the file RESULT, as a line of JSON. Exits with 1 if a read or a scrape failed, if
a value went back, or if one of the two processes has grown by more than 4 MiB since its
first minute."""

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


class Monotonic:
    """Values by key, which may not go back."""

    def __init__(self, result):
        self._last, self._result = {}, result

    def see(self, key, value):
        before = self._last.get(key, 0)
        if value < before:
            self._result["backwards"] += 1
            self._result["last"] = "%s: %s, then %s" % (key, before, value)
        self._last[key] = value


def series(meter, monotonic):
    for sample in meter.read_host():
        # What was pending moves to where it belongs.
        if sample.kind == netmeter.Kind.PENDING:
            continue
        key = tuple(
            str(getattr(sample, field))
            for field in ("kind", "name", "destination", "transport", "path", "uplink")
        )
        for value in VALUES:
            monotonic.see(key + (value,), getattr(sample, value))


def scrape(url, monotonic):
    with urllib.request.urlopen(url, timeout=20) as reply:
        text = reply.read().decode()
    for line in text.splitlines():
        match = re.fullmatch(r"(netmeter_\w+_total(?:\{.*\})?) (\S+)", line)
        if match and 'kind="pending"' not in match[1]:
            monotonic.see(match[1], float(match[2]))


def resident_kib(pid):
    with open("/proc/%s/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * 4


def start_exporter(program, pin_dir):
    """The process, and where its metrics are."""
    process = subprocess.Popen(
        [program, "--pin-dir", pin_dir, "--listen", "127.0.0.1:0", "--service303", "off"],
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
    result = {"reads": 0, "scrapes": 0, "backwards": 0, "errors": 0, "last": ""}
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
                scrape(url, of_metrics)
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
