# SPDX-License-Identifier: BSD-3-Clause
"""Compiles consumer.c and consumer.cc with the library as another build would: by a
compiler of the system, with headers and libraries and nothing of Bazel's."""

import concurrent.futures
import os
import shutil
import subprocess

ROOT = os.getcwd()  # of the test: its files by their paths in the tree
LIBRARIES = os.path.join(ROOT, "lib/capi")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
SMALL = ["-fno-exceptions", "-fno-rtti"]


def abseil():
    """The options that link this system's abseil, which is the program's own."""
    return ["-labsl_statusor", "-labsl_status", "-labsl_cord", "-labsl_strings", "-labsl_raw_logging_internal"]


# name: (compiler, source, options, kind of library)
CONSUMERS = {
    "c99-gcc": ("gcc", "consumer.c", ["-std=c99", "-D_DEFAULT_SOURCE"], "shared"),
    "c11-clang": ("clang", "consumer.c", ["-std=c11", "-D_DEFAULT_SOURCE"], "static"),
    "cpp-of-c-gcc": ("g++", "consumer.c", ["-xc++", "-std=c++14"], "shared"),
    "cpp14-gcc": ("g++", "consumer.cc", ["-std=c++14", *SMALL], "shared"),
    "cpp17-gcc": ("g++", "consumer.cc", ["-std=c++17"], "static"),
    "cpp20-gcc": ("g++", "consumer.cc", ["-std=c++20"], "shared"),
    "cpp14-clang": ("clang++", "consumer.cc", ["-std=c++14"], "static"),
    "cpp17-clang": ("clang++", "consumer.cc", ["-std=c++17", *SMALL], "static"),
    "cpp20-clang": ("clang++", "consumer.cc", ["-std=c++20", *SMALL], "shared"),
}


class Consumers:
    def __init__(self, directory):
        self.directory = directory
        library = os.path.join(directory, "lib")
        os.mkdir(library)
        for name in ("libnetmeter.so.1", "libnetmeter.a"):
            shutil.copy(os.path.join(LIBRARIES, name), library)
        os.symlink("libnetmeter.so.1", os.path.join(library, "libnetmeter.so"))
        self.library = library

    def compile(self, name):
        """The path of the program."""
        compiler, source, options, kind = CONSUMERS[name]
        program = os.path.join(self.directory, name)
        command = [compiler, *WARNINGS, *options, "-I" + os.path.join(ROOT, "include")]
        command += ["-o", program, os.path.join(ROOT, "test/consumers", source), "-xnone"]
        if kind == "shared":
            command += ["-L" + self.library, "-Wl,-rpath," + self.library, "-lnetmeter"]
        else:
            command += [os.path.join(self.library, "libnetmeter.a"), "-lstdc++", "-lm"]
        if source.endswith(".cc"):
            command += abseil()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        if done.returncode != 0:
            raise RuntimeError("%s\n%s" % (" ".join(command), done.stdout.decode()))
        return program

    def compile_all(self, names=tuple(CONSUMERS)):
        """{name: program}"""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return dict(zip(names, pool.map(self.compile, names)))
