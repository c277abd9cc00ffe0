#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the documents as a package installs them: install_docs.py DIR

README.md, SECURITY.md and docs/ go below DIR. A link to one of them stays; one to any other
file of the tree becomes text, as that file is not installed.
"""

import glob
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PATTERNS = ("README.md", "SECURITY.md", "docs/*.md", "docs/*.svg", "docs/*.png")


def without_links_to_the_tree(document, text, installed):
    def replace(match):
        words, target = match.groups()
        path = os.path.normpath(os.path.join(os.path.dirname(document), target.partition("#")[0] or os.path.basename(document)))
        if ":" in target or path in installed:
            return match.group(0)
        return words if os.path.basename(path) in words or "`" in words else f"{words} ({path})"

    # Not in code: a fence, or a span of a line.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    parts[::2] = [re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", replace, part) for part in parts[::2]]
    return "".join(parts)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    installed = {os.path.relpath(path, ROOT) for pattern in PATTERNS for path in glob.glob(os.path.join(ROOT, pattern))}
    for name in sorted(installed):
        target = os.path.join(sys.argv[1], name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not name.endswith(".md"):
            shutil.copyfile(os.path.join(ROOT, name), target)
            continue
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read()
        with open(target, "w", encoding="utf-8") as file:
            file.write(without_links_to_the_tree(name, text, installed))


if __name__ == "__main__":
    main()
