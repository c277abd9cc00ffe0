# SPDX-License-Identifier: BSD-3-Clause
"""The stack of the programs: the frames of all calls that lead to one another have
512 bytes. Kernels up to 6.1 count each frame in steps of 32 bytes and refuse more
("combined stack size of 4 calls is 544. Too large"); newer ones do not count the
frames of global functions, so a test on the host's kernel alone would not notice.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

OBJECT, STATIC = sys.argv.pop(1), sys.argv.pop(1)
NAME = os.path.basename(OBJECT).partition(".")[0]
MAX_STACK = 512  # MAX_BPF_STACK in include/linux/filter.h


class Object:
    """Frames and calls of the functions of a BPF object, by llvm-objdump(1)."""

    def __init__(self, path):
        command = ["llvm-objdump", "-dr", path]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
        self.frames, self._calls, self._starts = {}, {}, {}
        self.sections = {}  # of each function
        section = function = None
        lines = text.split("\n")
        for i, line in enumerate(lines):
            if match := re.match(r"Disassembly of section (\S+):", line):
                section = match.group(1)
            elif match := re.match(r"([0-9a-f]+) <(\S+)>:", line):
                if match.group(2).startswith("LBB"):
                    continue  # a label of the function
                function = match.group(2)
                self._starts[section, int(match.group(1), 16) // 8] = function
                self.sections[function] = section
                self.frames[function], self._calls[function] = 0, set()
            elif function:
                self._read(function, lines, i)

    def _read(self, function, lines, i):
        used = [int(n, 0) for n in re.findall(r"r10 - (0x[0-9a-f]+|\d+)", lines[i])]
        # The address of something on the stack.
        if match := re.search(r"(r\d) = r10", lines[i]):
            add = re.compile(match.group(1) + r" \+= -(0x[0-9a-f]+|\d+)")
            used += [int(n, 0) for line in lines[i + 1 : i + 6] for n in add.findall(line)[:1]]
        self.frames[function] = max([self.frames[function]] + used)
        # A call of a function, not of a helper. To another section it has a symbol, with
        # the function's place behind it if that is static; within one section the call
        # itself says how far away a static function is.
        if call := re.match(r"\s*(\d+):\s+85 10 00 00 ((?:[0-9a-f]{2}\s){4})", lines[i]):
            away = int.from_bytes(bytes.fromhex(call.group(2)), "little", signed=True)
            if match := re.search(r"R_BPF_64_32\s+(\S+)", lines[i + 1]):
                self._calls[function].add((match.group(1), away + 1))
            else:
                place = int(call.group(1)) + away + 1
                self._calls[function].add((self.sections[function], place))

    def calls(self, function):
        for symbol, place in self._calls[function]:
            if symbol.startswith("bpf_"):
                continue  # a function of the kernel
            yield symbol if symbol in self.frames else self._starts[symbol, place]

    def deepest(self, function):
        """(bytes, functions) of the chain of calls that takes most."""
        own = max(32, -(-self.frames[function] // 32) * 32)
        chains = [self.deepest(callee) for callee in self.calls(function)]
        size, functions = max(chains, default=(0, []))
        return own + size, [(function, self.frames[function])] + functions


class StackTest(unittest.TestCase):
    def test_frames_of_all_chains_of_calls_fit(self):
        read = Object(OBJECT)
        programs = [name for name, section in read.sections.items() if section != ".text"]
        self.assertEqual(sorted(programs), sorted(PROGRAMS[NAME]))
        for program in programs:
            size, functions = read.deepest(program)
            print(program, size, functions)
            self.assertLessEqual(size, MAX_STACK, functions)

    def test_frames_and_calls_are_read(self):
        deepest, calls, least = DEEPEST[NAME]
        size, functions = Object(OBJECT).deepest(deepest)
        self.assertGreaterEqual(len(functions), calls)
        self.assertGreaterEqual(size, least)

    # Ours are global or inline. One that is static and called by another static one left
    # no relocation, and counted as no call.
    def test_calls_of_static_functions_are_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "static.bpf.o")
            command = ["clang", "-O2", "-target", "bpf", "-c", STATIC, "-o", path]
            subprocess.run(command, check=True)
            read = Object(path)
        names = {program: [name for name, _ in read.deepest(program)[1]] for program in ("far", "near")}
        self.assertEqual(names, {"far": ["far", "middle", "leaf"], "near": ["near", "leaf"]})
        self.assertGreater(read.deepest("far")[0], MAX_STACK)
        self.assertLess(read.deepest("near")[0], MAX_STACK)


PROGRAMS = {
    "netmeter": (
        "nm_command",
        "nm_egress",
        "nm_egress_claim",
        "nm_exec",
        "nm_exit",
        "nm_fork",
        "nm_ingress",
        "nm_scan",
        "nm_setsockopt",
        "nm_sock_create",
        "nm_sock_release",
        "nm_sockops",
    ),
    "flows": (
        "nm_flow_end",
        "nm_flow_forward",
        "nm_flow_release",
        "nm_flow_rx",
        "nm_flow_sockops",
        "nm_flow_tx",
    ),
    "forward": (
        "nm_forward",
        "nm_forward4",
        "nm_forward6",
    ),
}

# One program of each, and what its chain has at least: functions, bytes.
DEEPEST = {"netmeter": ("nm_egress", 4, 256), "flows": ("nm_flow_tx", 2, 256), "forward": ("nm_forward", 1, 32)}

if __name__ == "__main__":
    unittest.main()
