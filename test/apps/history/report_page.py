#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""report_page.py [--bin DIR] [--png FILE] [--keep DIR]: what `netmeter report` writes, as a
browser shows it. A history of this month is made up, for a host with two uplinks that forwards
for a LAN; Chromium opens its page in both colour schemes and as on a phone, and prints it. An
error on the browser's console, anything that the page wants to load, and a cell or a time that
is broken or cut at 390 pixels are failures.

--png FILE has the page in light colours: docs/report.png. --keep DIR gets all of it: the page,
the pictures and the PDF, to be looked at.

Needs root, Chromium (`apt-get install chromium`), and what `bazel build
//lib/netmeter_loader:netmeter-loader //lib/apps/netmeter:netmeter` makes. Not in test/run.sh."""

import argparse
import datetime
import html
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [os.path.join(ROOT, "lib/testing"), os.path.join(ROOT, "lib/apps/testing")]

BUDGETS = """budgets:
  - {name: satellite, limit: 60 GB, uplink: satellite}
  - {name: backups, limit: 3 GB, service: rsync}
"""
# kind, name, destination, uplink, MB a day each way
SERIES = (
    ("binary", "nghttpx", "cloud", "lte", 400, 2900),
    ("service", "magmad", "bootstrapper", "satellite", 140, 900),
    ("service", "subscriberdb", "streamer", "satellite", 110, 500),
    ("unit", "apt-daily", "packages.example", "lte", 60, 450),
    ("service", "mobilityd", "state", "satellite", 50, 270),
    ("binary", "rsync", "store", "satellite", 90, 20),
    ("binary", "curl", "", "lte", 18, 90),
    ("unattributed", "unattributed", "", "satellite", 5, 25),
    ("forwarded", "forwarded", "", "satellite", 220, 700),
    ("forwarded", "forwarded", "", "lan", 700, 220),
)


def make_history(lab, tools, database):
    """`netmeter record` makes the tables, and a month of hours is put into them. The next
    record knows that the LAN is on no bill."""
    meter = lab.Meter("report")
    record = [tools.NETMETER, "record", "--pin-dir", meter.pin_dir, "--database", database]
    try:
        meter.load({"uplinks": {"satellite": ["sat0"], "lte": ["wwan0"], "lan": ["eth1"]}, "forwarded_clients": ["lan"]})
        lab.run(*record)
        fill(database)
        lab.run(*record)
    finally:
        meter.close()


def fill(database):
    numbers = random.Random(7)
    today = datetime.datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    with sqlite3.connect(database) as history:
        for i, (kind, name, destination, uplink, _, _) in enumerate(SERIES):
            row = (1000 + i, kind, name, destination, "tcp", "direct", uplink)
            history.execute("INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for day in range(today.day):
            begin = today.replace(day=day + 1) + datetime.timedelta(hours=12)
            start = int(begin.timestamp())
            history.execute("INSERT OR IGNORE INTO hour VALUES (?, ?)", (start, int(begin.strftime("%Y%m%d"))))
            for i, (_, _, _, _, sent, received) in enumerate(SERIES):
                pace = numbers.uniform(0.6, 1.4) * (3 if numbers.random() < 0.03 else 1)
                values = {
                    "tx_bytes": sent * pace * 1e6,
                    "rx_bytes": received * pace * 1e6,
                    "tx_packets": sent * pace * 900,
                    "rx_packets": received * pace * 900,
                    "tx_payload_bytes": sent * pace * 95e4,
                    "rx_payload_bytes": received * pace * 95e4,
                    "tx_retransmit_bytes": sent * pace * numbers.uniform(1e4, 3e4),
                }
                columns = ", ".join(["start", "series", *values])
                all_of_them = [start, 1000 + i, *(int(value) for value in values.values())]
                text = "INSERT OR REPLACE INTO hour_traffic (%s) VALUES (%s)" % (columns, ", ".join("?" * len(all_of_them)))
                history.execute(text, all_of_them)
        gap = int(today.replace(day=1).timestamp()) + 36000
        history.execute("INSERT INTO gap (begin, end, what) VALUES (?, ?, 'lost')", (gap, gap + 420))


def browse(page, *options):
    """Chromium with a page; what it says on its console is an error, except of Chromium's own pages."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    done = subprocess.run(command + [*options, "file://" + page], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=True)
    lines = done.stdout.decode(errors="replace").splitlines()
    said = [line for line in lines if "CONSOLE" in line and "source: chrome://" not in line]
    if said:
        raise SystemExit("report_page.py: on the console:\n" + "\n".join(said))


def check_narrow(page, picture):
    """The page as on a phone, 390 pixels wide: nothing is wider, and each cell and each time is
    one line, unlike `subscriberdb`, letter by letter, or 2026-11- and 30. An iframe is as
    narrow as no window may be."""
    outer = page + ".390.html"
    with open(page, encoding="utf-8") as file:
        inner = html.escape(file.read())
    with open(outer, "w", encoding="utf-8") as file:
        file.write(
            """<body style="margin: 0"><iframe id="phone" style="border: 0; width: 390px; height: 4000px" srcdoc="%s"></iframe>
<script>onload = () => {
  const page = document.getElementById("phone").contentDocument;
  const cells = [...page.querySelectorAll("td, th")].filter(cell => cell.scrollWidth > cell.clientWidth ||
    cell.clientHeight >= 2 * parseFloat(getComputedStyle(cell).lineHeight));
  const times = [...page.querySelectorAll("time")].filter(time => time.getClientRects().length > 1);
  document.title = JSON.stringify([page.documentElement.scrollWidth, ...[...cells, ...times].map(one => one.innerText)]);
}</script>"""
            % inner
        )
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "file://" + outer]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    found = re.search("<title>(.*?)</title>", done.stdout.decode().rpartition("</iframe>")[0].partition("<body")[0])
    browse(outer, "--window-size=390,4000", "--screenshot=" + picture)
    measured = json.loads(html.unescape(found.group(1)))
    if measured != [390]:
        raise SystemExit("report_page.py: at 390 pixels, the width and what is broken or cut: %s" % measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "bazel-bin"))
    parser.add_argument("--png")
    parser.add_argument("--keep")
    options = parser.parse_args()
    keep, png = (os.path.abspath(one) if one else None for one in (options.keep, options.png))
    if shutil.which("chromium") is None:
        raise SystemExit("report_page.py: no chromium (apt-get install chromium)")
    os.chdir(options.bin)
    # They find the programs from here.
    import lab  # pylint: disable=import-outside-toplevel
    import tools  # pylint: disable=import-outside-toplevel

    lab.private_network()
    with tempfile.TemporaryDirectory() as folder:
        database, budgets, page = (os.path.join(folder, name) for name in ("history.db", "budgets.yml", "report.html"))
        with open(budgets, "w", encoding="utf-8") as file:
            file.write(BUDGETS)
        make_history(lab, tools, database)
        lab.run(tools.NETMETER, "report", "--database", database, "--html", page, "--month", "--budgets", budgets)
        for scheme, number in (("dark", "0"), ("light", "1")):
            picture = os.path.join(folder, scheme + ".png")
            settings = "--blink-settings=preferredColorScheme=" + number
            browse(page, settings, "--window-size=1000,2380", "--screenshot=" + picture)
        check_narrow(page, os.path.join(folder, "390.png"))
        browse(page, "--print-to-pdf=" + os.path.join(folder, "report.pdf"))
        for name in ("dark.png", "light.png", "390.png", "report.pdf"):
            size = os.path.getsize(os.path.join(folder, name))
            print("%s: %d bytes" % (name, size))
            if size < 10000:
                raise SystemExit("report_page.py: %s is empty" % name)
        if png:
            shutil.copy(os.path.join(folder, "light.png"), png)
        if keep:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
    print("no error on the console")


if __name__ == "__main__":
    main()
