#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Everything at once: two uplinks, a LAN behind NAT whose hosts are known by address, a
container behind a bridge, nghttpx, TLS, TCP and UDP, IPv4 and IPv6. The totals of each
tool, for root and for a member of the group, are what the interfaces counted less their
layer-2 headers, or the tool says what is not in them. Prints them as a table."""

import collections
import csv
import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
import unittest

import lab
import tools
from gateway import ANSWERER, HEADER, MEASURED, SEND, SERVICE, SINK

GROUP = "54321"
MEMBER = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=" + GROUP]
LINKS = {"satellite": "sat0", "lte": "wwan3", "lan": "lan0"}
PAID = ["satellite", "lte"]  # the LAN is the side of the clients
# How a tool says what it lacks.
MISSING = re.compile(r'(?m)without forwarded|"sum_lacks": "forwarded"|,forwarded$')

# The cloud: GET /SIZE, over TLS.
CLOUD = """
import http.server, socket, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        size = int(self.path[1:])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(bytes(size))
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:3])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("ready", flush=True)
server.serve_forever()
"""

# Reads sizes, and asks the cloud for as much: by TLS, or through a proxy of this host.
BROWSER = """
import http.client, socket, ssl, sys
address, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
connection = http.client.HTTPConnection(name)
connection.sock = socket.create_connection((address, port))
if port == 443:
    context = ssl._create_unverified_context()
    connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
for line in sys.stdin:
    connection.request("GET", "/" + line.strip())
    assert len(connection.getresponse().read()) == int(line)
    print("answered", flush=True)
"""


def human(bytes):
    """As HumanBytes() of lib/base/text.h."""
    value, units = bytes, ["B", "KiB", "MiB", "GiB"]
    if bytes < 1024:
        return "%d B" % bytes
    while value >= 1023.95:
        value /= 1024
        units.pop(0)
    return "%.1f %s" % (value, units[0])


def both_ways(total):
    return total


def shown(total):
    return human(sum(total))


def sums_of(rows):
    """{uplink: (sent, received)} of the rows of JSON on links."""
    sums = collections.defaultdict(lambda: (0, 0))
    for row in rows:
        if row.get("path", "direct") == "direct":
            sent, received = sums[row["uplink"]]
            sums[row["uplink"]] = sent + row["tx_bytes"], received + row["rx_bytes"]
    return sums


def samples_of(page, *families):
    """{uplink: (sent, received)} of the exporter's page."""
    rows = [
        {"uplink": uplink, "tx_bytes": 0, "rx_bytes": 0, way + "_bytes": int(value)}
        for family, uplink, way, value in re.findall(
            r'(?m)^(\w+)\{.*uplink="(\w*)".*direction="(\w+)".*\} (\d+)$', page
        )
        if family in families
    ]
    return sums_of(rows)


def in_terminal(command):
    """What a program writes to a terminal of 200 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.STDOUT, preexec_fn=lab.die_with_parent)
    os.close(its)
    text = b""
    try:
        while data := os.read(ours, 65536):
            text += data
    except OSError:  # EIO: it has ended
        pass
    os.close(ours)
    assert process.wait(20) == 0, text
    return text.decode().replace("\r\n", "\n")


@unittest.skipUnless(MEASURED, "before Linux 6.4")
class EverythingTest(tools.GatewayTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.add_ipv6()
        cls.add_bridge()
        cls.container = cls.add_container(2)
        for link in ("sat0", "wwan3"):
            for clients in ("10.77.3.0/24", "10.80.0.0/24"):
                lab.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", clients, "-o", link, "-j", "MASQUERADE")
        cls.internet.serve(cls, SINK)
        cls.internet.serve(cls, CLOUD, *lab.make_certificate(cls.directory, "cloud.example"))
        cls.load({"uplinks": {u: [i] for u, i in LINKS.items()}, "forwarded_clients": ["lan"], "proxy_ports": [lab.PROXY_PORT]}, GROUP)
        cls.copy_programs()
        cls.pins = ["--pin-dir", cls.meter.pin_dir]
        cls.history = ["--database", os.path.join(cls.directory, "state", "history.db")]

    @classmethod
    def copy_programs(cls):
        """To where a member of the group may execute them."""
        os.chmod(cls.directory, 0o755)
        cls.netmeter, cls.exporter = (
            shutil.copy(lab.path(program), cls.directory) for program in ("lib/apps/netmeter/netmeter", "lib/apps/exporter/netmeter-exporter")
        )

    def start_proxy(self):
        process = self.meter.start(
            [
                *("nghttpx", "--conf=/dev/null", "--workers=1", "--no-ocsp", "--insecure"),
                "--frontend=127.0.0.1,%d;no-tls" % lab.PROXY_PORT,
                "--backend=10.77.2.2,443;;tls;proto=http/1.1;sni=cloud.example",
                # What follows the end of a connection reaches no socket.
                *("--backend-keep-alive-timeout=1h", "--frontend-keep-alive-timeout=1h"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        lab.wait_for(lambda: lab.run("ss", "-Htln", "sport = :%d" % lab.PROXY_PORT), "nghttpx")

    def get(self, browser, size):
        browser.stdin.write("%d\n" % size)
        browser.stdin.flush()
        self.assertEqual(browser.stdout.readline(), "answered\n")

    def pass_all(self):
        """No connection ends."""
        for address in ("10.77.1.2", "10.77.2.2", "fd77:1::2"):
            self.meter.run([lab.PYTHON, "-c", SEND, address])
        self.start_proxy()
        self.get(lab.start_service(self, "proxied", BROWSER, "127.0.0.1", str(lab.PROXY_PORT), "cloud.example"), 400000)
        self.get(lab.start_service(self, "updater", BROWSER, "10.77.1.2", "443", "updates.example"), 300000)
        service = self.service = lab.start_service(self, "mme", SERVICE)
        for address, size in (("10.77.1.2", 50000), ("10.77.2.2", 20000), ("fd77:1::2", 10000)):
            self.ask(service, address, size)
        # A container's programs are counted, and so is what the host forwards for it.
        self.meter.run([*self.container.enter, lab.PYTHON, "-c", SEND, "10.77.2.2"])
        in_container = self.meter.start(
            [*self.container.enter, lab.PYTHON, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.end_later(in_container)
        self.ask(in_container, "10.77.1.2", 60000)
        for address in ("10.77.1.2", "10.77.2.2", "fd77:1::2"):
            self.lan.run(lab.PYTHON, "-c", SEND, address)
        client = self.client = self.lan.start(type(self), lab.PYTHON, "-c", SERVICE, stdin=subprocess.PIPE, text=True)
        for address, size in (("10.77.1.2", 70000), ("10.77.2.2", 30000), ("fd77:1::2", 20000)):
            self.ask(client, address, size)
        # A client of the LAN asks the gateway itself.
        answerer = lab.start_service(self, "dnsd", ANSWERER)
        self.assertEqual(answerer.stdout.readline(), "ready\n")
        self.ask(client, "10.77.3.1", 5000)

    def end_later(self, process):
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def run_as(self, reader, *command):
        return lab.run(*reader, self.netmeter, *command).decode()

    def record(self):
        lab.run(self.netmeter, "record", *self.pins, *self.history)

    def interfaces(self):
        """{uplink: (sent, received)}: what the interface counted since the load, less the
        layer-2 header of each packet."""

        def grown(link, way, unit):
            return self.links[link][way][unit] - self.before[link][way][unit]

        return {
            uplink: tuple(grown(link, way, 0) - HEADER * grown(link, way, 1) for way in ("tx", "rx"))
            for uplink, link in LINKS.items()
        }

    CHOICES = {"sum": [], **{uplink: ["--uplink", uplink] for uplink in LINKS}}

    # --- The totals that a tool has, {uplink: (sent, received)}, and its words ----------

    def list_table(self, reader):
        text = in_terminal([*reader, self.netmeter, "list", "--bytes", *self.pins])
        found = re.findall(r"(?m)^ +total, (\S+) .* (\d+) +(\d+)(?: +\d+){5}$", text)
        return {uplink: (int(tx), int(rx)) for uplink, tx, rx in found}, text

    def list_json(self, reader):
        text = self.run_as(reader, "list", "--json", *self.pins)
        return sums_of(json.loads(text)), text

    def list_csv(self, reader):
        text = self.run_as(reader, "list", "--csv", *self.pins)
        numbers = ("tx_bytes", "rx_bytes")
        rows = [
            {key: int(value) if key in numbers else value for key, value in row.items()}
            for row in csv.DictReader(io.StringIO(text))
        ]
        return sums_of(rows), text

    def list_since(self, reader):
        text = self.run_as(reader, "list", "--since", "3d", "--bytes", *self.pins, *self.history)
        # The group's totals had the label "without forwarded", but the history has it.
        self.assertNotIn("; forwarded traffic until the last record\n", text)
        found = re.findall(r"(?m)^ +total, (\S+) .* (\d+) +(\d+)(?: +\d+){5}$", text)
        return {uplink: (int(tx), int(rx)) for uplink, tx, rx in found}, text

    def top_json(self, reader):
        text = self.run_as(reader, "top", "--once", "--interval", "0.1", "--json", *self.pins)
        return sums_of(json.loads(text)), text

    def usage_by_uplink(self, reader):
        text = self.run_as(reader, "usage", "--by", "uplink", "--json", *self.history)
        found = json.loads(text)
        return sums_of(found["rows"] + found["not_in_sum"]), text

    def usage(self, reader):
        text = self.run_as(reader, "usage", "--json", *self.history)
        found = json.loads(text)
        sums = sums_of(found["uplinks"] + found["not_in_sum"])
        self.assertEqual([row["uplink"] for row in found["uplinks"]], PAID)
        sums["sum"] = found["sum"]["tx_bytes"], found["sum"]["rx_bytes"]
        return sums, text

    def usage_of_uplinks(self, reader):
        """The total of each, of which its rows are the sum."""
        sums = {}
        for uplink in LINKS:
            found = json.loads(self.run_as(reader, "usage", "--uplink", uplink, "--json", *self.history))
            sums[uplink] = found["sum"]["tx_bytes"], found["sum"]["rx_bytes"]
            self.assertEqual(sums_of(dict(row, uplink=uplink) for row in found["rows"])[uplink], sums[uplink])
        return sums, ""

    def budgets(self, reader):
        """Both directions."""
        used = {}
        for uplink, options in self.CHOICES.items():
            command = ["budget", "--limit", "1 TB", *options, "--json", *self.history]
            used[uplink] = json.loads(self.run_as(reader, *command))[0]["used_bytes"]
        return used, ""

    def report(self, reader):
        """Both directions, as the headline shows it."""
        shown = {}
        for uplink, options in self.CHOICES.items():
            page = self.run_as(reader, "report", "--html", "-", *options, *self.history)
            shown[uplink] = re.search('<p class="big">(.*?)</p>', page)[1]
        return shown, ""

    def exporter_page(self, reader):
        return tools.scrape(*reader, self.exporter, "--service303", "off", *self.pins, *self.history)

    def exporter_uplinks(self, reader):
        return samples_of(self.exporter_page(reader), "netmeter_uplink_bytes_total"), ""

    def exporter_series(self, reader):
        page = self.exporter_page(reader)
        families = ("netmeter_wire_bytes_total", "netmeter_pending_bytes", "netmeter_forwarded_bytes_total")
        return samples_of(page, *families), ""

    TOOLS = (
        ("list", list_table, both_ways),
        ("list --json", list_json, both_ways),
        ("list --csv", list_csv, both_ways),
        ("list --since", list_since, both_ways),
        ("top --once --json", top_json, both_ways),
        ("usage", usage, both_ways),
        ("usage --uplink", usage_of_uplinks, both_ways),
        ("usage --by uplink", usage_by_uplink, both_ways),
        ("budget", budgets, sum),
        ("report", report, shown),
        ("exporter, uplinks", exporter_uplinks, both_ways),
        ("exporter, series", exporter_series, both_ways),
    )

    def check_shares(self):
        """While the LAN asks: parts of the uplinks' traffic, which is in their sum once."""
        for reader in ([], MEMBER):
            table = self.run_as(reader, "top", "--once", "--interval", "0.1", *self.pins)
            self.assertRegex(table, r"^total of lte \+ satellite: ")
            top = subprocess.Popen(
                [*reader, self.netmeter, "top", "--once", "--json", *self.pins], stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent
            )
            while top.poll() is None:
                self.ask(self.client, "10.77.1.2", 10000)
                self.ask(self.service, "10.77.2.2", 10000)
            with top.stdout:
                rows = json.load(top.stdout)
            self.assertAlmostEqual(sum(row["share"] or 0 for row in rows), 1, msg=rows)
            self.assertEqual({row["uplink"] for row in rows if row["share"]}, set(PAID), rows)

    def check_names(self):
        """Of each kind of traffic."""
        series = json.loads(self.run_as([], "list", "--json", *self.pins))
        names = {(row["name"], row["destination"], row["uplink"]) for row in series}
        expected = {
            ("proxied", "", ""),
            ("nghttpx", "cloud.example", "lte"),
            ("updater", "updates.example", "satellite"),
            ("mme", "", "satellite"),
            ("mme", "", "lte"),
            ("dnsd", "", "lan"),
            ("br0", "", "satellite"),
            ("lan0", "10.77.3.2", "satellite"),
            ("lan0", "10.77.3.2", "lte"),
            ("lan0", "fd77:3::2", "satellite"),
        }
        self.assertEqual(expected - names, set(), names)

    def test_every_total_is_the_interfaces(self):
        self.pass_all()
        _, self.links = self.steady(self.record)
        expected = self.interfaces()
        expected["sum"] = tuple(sum(expected[uplink][way] for uplink in PAID) for way in (0, 1))
        rows = []
        for tool, totals_of, form in self.TOOLS:
            for name, reader in (("root", []), ("group", MEMBER)):
                totals, text = totals_of(self, reader)
                self.assertLessEqual(set(LINKS), set(totals), (tool, name))
                for uplink in sorted(set(expected) & set(totals)):
                    want = form(expected[uplink])
                    self.assertNotRegex(text, MISSING)
                    verdict = "equal" if totals[uplink] == want else "WRONG"
                    rows.append((tool, name, uplink, totals[uplink], want, verdict))
        lab.print_table("Totals", ("TOOL", "READER", "UPLINK", "TOTAL", "INTERFACES", "VERDICT"), rows)
        self.assertEqual([row for row in rows if row[-1] != "equal"], [])
        self.check_names()
        self.check_shares()


if __name__ == "__main__":
    lab.main(120)
