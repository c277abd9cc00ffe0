# SPDX-License-Identifier: BSD-3-Clause
"""Installs the library as packaging/install.sh does, and compiles the programs of this
folder with it as another build would: by a compiler of the system and pkg-config, and
nothing of Bazel's."""

import concurrent.futures
import glob
import os
import subprocess

ROOT = os.getcwd()  # of the test: its files by their paths in the tree
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
SMALL = ["-fno-exceptions", "-fno-rtti"]
# This system's abseil, which is the program's own.
ABSEIL = ["-labsl_statusor", "-labsl_status", "-labsl_cord", "-labsl_strings", "-labsl_raw_logging_internal"]
# What else a source needs. Files of its own: the program's generated code.
LIBRARIES = {
    "consumer.cc": [],
    "publish_prometheus.cc": ["-lprometheus-cpp-core"],
    "publish_magma.cc": ["service303.pb.o", "metrics.pb.o", "-lprotobuf"],
    "publish_grpc.cc": ["service303.grpc.pb.o", "service303.pb.o", "metrics.pb.o", "-lgrpc++", "-lgrpc", "-lgpr", "-lprotobuf", "-labsl_synchronization"],
}

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
    "prometheus14-gcc": ("g++", "publish_prometheus.cc", ["-std=c++14"], "shared"),
    "prometheus17-clang": ("clang++", "publish_prometheus.cc", ["-std=c++17", *SMALL], "static"),
    "prometheus20-gcc": ("g++", "publish_prometheus.cc", ["-std=c++20", *SMALL], "shared"),
    "magma14-clang": ("clang++", "publish_magma.cc", ["-std=c++14"], "static"),
    "magma17-gcc": ("g++", "publish_magma.cc", ["-std=c++17", *SMALL], "shared"),
    "magma20-clang": ("clang++", "publish_magma.cc", ["-std=c++20"], "shared"),
    "grpc14-gcc": ("g++", "publish_grpc.cc", ["-std=c++14"], "static"),
    "grpc17-clang": ("clang++", "publish_grpc.cc", ["-std=c++17"], "shared"),
    "grpc20-gcc": ("g++", "publish_grpc.cc", ["-std=c++20", *SMALL], "shared"),
}

# A compiler for another C library than glibc.
MUSL = ["musl-gcc", "-std=c11", "-D_DEFAULT_SOURCE", *WARNINGS]

# What CMakeLists.txt builds with each component.
CMAKE_PROGRAMS = {
    "core": ["consumer_cc", "consumer_static"],
    "prometheus": ["publish_prometheus"],
    "magma": ["publish_magma"],
    "grpc": ["publish_grpc"],
}


def run(command, **options):
    """The output of a command that must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, **options)
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise RuntimeError("%s: status %d\n%s" % (" ".join(command), done.returncode, text))
    return text


def source(name):
    return os.path.join(ROOT, "test/consumers", name)


class Consumers:
    """The library, installed below `directory`, and programs that use it."""

    def __init__(self, directory):
        self.directory = directory
        self.prefix = os.path.join(directory, "prefix")
        self.library = os.path.join(self.prefix, "lib")
        self.protos = os.path.join(directory, "protos")
        install = os.path.join(ROOT, "packaging/install.sh")
        run([install, "--prefix", self.prefix, "--build", ROOT, "library"])
        # Sets what a user's shell would have for an installation outside of /usr.
        self.environment = dict(
            os.environ,
            PKG_CONFIG_PATH=os.path.join(self.library, "pkgconfig"),
            CMAKE_PREFIX_PATH=self.prefix,
            LD_LIBRARY_PATH=self.library,
        )

    def pkg_config(self, *options):
        return run(["pkg-config", *options, "netmeter"], env=self.environment).split()

    def generate(self):
        """Makes the code of Magma's protos, as Magma's own build does, and its objects."""
        os.makedirs(self.protos)
        protos = os.path.join(ROOT, "examples/magma_protos")
        plugin = "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
        files = [os.path.join(protos, name) for name in ("metrics.proto", "service303.proto")]
        run(["protoc", "-I" + protos, plugin, "--cpp_out=" + self.protos, "--grpc_out=" + self.protos, *files])
        for name in ("metrics.pb", "service303.pb", "service303.grpc.pb"):
            run(["g++", "-std=c++14", "-c", name + ".cc", "-o", name + ".o"], cwd=self.protos)

    def compile(self, name, abseil=None):
        """The path of the program; with another abseil, which is a folder of include and lib."""
        compiler, file, options, kind = CONSUMERS[name]
        program = os.path.join(self.directory, name + (os.path.basename(abseil) if abseil else ""))
        command = [compiler, *WARNINGS, *options, "-o", program, *self.pkg_config("--cflags"), "-isystem", self.protos]
        if abseil:
            command += ["-isystem", os.path.join(abseil, "include")]
        command += [source(file), "-xnone"]
        if kind == "shared":
            command += ["-Wl,-rpath," + self.library, *self.pkg_config("--libs")]
        else:
            libraries = self.pkg_config("--static", "--libs")
            command += ["-l:libnetmeter.a" if option == "-lnetmeter" else option for option in libraries]
        command += [os.path.join(self.protos, item) if item.endswith(".o") else item for item in LIBRARIES.get(file, [])]
        if abseil:
            command += ["-Wl,--start-group", *glob.glob(os.path.join(abseil, "lib/libabsl_*.a")), "-Wl,--end-group"]
        elif file.endswith(".cc"):
            command += ABSEIL
        run(command)
        return program

    def compile_all(self, names=tuple(CONSUMERS), abseil=None):
        """{name: program}"""
        if not os.path.exists(self.protos):
            self.generate()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return dict(zip(names, pool.map(lambda name: self.compile(name, abseil), names)))

    def compile_two(self, name, abseil=None, include=None):
        """The path of a program with a shared library of its own. Both use the library: the
        program with another abseil, or the shared library with other headers."""
        folder = os.path.join(self.directory, name)
        os.mkdir(folder)
        flags = ["g++", "-std=c++17", *WARNINGS, source("one_of_two.cc")]
        link = ["-L" + self.library, "-lnetmeter", "-Wl,-rpath," + self.library + ":" + folder]
        own = ["-I" + include] if include else []
        run([*flags, *own, "-fPIC", "-shared", "-DNAME=other", *self.pkg_config("--cflags"), *link, *ABSEIL]
            + ["-o", folder + "/libother.so"])
        own = ["-isystem", os.path.join(abseil, "include")] if abseil else []
        archives = glob.glob(os.path.join(abseil, "lib/libabsl_*.a")) if abseil else []
        run([*flags, *own, "-DNAME=own", "-DOTHER=other", *self.pkg_config("--cflags"), "-L" + folder, "-lother", *link]
            + (["-Wl,--start-group", *archives, "-Wl,--end-group"] if abseil else ABSEIL) + ["-o", folder + "/program"])
        return folder + "/program"

    def build_by_make(self):
        folder = os.path.join(self.directory, "make")
        os.mkdir(folder)
        for name in ("Makefile", "consumer.c"):
            os.symlink(os.path.realpath(source(name)), os.path.join(folder, name))
        run(["make", "-C", folder], env=self.environment)
        return os.path.join(folder, "consumer")

    def configure_by_cmake(self, name, components, *options):
        """The folder of the build, which is `name`."""
        if not os.path.exists(self.protos):
            self.generate()
        folder = os.path.join(self.directory, name)
        own = os.path.dirname(os.path.realpath(source("CMakeLists.txt")))
        options += ("-DCOMPONENTS=" + ";".join(components), "-DPROTOS=" + self.protos)
        run(["cmake", "-S", own, "-B", folder, *options], env=self.environment)
        return folder

    def build_by_cmake(self, name, components):
        """The paths of the programs: in C, and with each component."""
        folder = self.configure_by_cmake(name, components)
        run(["cmake", "--build", folder, "--parallel", "2"], env=self.environment)
        programs = ["consumer_c"]
        for component in components:
            programs += CMAKE_PROGRAMS[component]
        return [os.path.join(folder, program) for program in programs]
