#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does what docs/first-day.md says, in the virtual machine of test_debs.sh --first-day.

A block of YAML is written to the file that its first line names. In a block without a
language, "# " begins a command of root and "$ " one of alice; the lines after it are in its
output, but for figures. A command is repeated until it succeeds and prints them: the record
of the history is made once a minute.
"""

import os
import re
import subprocess
import sys
import time

PAGE, LIMIT = "/first-day.md", 240
# What a gateway does all the time: rsync by the satellite, telemetry by LTE.
TRAFFIC = """
import socket, sys, time
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    link.sendto(bytes(1000), (sys.argv[1], 9))
    time.sleep(0.1)
"""


def say(text):
    print("GUEST: " + text, flush=True)


def run(command, user="root"):
    who = [] if user == "root" else ["su", user, "-s"]
    # Without a terminal: apt would be stopped when it asks ours about its size.
    done = subprocess.run(
        [*who, "/bin/bash", "-c", command], start_new_session=True, cwd="/debs",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def pattern_of(line):
    """The line with any figures, and any unit of bytes."""
    words = ["\\S+" if re.search(r"\d", word) or re.fullmatch(r"[kKMGT]?i?B", word) else re.escape(word) for word in line.split()]
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*$", re.M)


def follow(command, user, lines):
    say(f"{user}: {command}")
    end = time.monotonic() + LIMIT
    while True:
        status, output = run(command, user)
        missing = [line for line in lines if not pattern_of(line).search(output)]
        if status == 0 and not missing:
            break
        if time.monotonic() > end:
            say(f"FAIL: {command}: status {status}, without {missing}:\n{output}")
            run("journalctl --no-pager -n 30 -u 'netmeter*' > /dev/console")
            sys.exit(1)
        time.sleep(2)
    say("ok\n" + output)


def prepare():
    for command in (
        "modprobe dummy",
        "ip link add sat0 type dummy", "ip address add 198.51.100.2/24 dev sat0", "ip link set sat0 up",
        "ip link add wwan0 type dummy", "ip address add 203.0.113.2/24 dev wwan0", "ip link set wwan0 up",
        "ip link set lo up", "useradd --create-home alice", "mkdir -p /opt/bin",
    ):
        say(command)
        status, output = run(command)
        assert status == 0, (command, output)
    for name, address in (("rsync", "198.51.100.7"), ("telemetry", "203.0.113.7")):
        os.symlink("/usr/bin/python3", "/opt/bin/" + name)
        subprocess.Popen(["/opt/bin/" + name, "-c", TRAFFIC, address])  # until the machine ends


def main():
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    prepare()
    commands = 0
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S):
        if language == "yaml":
            with open(re.match(r"# (/\S+)\n", body).group(1), "w", encoding="utf-8") as file:
                file.write(body)
            continue
        assert language == "", language
        for prompt, command, lines in re.findall(r"^([#$]) (.*)\n((?:(?![#$] ).*\n)*)", body, re.M):
            follow(command, "root" if prompt == "#" else "alice", lines.splitlines())
            commands += 1
    assert commands > 8, commands
    # A user outside of the group reads nothing.
    assert run("netmeter usage", "nobody")[0] != 0
    say("PASS")


main()
