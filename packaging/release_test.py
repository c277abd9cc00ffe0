#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""packaging/make_release.sh, without the builds: in a copy of what it compares, where Bazel,
git and the scripts that it calls only note that they were called. apt and gpg are real.
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
    "packaging/debian/changelog": ("netmeter (", "9"),
    "CHANGELOG.md": ("## [", "9"),
    "include/netmeter/netmeter.h": ('#define NETMETER_VERSION "', "9"),
    "include/netmeter/sample.h": ("inline namespace v", "9"),
    "MODULE.bazel": ('name = "libnetmeter",\n    version = "', "9"),
    "lib/capi/BUILD.bazel": ('soname = "libnetmeter.so.', "9"),
    "packaging/debian/control": ("Package: libnetmeter", "9"),
    "lib/capi/exports.lds": ("\nNETMETER_", "9"),
}

STUBS = {
    "bin/bazel": 'case $1 in build) shift; echo "bazel build $*" >> calls ;; info) echo "$PWD/bin" ;; esac',
    "bin/git": """case $* in status*) ;; *--git-path*) echo tested ;; rev-parse*) echo "tree of this commit" ;; *) tar -cT /dev/null ;; esac""",
    "packaging/make_debs.sh": 'echo deb > "$1/netmeter_1.deb"',
    "packaging/make_wheels.sh": 'echo wheel > "$1/netmeter.whl"',
    "bin/lib/netmeter_loader/netmeter-loader-static": "",
    "bin/lib/apps/fds/netmeter-fds-static": "",
    "bin/lib/apps/netmeter/netmeter-static": "",
    "bin/lib/apps/exporter/netmeter-exporter-static": "",
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
        # The tree, and the directory from which a release is called.
        for name in ("tree", "here", "gnupg"):
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
        environment = {"PATH": f"{self.tree}/bin:/usr/bin:/bin", "GNUPGHOME": self.gnupg}
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
        self.assertEqual(len(labels), 4)
        for label in labels:
            folder, target = re.match("//(.*):(.*)-static$", label).groups()
            self.assertIn(f'name = "{target}",', read(os.path.join(ROOT, folder, "BUILD.bazel")))

    def test_a_release_needs_a_tree_that_has_passed_all_tests(self):
        # The changelog said that 1.0.0 was out, and no tag had it.
        self.assertIn("no day of the release", self.release("out")[1])
        changes = os.path.join(self.tree, "CHANGELOG.md")
        write(changes, re.sub(r"^(## \[[^]]*\] - ).*$", r"\g<1>2026-01-01", read(changes), count=1, flags=re.M))
        for tested in (None, "tree of another\n", "tree of this commit\n"):
            if tested:
                write(os.path.join(self.tree, "tested"), tested)
            status, output = self.release("out")
            if tested == "tree of this commit\n":
                self.assertEqual(status, 0, output)
            else:
                self.assertEqual(status, 1, output)
                self.assertIn("test/run.sh --kernels all --long", output)

    # "out" was below the tree, whatever the caller's directory was.
    def test_a_release_is_in_the_directory_that_is_named(self):
        names = ["netmeter_1.deb", "netmeter.whl", "SHA256SUMS"]
        for _ in range(2):  # over its own, too
            status, output = self.release("--snapshot", "deep/out")
            self.assertEqual(status, 0, output)
            found = sorted(os.listdir(os.path.join(self.here, "deep/out")))
            self.assertEqual([name for name in names if name not in found], [])
            sums = read(os.path.join(self.here, "deep/out/SHA256SUMS"))
            self.assertEqual(sorted(re.findall("^[0-9a-f]{64}  (.*)$", sums, re.M) + ["SHA256SUMS"]), found)
            self.assertEqual(len(found), 8)

    # It deleted every file of the directory.
    def test_a_release_deletes_nothing_of_others(self):
        self.assertEqual(self.release("--snapshot", "out")[0], 0)
        made = os.listdir(os.path.join(self.here, "out"))
        write(os.path.join(self.here, "images/SHA256SUMS"), "0" * 64 + "  disk.iso\n")
        write(os.path.join(self.here, "images/disk.iso"), "mine")
        self.assertIn("has 'disk.iso'", self.release("--snapshot", "images")[1])
        self.assertEqual(read(os.path.join(self.here, "images/disk.iso")), "mine")
        for name in ("thesis.odt", ".hidden", "folder/file", "SHA256SUMS of mine"):
            for folder in ("out", "other " + name[:2]):
                path = os.path.join(self.here, folder, name)
                write(path, "mine")
                status, output = self.release("--snapshot", folder)
                self.assertEqual(status, 1, output)
                self.assertIn(f"has '{name.split('/')[0]}', which no release left there", output)
                self.assertEqual(read(path), "mine")
                os.remove(path)
                if "/" in name:
                    os.rmdir(os.path.dirname(path))
        self.assertEqual(sorted(os.listdir(os.path.join(self.here, "out"))), sorted(made))

    def make_key(self, name):
        gpg = ["gpg", "--homedir", self.gnupg, "--batch", "--quiet", "--passphrase", ""]
        subprocess.run([*gpg, "--quick-generate-key", name, "ed25519", "sign", "never"], check=True, timeout=60)
        self.addCleanup(subprocess.run, ["gpgconf", "--homedir", self.gnupg, "--kill", "all"], check=True, timeout=60)

    def apt_get(self, *arguments):
        """apt-get of a machine that has only this source, and its status."""
        machine = os.path.join(self.here, "machine")
        for folder in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(machine, folder), exist_ok=True)
        write(os.path.join(machine, "status"), "")
        write(
            os.path.join(machine, "netmeter.sources"),
            f"Types: deb\nURIs: file:{self.here}/out\nSuites: ./\nSigned-By: {machine}/key.gpg\n",
        )
        options = {
            "Dir::State": machine + "/state",
            "Dir::State::Status": machine + "/status",
            "Dir::Cache": machine + "/cache",
            "Dir::Etc::SourceList": machine + "/netmeter.sources",
            "Dir::Etc::SourceParts": "/dev/null",
            "Debug::NoLocking": "true",
            "APT::Sandbox::User": "",
        }
        command = ["apt-get", "-y", *(f"-o{key}={value}" for key, value in options.items()), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        return done.returncode, done.stdout.decode()

    def test_apt_takes_what_the_key_signed_and_nothing_else(self):
        package = os.path.join(self.tree, "package")
        control = "Package: netmeter-loader\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example>\nDescription: a\n"
        write(os.path.join(package, "DEBIAN/control"), control)
        debs = f'dpkg-deb --build "{package}" "$1/netmeter-loader_1.0_all.deb" > /dev/null\n'
        write(os.path.join(self.tree, "packaging/make_debs.sh"), "#!/bin/sh\n" + debs)

        status, output = self.release("--snapshot", "--apt-key", "fleet@example", "out")
        self.assertEqual((status, "no secret key 'fleet@example'" in output), (1, True), output)
        for name in ("fleet@example", "thief@example"):
            self.make_key(name)
        for _ in range(2):  # over its own, too
            status, output = self.release("--snapshot", "--apt-key", "fleet@example", "out")
            self.assertEqual(status, 0, output)
        out = os.path.join(self.here, "out")
        keyring = os.path.join(self.here, "machine/key.gpg")
        os.makedirs(os.path.dirname(keyring))
        shutil.copy(os.path.join(out, "netmeter-archive-keyring.gpg"), keyring)
        update = ("update", "-oAPT::Update::Error-Mode=any")
        install = ("install", "--download-only", "netmeter-loader")
        for command in (update, install):
            status, output = self.apt_get(*command)
            self.assertEqual(status, 0, output)

        # Another package, then one that the index has, too, then one that a thief signs.
        write(os.path.join(package, "DEBIAN/control"), control + " Not what was signed.\n")
        subprocess.run(["sh", os.path.join(self.tree, "packaging/make_debs.sh"), out], check=True, timeout=60)
        status, output = self.apt_get(*install)
        self.assertNotEqual(status, 0, output)
        shutil.rmtree(os.path.join(self.here, "machine/state"))
        packages = subprocess.run(["apt-ftparchive", "packages", "."], cwd=out, stdout=subprocess.PIPE, check=True, timeout=60)
        write(os.path.join(out, "Packages"), packages.stdout.decode())
        status, output = self.apt_get(*update)
        self.assertNotEqual(status, 0, output)
        self.assertEqual(self.release("--snapshot", "--apt-key", "thief@example", "out")[0], 0)
        status, output = self.apt_get(*update)
        self.assertNotEqual(status, 0, output)
        self.assertIn("NO_PUBKEY", output)
        # Both keys, while one takes the place of the other.
        with open(keyring, "ab") as both, open(os.path.join(out, "netmeter-archive-keyring.gpg"), "rb") as new:
            both.write(new.read())
        for command in (update, install):
            status, output = self.apt_get(*command)
            self.assertEqual(status, 0, output)

    # What an older version made goes; a release that fails takes nothing away.
    def test_a_release_replaces_an_earlier_one_as_a_whole(self):
        out = os.path.join(self.here, "out")
        write(os.path.join(out, "netmeter-0.9.tar.gz"), "old")
        write(os.path.join(out, "SHA256SUMS"), "0" * 64 + "  netmeter-0.9.tar.gz\n")
        wheels = os.path.join(self.tree, "packaging/make_wheels.sh")
        working = read(wheels)
        write(wheels, "#!/bin/sh\nexit 1\n")
        self.assertEqual(self.release("--snapshot", "out")[0], 1)
        self.assertEqual(sorted(os.listdir(out)), ["SHA256SUMS", "netmeter-0.9.tar.gz"])
        write(wheels, working)
        self.assertEqual(self.release("--snapshot", "out")[0], 0)
        self.assertNotIn("netmeter-0.9.tar.gz", os.listdir(out))


if __name__ == "__main__":
    unittest.main()
