#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program for 1.0 runs with every 1.x: what it saw of the library, the C headers and
abi.h is compared with the last release, of which lib/capi/abi has a dump for each.

libnetmeter.so.1.abi   functions with their versions, arguments and structures
headers.abi            structures, values of enums, and numbers of the C headers and abi.h

abidw makes the dumps, and abidiff (libabigail) compares. A release makes them anew:

  bazel run //lib/capi:abi_test -- --update

The C++ headers are inline code over these functions, so no symbol of them is frozen; the
programs of test/consumers compile against them. abidiff does not see a whole member that
becomes a bit-field, `aligned` and `packed` that change no size, macros with arguments and
*_INIT macros.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

ARCHIVE, EXPORTS, LIBRARY_DUMP, HEADERS_DUMP, *HEADERS = [arg for arg in sys.argv[1:] if arg != "--update"]

WHAT_TO_DO = (
    "Within 1.x nothing of this changes or goes: keep it, and add the new beside it under a new name. If it only adds a "
    "member in reserved space, or at the end of a structure that says its size, or renames NETMETER_UNSTABLE_ in "
    "exports.lds for a header that may change, say so in CHANGELOG.md and run: bazel run //lib/capi:abi_test -- --update"
)


def run(*command, text=None, fine=0):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300)
    if done.returncode & ~fine:
        raise AssertionError("%s: status %d. %s\n%s" % (command[0], done.returncode, WHAT_TO_DO, done.stdout))
    return done


def compile_c(text, output, target="x86_64-linux-gnu", options=()):
    # One spelling of uint64_t for all machine types.
    run("clang", "--target=" + target, "-std=gnu11", "-ffreestanding", "-w", "-g", "-U__UINT64_TYPE__",
        "-D__UINT64_TYPE__=unsigned long long", *options, "-x", "c", "-", "-o", output, text=text)  # fmt: skip


def compile_layout(headers, output, target="x86_64-linux-gnu"):
    """An object with a variable of each type of the headers, and an enum of each number.

    abidiff compares only the set of an enum's values: in one enum, equal numbers would hide
    each other.
    """
    folder = os.path.dirname(os.path.dirname(headers[0])) or "."
    text = "".join('#include "%s"\n' % os.path.relpath(header, folder) for header in headers)
    types = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            types += re.findall(r"^((?:struct|enum) (\w+)) \{", file.read(), re.M)
    macros = run("clang", "-ffreestanding", "-E", "-dM", "-I", folder, "-x", "c", "-", text=text).stdout
    # NM_ABI_MINOR grows with each addition. Texts, attributes and {} are no numbers.
    numbers = re.findall(r'^#define ((?!NM_ABI_MINOR )(?:NM|NETMETER)_\w+) [^{"_[\n]', macros, re.M)
    text += "".join("%s type_of_%s;\n" % one for one in types)
    text += "".join("enum number_{0} {{ {0}_ = {0} }} number_{0};\n".format(name) for name in sorted(numbers))
    compile_c(text, output, target, ["-c", "-I", folder])


def link_library(output):
    """The library with DWARF. All that it exports is in the archive."""
    run("g++", "-shared", "-o", output, "-Wl,-soname,libnetmeter.so.1", "-Wl,--version-script=" + EXPORTS,
        "-Wl,--whole-archive", ARCHIVE, "-Wl,--no-whole-archive")  # fmt: skip


def dump(binary, output, *options):
    run("abidw", "--exported-interfaces-only", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--no-architecture",
        "--no-elf-needed", "--no-parameter-names", "--type-id-style", "hash", *options, "--out-file", output, binary)  # fmt: skip


def compare(old, new, *also):
    """Two texts: what changed or went, and what was added. abidiff's status says which."""

    def abidiff(*options):
        # 4: changed, 8: in a way that breaks programs. 1 and 2: it could not compare.
        return run("abidiff", "--no-architecture", "--no-corpus-path", "--no-show-locs", *also, *options, old, new, fine=12)

    changed = abidiff("--no-added-syms")
    if changed.returncode:
        return changed.stdout, ""
    # "Harmless" are an added value, which is, and another name of a member, const, and an
    # enum in place of an int, which break the source of programs.
    everything = abidiff("--harmless")
    if re.search("name of '|entity changed from", everything.stdout):
        return everything.stdout, ""
    return "", everything.stdout if everything.returncode else ""


class CompareTest(unittest.TestCase):
    """The guard itself, on a small library."""

    HEADER = """
        #define NM_FIRST 1
        #define NM_SECOND 2
        #define NM_THIRD 2
        #define NM_TEXT "text"
        #define NETMETER_DEPRECATED __attribute__((deprecated))
        enum kind { KIND_A = 1, KIND_B = 2 };
        struct sample { unsigned long size; const char *name; unsigned count; unsigned char reserved[4]; };
        struct fixed { unsigned first; unsigned second; };
        int read_it(const struct sample *sample, struct fixed *fixed, enum kind kind) { return 0; }
        int close_it(struct fixed *fixed) { return 0; }
        const char *name_it(void) { return 0; }
    """

    def compare(self, old, new):
        changed_header = self.HEADER.replace(old, new)
        self.assertNotEqual(changed_header, self.HEADER)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("old", self.HEADER), ("new", changed_header)):
                os.mkdir(os.path.join(folder, name))
                header = os.path.join(folder, name, "sample.h")
                with open(header, "w", encoding="utf-8") as file:
                    file.write(text)
                compile_layout([header], "%s/%s.o" % (folder, name))
            dump(folder + "/old.o", folder + "/old.abi")
            return compare(folder + "/old.abi", folder + "/new.o")

    def test_an_addition_passes(self):
        for what, old, new in (
            ("function", "int close_it", "int more(int a) { return a; }\n int close_it"),
            ("value", "KIND_B = 2", "KIND_B = 2, KIND_C = 3"),
            ("number", "#define NM_THIRD 2", "#define NM_THIRD 2\n#define NM_FOURTH 2"),
        ):
            with self.subTest(what):
                changed, added = self.compare(old, new)
                self.assertEqual(changed, "")
                self.assertRegex(added, "more|KIND_C|NM_FOURTH")

    def test_a_change_fails(self):
        for what, old, new in (
            ("type of a member", "unsigned count", "int count"),
            ("size of a member", "unsigned first", "unsigned short first"),
            ("name of a member", "unsigned first", "unsigned other"),
            ("order of members", "unsigned first; unsigned second", "unsigned second; unsigned first"),
            ("removed member", "unsigned second;", ""),
            ("value of an enum", "KIND_B = 2", "KIND_B = 3"),
            ("removed value", ", KIND_B = 2", ""),
            ("value of a number", "NM_THIRD 2", "NM_THIRD 1"),
            ("removed number", "#define NM_THIRD 2", ""),
            ("enum as a number", "enum kind kind", "int kind"),
            ("number as an enum", "unsigned count", "enum kind count"),
            ("const of an argument", "const struct sample *sample", "struct sample *sample"),
            ("const of a member", "const char *name", "char *name"),
            ("const of a result", "const char *name_it", "char *name_it"),
            ("removed function", "int close_it(struct fixed *fixed) { return 0; }", ""),
            ("added argument", "(struct fixed *fixed)", "(struct fixed *fixed, int how)"),
            ("type of an argument", "(struct fixed *fixed)", "(struct sample *fixed)"),
            ("result", "int close_it", "long close_it"),
            # A human says whether the structure may grow.
            ("member at the end", "reserved[4];", "reserved[4]; unsigned long more;"),
            ("member in reserved space", "unsigned char reserved[4]", "unsigned char more, reserved[3]"),
        ):
            with self.subTest(what):
                self.assertNotEqual(self.compare(old, new)[0], "")


class AbiTest(unittest.TestCase):
    """This tree beside the last release."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def expect_no_change(self, old, new, *options):
        changed, added = compare(old, new, *options)
        if added:
            print("added since the last release:\n" + added)
        if changed:
            self.fail("changed since the last release. %s\n%s" % (WHAT_TO_DO, changed))

    def test_the_library_is_that_of_the_last_release(self):
        link_library(self.folder + "/library.so")
        self.expect_no_change(LIBRARY_DUMP, self.folder + "/library.so", "--headers-dir2", os.path.dirname(HEADERS[0]), "--drop-private-types")

    def test_the_headers_are_those_of_the_last_release(self):
        compile_layout(HEADERS, self.folder + "/headers.o")
        self.expect_no_change(HEADERS_DUMP, self.folder + "/headers.o")

    def test_the_maps_have_one_layout_on_64_and_32_bits(self):
        abi_h = [header for header in HEADERS if os.path.basename(header) == "abi.h"]
        compile_layout(abi_h, self.folder + "/64.o")
        # On i386 eight bytes have an alignment of 4, on ARM of 8.
        for target in ("i386-linux-gnu", "arm-linux-gnueabihf", "riscv32-linux-gnu", "aarch64-linux-gnu"):
            with self.subTest(target):
                compile_layout(abi_h, self.folder + "/other.o", target)
                self.assertEqual(compare(self.folder + "/64.o", self.folder + "/other.o"), ("", ""))


def update():
    with tempfile.TemporaryDirectory() as folder:
        link_library(folder + "/library.so")
        compile_layout(HEADERS, folder + "/headers.o")
        tree = os.environ["BUILD_WORKSPACE_DIRECTORY"]
        dump(folder + "/library.so", os.path.join(tree, LIBRARY_DUMP), "--headers-dir", os.path.dirname(HEADERS[0]), "--drop-private-types")
        dump(folder + "/headers.o", os.path.join(tree, HEADERS_DUMP))


if __name__ == "__main__":
    if "--update" in sys.argv:
        update()
    else:
        unittest.main(argv=sys.argv[:1])
