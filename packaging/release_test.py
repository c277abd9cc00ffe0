#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""packaging/make_release.sh, without the builds: in a clone of its own with what it compares,
where the scripts that it calls make a package and a wheel at once, and debsbom is left out.
git, gpg and apt are real.
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
    "CHANGELOG.md": ("## [", "9"),
    "include/netmeter/netmeter.h": ('#define NETMETER_VERSION "', "9"),
    "include/netmeter/sample.h": ("inline namespace v", "9"),
    "MODULE.bazel": ('name = "libnetmeter",\n    version = "', "9"),
    "lib/capi/BUILD.bazel": ('soname = "libnetmeter.so.', "9"),
    "packaging/debian/control": ("Package: libnetmeter", "9"),
    "lib/capi/exports.lds": ("\nNETMETER_", "9"),
}

MAKE_DEBS_FOR = r"""#!/bin/bash
set -euo pipefail
[ ! -e "$(git rev-parse --show-toplevel)/broken" ] || { echo it is broken; exit 1; }
static= suffix=deb12
if [ "$1" = --static ]; then static=1 suffix=0static; shift; fi
case $1 in trixie) suffix=deb13 ;; noble) suffix=ubuntu24.04 ;; esac
mkdir -p "$3/package/DEBIAN" "$3/package/usr/sbin"
echo program > "$3/package/usr/sbin/netmeter-loader"
printf 'Package: netmeter-loader\nVersion: VERSION-1+%s\nArchitecture: %s\nMaintainer: a <a@example>\nDescription: a\n' "$suffix" "$2" > "$3/package/DEBIAN/control"
dpkg-deb --root-owner-group --build "$3/package" "$3/netmeter-loader_VERSION-1+${suffix}_$2.deb" > /dev/null
rm -r "$3/package"
"""
STUBS = {
    "bin/bazel": "#!/bin/sh\n",
    "bin/mmdebstrap": "#!/bin/sh\n",
    "bin/python3": '#!/bin/sh\nmkdir -p "$3/bin"\nprintf "#!/bin/sh\\n" > "$3/bin/pip"\ncp "$3/bin/pip" "$3/bin/debsbom"\nchmod 755 "$3"/bin/*\n',
    "packaging/make_library.sh": '#!/bin/sh\nmkdir -p "$1"\necho library > "$1/netmeter-glibc2.31-x86_64.tar.gz"\n',
    "packaging/make_wheels.sh": '#!/bin/sh\nmkdir -p "$1"\necho wheel > "$1/netmeter-1.whl"\n',
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
        self.version = re.search('NETMETER_VERSION "(.*)"', read(os.path.join(self.tree, "include/netmeter/netmeter.h"))).group(1)
        # Before the release, whatever this tree is.
        changes = os.path.join(self.tree, "CHANGELOG.md")
        write(changes, f"# Changelog\n\n## [{self.version}] - unreleased\n\n* This is new.\n\n## [0.9.0] - 2026-01-01\n\n* Old.\n")
        for name, script in {**STUBS, "packaging/make_debs_for.sh": MAKE_DEBS_FOR.replace("VERSION", self.version)}.items():
            path = os.path.join(self.tree, name)
            write(path, script)
            os.chmod(path, 0o755)
        self.git("init", "-q", "-b", "main")
        for key in ("user.name", "user.email"):
            self.git("config", key, "a@example")
        self.commit()

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.tree, stdout=subprocess.PIPE, check=True, timeout=60)
        return done.stdout.decode().strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a", "--date", "2026-11-30T23:30:00-0200")

    def note_passed(self):
        write(os.path.join(self.tree, ".git/netmeter-tested"), self.git("rev-parse", "HEAD^{tree}") + "\n")

    def release(self, *arguments):
        command = [os.path.join(self.tree, "packaging/make_release.sh"), *arguments]
        environment = {"PATH": f"{self.tree}/bin:/usr/sbin:/usr/bin:/bin", "GNUPGHOME": self.gnupg, "HOME": self.here}
        done = subprocess.run(command, cwd=self.here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        return done.returncode, done.stdout.decode()

    def dry_run(self, *arguments):
        return self.release("--dry-run", *arguments)

    def test_a_release_is_a_commit_with_its_day_and_a_signed_tag(self):
        self.make_key("maker@example")
        self.note_passed()
        before = self.git("rev-parse", "HEAD")
        status, output = self.release("--key", "maker@example", self.version, "out")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.git("rev-parse", "HEAD^"), before)
        self.assertEqual(self.git("rev-parse", f"v{self.version}^{{commit}}"), self.git("rev-parse", "HEAD"))
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertRegex(self.git("cat-file", "tag", f"v{self.version}"), "BEGIN PGP SIGNATURE")
        day = self.git("log", "-1", "--date=format:%Y-%m-%d", "--format=%cd")
        self.assertEqual(self.git("diff", "--unified=0", "HEAD^").splitlines()[-2:], [f"-## [{self.version}] - unreleased", f"+## [{self.version}] - {day}"])
        out = os.path.join(self.here, "out")
        verify = ["gpg", "--homedir", self.gnupg, "--verify", "SHA256SUMS.asc", "SHA256SUMS"]
        subprocess.run(verify, cwd=out, check=True, timeout=60, stderr=subprocess.DEVNULL)
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=out, check=True, timeout=60)
        self.assertEqual(read(out + "/RELEASE_NOTES.md"), "* This is new.\n\n")
        archive = subprocess.run(["tar", "-xzOf", f"{out}/netmeter-{self.version}.tar.gz", f"netmeter-{self.version}/CHANGELOG.md"], stdout=subprocess.PIPE, check=True, timeout=60)
        self.assertIn(f"## [{self.version}] - {day}", archive.stdout.decode())
        for row in ("1+deb12_amd64", "1+deb12_arm64", "1+deb13_amd64", "1+ubuntu24.04_amd64", "1+0static_amd64", "1+0static_arm64"):
            self.assertIn(f"netmeter-loader_{self.version}-{row}.deb", os.listdir(out))
        for machine in ("x86_64", "aarch64"):
            self.assertIn(f"netmeter-loader-{self.version}-{machine}-static", os.listdir(out))

    # Each line is a reason to refuse, in a dry run, too; which goes on.
    def test_a_release_is_refused_unless_all_is_well(self):
        self.make_key("maker@example")
        key = ("--key", "maker@example")
        head = self.git("rev-parse", "HEAD")
        cases = [("has not passed", None), *((name.replace("lib/capi/BUILD.bazel", "packaging/debian/control"), name) for name in VERSIONS)]
        cases += [("(git status)", "new file"), ("bookworm-amd64 is missing", "broken")]
        for words, name in cases:
            path = os.path.join(self.tree, name or "")
            if name:
                text = read(path) if name in VERSIONS else ""
                before, more = VERSIONS.get(name, ("", "a"))
                write(path, text.replace(before, before + more, 1) if before else more)
                if name != "new file":
                    self.commit()
                self.note_passed()
            made = self.git("rev-parse", "HEAD")
            status, output = self.release(*key, self.version, "out")
            self.assertEqual(status, 1, (words, output))
            self.assertIn(words, output)
            status, output = self.dry_run("--only", "bookworm-amd64", *key, self.version, "dry")
            self.assertEqual(status, 0, (words, output))
            self.assertRegex(output, "(?m)^dry run: a release would refuse: .*" + re.escape(words))
            self.assertEqual((self.git("rev-parse", "HEAD"), self.git("tag")), (made, ""))
            if name:
                self.git("clean", "-fdq")
                self.git("reset", "-q", "--hard", head)
        self.note_passed()
        for arguments, words in (((), "without --key"), ((*key, "--only", "wheels"), "leaves rows out")):
            status, output = self.release(*arguments, self.version, "out")
            self.assertEqual((status, words in output), (1, True), output)
        self.assertFalse(os.path.exists(os.path.join(self.here, "out")))
        self.git("tag", "v" + self.version)
        self.assertIn("there is a tag", self.release(*key, self.version, "out")[1])

    # The tag was at a commit that the branch did not take, or another branch took it. And
    # the directory's earlier release was gone.
    def test_a_branch_that_moves_meanwhile_gets_no_release(self):
        self.make_key("maker@example")
        key = ("--key", "maker@example")
        self.assertEqual(self.dry_run(*key, self.version, "out")[0], 0)
        before = read(os.path.join(self.here, "out/SHA256SUMS"))
        write(os.path.join(self.tree, "packaging/make_library.sh"), f"{STUBS['packaging/make_library.sh']}git -C {self.tree} switch -qc other\n")
        self.commit()
        self.note_passed()
        status, output = self.release(*key, self.version, "out")
        self.assertEqual((status, "main is no longer checked out" in output), (1, True), output)
        self.assertEqual((self.git("tag"), self.git("rev-parse", "main")), ("", self.git("rev-parse", "other")))
        self.assertEqual(read(os.path.join(self.here, "out/SHA256SUMS")), before)
        self.make_key("other-maker@example")
        self.assertIn("more than one secret key", self.dry_run(*key, self.version, "out")[1])

    # All files lie in one directory, and an upgrade of the distribution takes its own.
    def test_the_packages_of_a_newer_distribution_have_the_higher_version(self):
        versions = [f"{self.version}{suffix}" for suffix in ("-1+0static", "-1+deb12", "-1+deb13", "-1+ubuntu24.04")]
        for lower, higher in zip([self.version, *versions], [*versions, self.version + ".1"]):
            subprocess.run(["dpkg", "--compare-versions", lower, "lt", higher], check=True, timeout=60)

    # It deleted every file of the directory.
    def test_a_release_deletes_nothing_of_others(self):
        self.assertEqual(self.dry_run(self.version, "out")[0], 0)
        made = sorted(os.listdir(os.path.join(self.here, "out")))
        write(os.path.join(self.here, "images/SHA256SUMS"), "0" * 64 + "  disk.iso\n")
        write(os.path.join(self.here, "images/disk.iso"), "mine")
        self.assertIn("has 'disk.iso'", self.dry_run(self.version, "images")[1])
        self.assertEqual(read(os.path.join(self.here, "images/disk.iso")), "mine")
        for name in ("thesis.odt", ".hidden", "folder/file", "SHA256SUMS of mine"):
            for folder in ("out", "other " + name[:2]):
                path = os.path.join(self.here, folder, name)
                write(path, "mine")
                status, output = self.dry_run(self.version, folder)
                self.assertEqual(status, 1, output)
                self.assertIn(f"has '{name}', which no release left there", output)
                self.assertEqual(read(path), "mine")
                os.remove(path)
                if "/" in name:
                    os.rmdir(os.path.dirname(path))
        self.assertEqual(sorted(os.listdir(os.path.join(self.here, "out"))), made)

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
            f"Types: deb\nURIs: file:{self.here}/out\nSuites: bookworm/\nSigned-By: {machine}/key.gpg\n",
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
        status, output = self.dry_run("--key", "fleet@example", self.version, "out")
        self.assertEqual((status, "no secret key 'fleet@example'" in output), (1, True), output)
        for name in ("fleet@example", "thief@example"):
            self.make_key(name)
        for _ in range(2):  # over its own, too
            status, output = self.dry_run("--key", "fleet@example", self.version, "out")
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
        # Its own distribution's, and not the highest version.
        self.assertIn(f"{self.version}-1+deb12", self.apt_get("--print-uris", *install)[1])

        # Another package, then one that the index has, too, then one that a thief signs.
        (package,) = [name for name in os.listdir(out) if "1+deb12_amd64" in name]
        shutil.copy(os.path.join(out, package.replace("deb12", "deb13")), os.path.join(out, package))
        shutil.rmtree(os.path.join(self.here, "machine/cache"))
        status, output = self.apt_get(*install)
        self.assertNotEqual(status, 0, output)
        shutil.rmtree(os.path.join(self.here, "machine/state"))
        packages = subprocess.run(["apt-ftparchive", "packages", "."], cwd=out, stdout=subprocess.PIPE, check=True, timeout=60)
        write(os.path.join(out, "bookworm/Packages"), packages.stdout.decode())
        status, output = self.apt_get(*update)
        self.assertNotEqual(status, 0, output)
        self.assertEqual(self.dry_run("--key", "thief@example", self.version, "out")[0], 0)
        status, output = self.apt_get(*update)
        self.assertNotEqual(status, 0, output)
        self.assertRegex(output, "NO_PUBKEY|Missing key")  # of gpgv, or of Debian 13's sqv
        # Both keys, while one takes the place of the other.
        with open(keyring, "ab") as both, open(os.path.join(out, "netmeter-archive-keyring.gpg"), "rb") as new:
            both.write(new.read())
        for command in (update, install):
            status, output = self.apt_get(*command)
            self.assertEqual(status, 0, output)

    # What an older version made goes; a release that fails takes nothing away.
    def test_a_release_replaces_an_earlier_one_as_a_whole(self):
        self.make_key("maker@example")
        self.note_passed()
        out = os.path.join(self.here, "out")
        write(os.path.join(out, "netmeter-0.9.tar.gz"), "old")
        write(os.path.join(out, "SHA256SUMS"), "0" * 64 + "  netmeter-0.9.tar.gz\n")
        wheels = os.path.join(self.tree, "packaging/make_wheels.sh")
        working = read(wheels)
        write(wheels, "#!/bin/sh\nexit 1\n")
        self.commit()
        self.note_passed()
        status, output = self.release("--key", "maker@example", self.version, "out")
        self.assertEqual(status, 1, output)
        self.assertEqual(sorted(os.listdir(out)), ["SHA256SUMS", "netmeter-0.9.tar.gz"])
        self.assertEqual(self.git("tag"), "")
        write(wheels, working)
        self.commit()
        self.note_passed()
        status, output = self.release("--key", "maker@example", self.version, "out")
        self.assertEqual(status, 0, output)
        self.assertNotIn("netmeter-0.9.tar.gz", os.listdir(out))


if __name__ == "__main__":
    unittest.main()
