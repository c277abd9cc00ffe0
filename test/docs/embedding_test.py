#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""docs/embedding.md's "From your own repository" works as it stands there.

Once, bazel_rules() looked for rules_cc in the user's workspace, and without it
Bazel wanted to download it: nobody could depend on @libnetmeter.

bazel test //test/docs:embedding_test. Runs a Bazel of its own, in the test's
folder; NETMETER_BAZEL and NETMETER_BAZEL_OPTIONS as in bindings/python/setup.py.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def blocks():
    """name of the file -> text, of each fence that begins with "# NAME"."""
    with open(os.path.join(ROOT, "docs/embedding.md"), encoding="utf-8") as file:
        _, found, section = file.read().partition("\n## From your own repository\n")
    assert found, "the section is gone"
    section = re.split(r"^##", section, flags=re.M)[0]
    return dict(re.findall(r"^```\w*\n# (\S+)\n(.*?)^```$", section, re.M | re.S))


class EmbeddingTest(unittest.TestCase):
    def setUp(self):
        self.scratch = os.path.realpath(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.own = os.path.join(self.scratch, "own")
        os.mkdir(self.own)
        # The document's path is "../libnetmeter".
        os.symlink(ROOT, os.path.join(self.scratch, "libnetmeter"))
        self.addCleanup(self.remove)

    def remove(self):
        self.bazel("shutdown")
        # Bazel takes the right to write from what it has made.
        subprocess.run(["chmod", "-R", "u+w", self.scratch], check=False, timeout=60)
        shutil.rmtree(self.scratch)

    def bazel(self, command, *arguments):
        return subprocess.run(
            shlex.split(os.environ.get("NETMETER_BAZEL", "bazel"))
            + ["--output_user_root=" + os.path.join(self.scratch, "bazel"), "--host_jvm_args=-Xmx1g", command]
            + list(arguments),
            cwd=self.own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=240,
        )

    def build(self, *options):
        options += tuple(shlex.split(os.environ.get("NETMETER_BAZEL_OPTIONS", "")))
        built = self.bazel("build", "--jobs=2", *options, "//:embed")
        output = built.stdout.decode(errors="replace")
        self.assertEqual(built.returncode, 0, output)
        # With a meter or without, it says what it found.
        program = os.path.join(self.own, "bazel-bin", "embed")
        ran = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertRegex(ran.stdout.decode(), "my-service|netmeter")
        return output

    def test_the_example_builds_in_a_workspace_of_its_own(self):
        files = blocks()
        self.assertEqual(sorted(files), [".bazelrc", "BUILD.bazel", "MODULE.bazel", "WORKSPACE"])
        for name, text in files.items():
            with open(os.path.join(self.own, name), "w", encoding="utf-8") as file:
                file.write(text)
        shutil.copy(os.path.join(ROOT, "examples", "embed.cc"), self.own)
        # Debian's bazelrc has each sandbox tell what it mounts: that was 753 lines.
        self.assertNotIn("linux-sandbox.cc", self.build())
        # As the document says: code of one's own may stay C++14.
        os.unlink(os.path.join(self.own, ".bazelrc"))
        told = self.build("--cxxopt=-std=c++14", "--per_file_copt=external/libnetmeter/.*[.]cc@-std=c++17")
        self.assertIn("linux-sandbox.cc", told)
        # What needs tools of the system, down to the kernel part.
        loader = self.bazel("build", "--nobuild", "@libnetmeter//lib/netmeter_loader:netmeter-loader")
        self.assertEqual(loader.returncode, 0, loader.stdout.decode(errors="replace"))


if __name__ == "__main__":
    unittest.main()
