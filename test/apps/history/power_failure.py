#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""power_failure.py [--kernel LINE] [--kills N] [--interval S] [--bin DIR]: a virtual
machine with a disk of its own is killed in the middle of a transfer, N times (10), and
booted again each time. `netmeter record` runs each S seconds (2) there.

After each boot the history has to have all that was recorded before the kill: at most
the last interval is lost, and nothing is there that was not sent. A program in the guest
says what it sends, to the byte. The reboot has to be there as a gap.

The kill is a SIGKILL of QEMU: what the guest had not written to its disk is gone, and
what it had is there, as on a disk without a cache of its own.

Needs QEMU, mkfs.ext4, and the kernel (test/kernels/matrix.sh --fetch --kernels 6.1), and
what `bazel build //test/apps/history/... //lib/apps/netmeter:netmeter-static
//lib/netmeter_loader:netmeter-loader-static` makes. Prints a table. Exits with 0 if all of that
holds. Ten kills take five minutes."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VMRUN = os.path.join(HERE, "..", "..", "kernels", "vmrun.sh")
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.2": "trixie-backports"}
DISK_BYTES = 64 * 1024 * 1024
BOOT_SECONDS = 300


def boot(options, disk, argument, kill):
    """The lines that the guest printed."""
    command = [VMRUN, "-k", options.kernel_folder, "-d", disk, "-b", "ip", "-m", "veth", "-t", str(BOOT_SECONDS)]
    for name, to in (
        ("lib/netmeter_loader/netmeter-loader-static", "/bin/netmeter-loader"),
        ("lib/apps/netmeter/netmeter-static", "/bin/netmeter"),
        ("test/apps/history/sender", "/t/"),
    ):
        command += ["-f", "%s:%s" % (os.path.join(options.bin, name), to)]
    command += ["-f", os.path.join(HERE, "guest.sh")]
    environment = dict(os.environ)
    if kill:
        # Somewhere in an interval, or in a record.
        environment["KILL_AFTER"] = "%.2f" % random.uniform(0, 1.5 * options.interval)
        command += ["-K", "@@running"]
    done = subprocess.run(command + ["--", "./guest.sh", argument], env=environment, capture_output=True, timeout=BOOT_SECONDS + 60)
    if done.returncode != (137 if kill else 0):
        raise SystemExit("the guest ended with %d\n%s%s" % (done.returncode, done.stdout.decode(), done.stderr.decode()))
    return done.stdout.decode(errors="replace").replace("\r", "").splitlines()


def usage_of(lines):
    """(bytes, gaps): what the history has of the sender."""
    text = "\n".join(lines[lines.index("@@usage-begin") + 1 : lines.index("@@usage-end")])
    if "no history" in text:
        return 0, 0
    usage = json.loads(text)
    return usage["sum"]["tx_bytes"], len([gap for gap in usage["gaps"] if gap["what"] == "lost"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.1", choices=SUITES)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--interval", type=float, default=2)
    parser.add_argument("--bin", default="bazel-bin")
    options = parser.parse_args()
    options.kernel_folder = os.path.expanduser("~/.cache/netmeter/kernels/" + SUITES[options.kernel])
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, "disk")
        with open(disk, "wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
        all_sent = recorded = 0
        print("%5s %12s %12s %12s %10s %6s  %s" % ("kill", "sent", "recorded", "lost", "at most", "gaps", "verdict"))
        lines = boot(options, disk, str(options.interval), kill=True)
        for kill in range(1, options.kills + 1):
            sending = [int(line.split()[1]) for line in lines if line.startswith("@@sending ")]
            records = [list(map(int, line.split()[1:])) for line in lines if line.startswith("@@recorded ")]
            last = kill == options.kills
            lines = boot(options, disk, "last" if last else str(options.interval), kill=not last)
            total, gaps = usage_of(lines)
            found = total - recorded
            # The last record that is known to have ended began with this count.
            least, most = max(record[1] for record in records), sending[-1]
            good = least <= found <= most and gaps == kill - 1 and all(record[0] == 0 for record in records)
            failures += not good
            row = (kill, most, found, most - found, most - least, gaps, "ok" if good else "WRONG")
            print("%5d %12d %12d %12d %10d %6d  %s" % row, flush=True)
            all_sent += most
            recorded = total
    print("sent %d, in the history %d, lost %d by %d kills" % (all_sent, recorded, all_sent - recorded, options.kills))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
