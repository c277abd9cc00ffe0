#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The matrix of abseils: programs with an older and with a newer abseil than the
library's link it and run, C++14, C++17 and C++20, gcc and clang, shared and static.
consumers_test is the same with this system's.

They are libabsl-dev of other Debians, as this system's apt gets them; kept in
netmeter/abseil below $XDG_CACHE_HOME or ~/.cache. What uses gRPC is not here: gRPC's
own headers and library share one abseil."""

import glob
import os
import re
import subprocess
import tempfile
import unittest

import clients
from consumers import CONSUMERS, Consumers, run

# suite: (abseil, the standards that it serves). That of bullseye is compiled as C++14,
# and defines what C++17 has inline: a program of C++17 does not link it, with or
# without us.
SUITES = {"bullseye": (20200923, ["14"]), "trixie": (20240722, ["14", "17", "20"])}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
NO_METER = ("5: no meter at /nonexistent", "\nnetmeter_up 0\n", "waiting for a meter: no meter at /nonexistent")
# Names of newer glibcs, for archives that were compiled with them.
NEWER_GLIBC = """\
#include <stdlib.h>
long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
"""
# A state of apt's own: the machine's is neither read nor changed.
APT = """\
Dir::Etc::SourceList "{0}/sources.list"; Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null"; Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{0}"; Dir::State::Lists "{0}/lists"; Dir::State::status "{0}/status"; Dir::Cache "{0}/cache";
APT::Sandbox::User ""; APT::Default-Release ""; APT::Update::Error-Mode "any";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none"; Acquire::Retries "3"; Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false";
"""


def repository():
    """Where this machine's apt has its own Debian from."""
    with open("/etc/os-release", encoding="utf-8") as file:
        own = re.search(r"^VERSION_CODENAME=(.*)$", file.read(), re.M).group(1)
    uris = re.findall(r"^'(.*)/dists/%s/InRelease'" % own, run(["apt-get", "--print-uris", "update"]), re.M)
    return next((uri for uri in uris if uri.endswith("/debian")), uris[0])


def fetch(suite, folder):
    """Puts the headers and archives of a suite's abseil into folder/include and lib."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("lists/partial", "cache/archives/partial", "root"):
            os.makedirs(os.path.join(scratch, name))
        for name, text in {
            "status": "",
            "sources.list": "deb [arch=amd64 signed-by=%s] %s %s main\n" % (KEYRING, repository(), suite),
            "apt.conf": APT.format(scratch),
        }.items():
            with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
                file.write(text)
        apt = ["apt-get", "-q", "-c", os.path.join(scratch, "apt.conf")]
        run([*apt, "update"])
        run([*apt, "download", "libabsl-dev"], cwd=scratch)
        root = os.path.join(scratch, "root")
        run(["dpkg-deb", "-x", *glob.glob(scratch + "/libabsl-dev*.deb"), root])
        os.makedirs(os.path.join(folder, "include"))
        os.makedirs(os.path.join(folder, "lib"))
        run(["cp", "-r", root + "/usr/include/absl", folder + "/include/"])
        run(["cp", *glob.glob(root + "/usr/lib/*/libabsl_*.a"), folder + "/lib/"])
        with open(scratch + "/newer_glibc.c", "w", encoding="utf-8") as file:
            file.write(NEWER_GLIBC)
        run(["gcc", "-c", scratch + "/newer_glibc.c", "-o", scratch + "/newer_glibc.o"])
        run(["ar", "rcs", folder + "/lib/libabsl_of_newer_glibc.a", scratch + "/newer_glibc.o"])


def abseil(suite):
    """The folder, which is there from then on."""
    folder = os.path.join(clients.cache("abseil"), suite)
    with clients.alone(clients.cache("abseil")):
        if not os.path.exists(folder):
            with tempfile.TemporaryDirectory(dir=clients.cache("abseil")) as scratch:
                fetch(suite, scratch + "/new")
                os.rename(scratch + "/new", folder)
    return folder


class AbseilsTest(unittest.TestCase):
    def test_programs_with_another_abseil_link_the_library_and_run(self):
        every = [name for name in CONSUMERS if re.match("(cpp|prometheus|magma)(14|17|20)-", name)]
        self.assertEqual(len(every), 12)
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as directory:
            consumers = Consumers(directory)
            for suite, (version, standards) in SUITES.items():
                names = [name for name in every if re.search("[0-9]+", name).group() in standards]
                folder = abseil(suite)
                with open(folder + "/include/absl/base/options.h", encoding="utf-8") as file:
                    namespace = re.search(r"define ABSL_OPTION_INLINE_NAMESPACE_NAME (\w+)", file.read()).group(1)
                for name, program in consumers.compile_all(names, folder).items():
                    with self.subTest(suite=suite, name=name):
                        # Its own abseil, and that of the system not at all.
                        self.assertRegex(run(["nm", "-C", program]), "absl::%s::Status" % namespace)
                        self.assertNotIn("libabsl", run(["readelf", "-d", program]))
                        done = subprocess.run(
                            [program, "/nonexistent"], stdout=subprocess.PIPE, env=consumers.environment, timeout=60
                        )
                        text = done.stdout.decode()
                        self.assertTrue(any(words in text for words in NO_METER), text)
                        self.assertEqual(done.returncode, 2)
                print("abseil %d, Debian's %s (%s): %s" % (version, suite, namespace, " ".join(names)), flush=True)

    def expect_both_work(self, program, consumers):
        done = subprocess.run([program], stdout=subprocess.PIPE, env=consumers.environment, timeout=60)
        self.assertEqual(
            (done.returncode, done.stdout.decode()), (0, 2 * "ReadHost: UNAVAILABLE\nsamples of its own\n")
        )

    def test_two_abseils_in_one_process(self):
        # The dynamic linker took the shared library's Meter::Open() for the program's.
        # absl::Status of one abseil was read as the other's: a segmentation fault.
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as directory:
            consumers = Consumers(directory)
            self.expect_both_work(consumers.compile_two("two", abseil=abseil("trixie")), consumers)

    def test_two_versions_of_the_headers_in_one_process(self):
        # Tests std::vector<Sample>, in which a later version has one more member.
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as directory:
            consumers = Consumers(directory)
            later = os.path.join(directory, "later")
            run(["cp", "-r", os.path.join(consumers.prefix, "include"), later])
            with open(later + "/netmeter/sample.h", encoding="utf-8") as file:
                text = file.read()
            changed, namespaces = re.subn(r"namespace v\w+", "namespace later", text)
            changed, structs = re.subn(r"struct Sample \{", r"\g<0>\n  std::string more;", changed)
            self.assertEqual((namespaces, structs), (1, 1))
            with open(later + "/netmeter/sample.h", "w", encoding="utf-8") as file:
                file.write(changed)
            self.expect_both_work(consumers.compile_two("two", include=later), consumers)


if __name__ == "__main__":
    unittest.main()
