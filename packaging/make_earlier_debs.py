#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes packages of an earlier version out of those of this one, for the test of an upgrade:

  packaging/make_earlier_debs.py FROM TO

They have version 0.0.1-1. The BPF object in netmeter-loader has other instructions, which do
the same: "r = N" of 32 bits in place of 64 where N is not negative, as the upper half is
cleared (RFC 9669, section 4.1). So the kernel has other programs, with other tags, and `load`
of the true version has to replace each that says "r = N" anywhere.
"""

import glob
import os
import re
import struct
import subprocess
import sys
import tempfile

BPF = 247  # EM_BPF
EXECUTABLE = 4  # SHF_EXECINSTR
MOV64, MOV32, LOAD64 = 0xB7, 0xB4, 0x18  # all with a constant


def code_of(data, start):
    """(offset, size) of the instructions of the BPF object that begins at `start`."""
    headers, size, count = struct.unpack_from("<Q", data, start + 40)[0], *struct.unpack_from("<HH", data, start + 58)
    for index in range(count):
        flags, _, offset, length = struct.unpack_from("<QQQQ", data, start + headers + index * size + 8)
        if flags & EXECUTABLE:
            yield start + offset, length


def with_other_instructions(program):
    """The program, and how many instructions of BPF objects in it were changed."""
    data, changed = bytearray(program), 0
    for elf in re.finditer(b"\x7fELF\x02\x01", program):
        if struct.unpack_from("<H", data, elf.start() + 18)[0] != BPF:
            continue
        for offset, length in code_of(program, elf.start()):
            at = offset
            while at < offset + length:
                code, registers, jump, constant = struct.unpack_from("<BBhi", data, at)
                if code == MOV64 and registers < 16 and jump == 0 and constant >= 0:
                    data[at] = MOV32
                    changed += 1
                at += 16 if code == LOAD64 else 8
    return bytes(data), changed


def repack(deb, folder):
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["dpkg-deb", "-R", deb, root], check=True)
        control = os.path.join(root, "DEBIAN/control")
        with open(control, encoding="utf-8") as file:
            text = file.read()
        version = re.search("^Version: (.*)$", text, re.M).group(1)
        with open(control, "w", encoding="utf-8") as file:
            file.write(text.replace(version, "0.0.1-1"))
        loader = os.path.join(root, "usr/sbin/netmeter-loader")
        if os.path.exists(loader):
            with open(loader, "rb") as file:
                program, changed = with_other_instructions(file.read())
            if changed < 100:
                sys.exit(f"make_earlier_debs.py: only {changed} instructions to be changed in {deb}")
            with open(loader, "wb") as file:
                file.write(program)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", root, folder], check=True, stdout=subprocess.DEVNULL)


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.rstrip())
    for deb in glob.glob(os.path.join(sys.argv[1], "*.deb")):
        repack(deb, sys.argv[2])


main()
