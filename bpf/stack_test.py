# SPDX-License-Identifier: BSD-3-Clause
"""The stack of the programs: the frames of all calls that lead to one another have
512 bytes. Kernels up to 6.1 count each frame in steps of 32 bytes and refuse more
("combined stack size of 4 calls is 544. Too large"); newer ones do not count the
frames of global functions, so a test on the host's kernel alone would not notice.
"""

import re
import subprocess
import sys
import unittest

OBJECT = sys.argv.pop(1)
OF_FLOWS = OBJECT.endswith("flows.bpf.o")
MAX_STACK = 512  # MAX_BPF_STACK in include/linux/filter.h


class Object:
    """Frames and calls of the functions of a BPF object, by llvm-objdump(1)."""

    def __init__(self, path):
        command = ["llvm-objdump", "-dr", "--no-show-raw-insn", path]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
        self.frames, self._calls, self._starts = {}, {}, {}
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
        # A call in another section names its symbol; in the same one the number of
        # instructions to it stands in the call itself.
        if match := re.search(r"R_BPF_64_32\s+(\S+)", lines[i]):
            offset = re.search(r"call (-?(?:0x)?[0-9a-f]+)", lines[i - 1])
            self._calls[function].add((match.group(1), int(offset.group(1), 0)))

    def calls(self, function):
        for symbol, offset in self._calls[function]:
            callee = symbol if symbol in self.frames else self._starts.get((symbol, offset + 1))
            if callee:
                yield callee

    def deepest(self, function):
        """(bytes, functions) of the chain of calls that takes most."""
        own = max(32, -(-self.frames[function] // 32) * 32)
        chains = [self.deepest(callee) for callee in self.calls(function)]
        size, functions = max(chains, default=(0, []))
        return own + size, [(function, self.frames[function])] + functions


class StackTest(unittest.TestCase):
    def test_frames_of_all_chains_of_calls_fit(self):
        read = Object(OBJECT)
        expected = PROGRAMS_OF_FLOWS if OF_FLOWS else PROGRAMS
        programs = [name for name in read.frames if name in expected]
        self.assertEqual(sorted(programs), sorted(expected))
        for program in programs:
            size, functions = read.deepest(program)
            print(program, size, functions)
            self.assertLessEqual(size, MAX_STACK, functions)

    def test_frames_and_calls_are_read(self):
        size, functions = Object(OBJECT).deepest("nm_flow_tx" if OF_FLOWS else "nm_egress")
        self.assertGreaterEqual(len(functions), 2 if OF_FLOWS else 4)
        self.assertGreater(size, MAX_STACK / 2)


PROGRAMS = (
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
)

PROGRAMS_OF_FLOWS = (
    "nm_flow_end",
    "nm_flow_release",
    "nm_flow_rx",
    "nm_flow_sockops",
    "nm_flow_tx",
)

if __name__ == "__main__":
    unittest.main()
