#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""packaging/make_release.sh, without the builds: in a copy of what it compares, where Bazel,
git and the scripts that it calls only note that they were called.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

# Each file that has the version, and where: more of it, and it is another one.
VERSIONS = {
    "lib/core/version.h": ('kVersion[] = "', "9"),
    "packaging/debian/changelog": ("netmeter (", "9"),
    "CHANGELOG.md": ("## [", "9"),
    "bindings/python/setup.py": ("version=", "not_"),
    "lib/capi/BUILD.bazel": ('soname = "libnetmeter.so.', "9"),
    "packaging/debian/control": ("Package: libnetmeter", "9"),
    "lib/capi/exports.lds": ("\nNETMETER_", "9"),
}

STUBS = {
    "bin/bazel": 'case $1 in build) shift; echo "bazel build $*" >> calls ;; info) echo "$PWD/bin" ;; esac',
    "bin/git": "tar -cT /dev/null",
    "packaging/make_debs.sh": 'echo deb > "$1/netmeter_1.deb"',
    "packaging/make_wheels.sh": 'echo wheel > "$1/netmeter.whl"',
    "bin/lib/loader/netmeter-loader-static": "",
    "bin/lib/tools/netmeter-static": "",
    "bin/lib/tools/netmeter-exporter-static": "",
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        # The tree, and where somebody stands who calls for a release.
        for name in ("tree", "here"):
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            setattr(self, name, folder.name)
        for name in ["packaging/make_release.sh", *VERSIONS]:
            os.makedirs(os.path.dirname(os.path.join(self.tree, name)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.tree, name))
        for name, script in STUBS.items():
            path = os.path.join(self.tree, name)
            write(path, "#!/bin/sh\n" + script + "\n")
            os.chmod(path, 0o755)

    def release(self, *arguments):
        command = [os.path.join(self.tree, "packaging/make_release.sh"), *arguments]
        environment = {"PATH": f"{self.tree}/bin:/usr/bin:/bin"}
        done = subprocess.run(command, cwd=self.here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        return done.returncode, done.stdout.decode()

    def test_a_release_needs_versions_that_agree(self):
        self.assertEqual(self.release("--check")[0], 0)
        for name, (before, more) in VERSIONS.items():
            path = os.path.join(self.tree, name)
            text = read(path)
            self.assertIn(before, text)
            write(path, text.replace(before, before + more, 1))
            status, output = self.release("--check")
            self.assertEqual(status, 1, (name, output))
            write(path, text)

    # No release could be made: the static programs were asked for in packages that do not
    # exist.
    def test_a_release_asks_bazel_for_the_static_programs(self):
        status, output = self.release("--snapshot", "out")
        self.assertEqual(status, 0, output)
        labels = re.match("bazel build -c opt (.*)\n$", read(os.path.join(self.tree, "calls"))).group(1).split()
        self.assertEqual(len(labels), 3)
        for label in labels:
            folder, target = re.match("//(.*):(.*)-static$", label).groups()
            self.assertIn(f'name = "{target}",', read(os.path.join(ROOT, folder, "BUILD.bazel")))


if __name__ == "__main__":
    unittest.main()
