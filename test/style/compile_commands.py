#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""compile_commands.py [PATTERN]: writes compile_commands.json, which clangd and
clang-tidy read, into the root of the tree.

PATTERN is a pattern of Bazel's (default: //...). "bazel build PATTERN" first:
sources include generated headers. What GCC was asked and clang does not know is
left out.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

ONLY_GCC = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"}


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else "//..."
    query = 'mnemonic("CppCompile", %s)' % pattern
    actions = json.loads(bazel("aquery", "--output=jsonproto", "--noshow_progress", query)).get("actions", [])
    # A command's paths begin at Bazel's execution root. bazel-out is in the tree,
    # too, as a link; external repositories are not.
    external = os.path.join(bazel("info", "output_base").strip(), "external") + "/"
    commands = {}
    for action in actions:
        arguments = [
            external + word[len("external/") :] if word.startswith("external/") else word
            for word in action["arguments"]
            if word not in ONLY_GCC
        ]
        source = arguments[arguments.index("-c") + 1]
        # A file that several targets compile has one command. Generated code has none.
        if not source.startswith("bazel-out/"):
            commands[source] = {"directory": ROOT, "file": source, "arguments": arguments}
    with open(os.path.join(ROOT, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump([commands[source] for source in sorted(commands)], file, indent=1)
    print("compile_commands.json: %d files" % len(commands))


if __name__ == "__main__":
    main()
