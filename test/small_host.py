#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the static programs take on a small host, with 512 series.

    bazel build -c opt //lib/netmeter_loader:netmeter-loader-static \\
      //lib/apps/netmeter:netmeter-static //lib/apps/exporter:netmeter-exporter-static
    test/small_host.py [BIN]

Loads a second meter with packaging/openwrt/files/netmeter.yml at a cgroup of its own,
fills its table, and prints the sizes of the programs, the kernel memory of the maps, and
the most memory of a load, a record and an exporter. BIN (default bazel-bin) has the
programs. Needs root, strip, and Debian's package time.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile

PROGRAMS = {
    "netmeter-loader": "lib/netmeter_loader",
    "netmeter": "lib/apps/netmeter",
    "netmeter-exporter": "lib/apps/exporter",
}
CONFIG = "packaging/openwrt/files/netmeter.yml"
NM_SOL, NM_SERVICE, PROXY_PORT = 0x6E74, 3, 8443
SERIES = 512 - 21  # without the reserved ones


def run(*command):
    """The output of a command, and its most memory in KiB, which time(1) measures: a child
    of Python would begin with Python's."""
    with tempfile.NamedTemporaryFile("r") as memory:
        output = subprocess.run(("/usr/bin/time", "-f", "%M", "-o", memory.name) + command,
                                stdout=subprocess.PIPE, check=True).stdout
        return output, int(memory.read())


def fill():
    """One datagram for each series, by sockets that are given to a service each."""
    for number in range(SERIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(NM_SOL, NM_SERVICE, b"service-%d" % number)
            sender.sendto(b"hello", ("127.0.0.1", PROXY_PORT))


def in_cgroup(cgroup, function):
    child = os.fork()
    if child == 0:
        with open(cgroup + "/cgroup.procs", "w") as procs:
            procs.write("0")
        function()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("small_host.py: no traffic")


def exporter_memory(program, pins, directory):
    """KiB of an exporter after ten scrapes, and the bytes of the last one."""
    path = directory + "/metrics.sock"
    exporter = subprocess.Popen([program, "--listen", "unix:" + path, "--socket-group", "0",
                                 "--pin-dir", pins, "--budgets", "off"], stderr=subprocess.DEVNULL)
    try:
        page = b""
        scrapes = 0
        while scrapes < 10 and exporter.poll() is None:
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            try:
                connection.sock.connect(path)
            except OSError:  # it starts
                continue
            connection.request("GET", "/metrics")
            page = connection.getresponse().read()
            connection.close()
            scrapes += 1
        with open("/proc/%d/status" % exporter.pid) as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmHWM"].split()[0]), len(page)
    finally:
        exporter.terminate()
        exporter.wait()


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    binaries = sys.argv[1] if len(sys.argv) > 1 else "bazel-bin"
    with open("/proc/mounts") as mounts:
        hierarchy = next(m.split()[1] for m in mounts if m.split()[2] == "cgroup2")
    cgroup = tempfile.mkdtemp(prefix="netmeter-small-", dir=hierarchy)
    directory = tempfile.mkdtemp()
    pins = directory + "/pins"
    program = {name: directory + "/" + name for name in PROGRAMS}
    try:
        for name, folder in PROGRAMS.items():
            run("strip", "-o", program[name], "%s/%s/%s-static" % (binaries, folder, name))
            print("%-18s %5d KiB on disk" % (name, os.stat(program[name]).st_size // 1024))
        _, loading = run(program["netmeter-loader"], "load", "--quiet", "--config", CONFIG, "--group", "",
                         "--cgroup", cgroup, "--pin-dir", pins)
        in_cgroup(cgroup, fill)
        rows = json.loads(run(program["netmeter"], "list", "--json", "--pin-dir", pins)[0])
        services = sum(row["kind"] == "service" for row in rows)
        cost = json.loads(run(program["netmeter"], "cost", "--seconds", "1", "--json", "--pin-dir", pins)[0])
        _, recording = run(program["netmeter"], "record", "--pin-dir", pins, "--database", directory + "/history.db")
        exporting, page = exporter_memory(program["netmeter-exporter"], pins, directory)
        print("series             %5d services" % services)
        print("kernel memory      %5d KiB of maps, %d CPUs" % (
            sum(entry["bytes"] for entry in cost["maps"]) // 1024, os.cpu_count()))
        print("netmeter-loader    %5d KiB while it loads" % loading)
        print("netmeter record    %5d KiB while it records" % recording)
        print("netmeter-exporter  %5d KiB, a scrape of %d KiB" % (exporting, page // 1024))
    finally:
        subprocess.run([program["netmeter-loader"], "unload", "--quiet", "--pin-dir", pins], check=False)
        os.rmdir(cgroup)
        subprocess.run(["rm", "-rf", "--one-file-system", directory], check=False)


main()
