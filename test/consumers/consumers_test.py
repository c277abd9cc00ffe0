#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other builds link libnetmeter and run: C, C++14, C++17 and C++20, gcc
and clang, shared and static, without exceptions and RTTI, with an abseil, a
prometheus-cpp, a protobuf and a gRPC of their own, by compilers alone, by make and by
CMake."""

import os
import shutil
import subprocess
import tempfile
import unittest

from consumers import CMAKE_PROGRAMS, CONSUMERS, MUSL, Consumers, run, source

# Of consumer.*, of publish_prometheus, of publish_magma, and of publish_grpc.
NO_METER = ("5: no meter at /nonexistent", "\nnetmeter_up 0\n", "waiting for a meter: no meter at /nonexistent", "consumer: 1 families\n")
OPTIONAL = """\
cmake_minimum_required(VERSION 3.18)
project(optional CXX)
foreach(round RANGE 1)
  find_package(netmeter REQUIRED COMPONENTS core OPTIONAL_COMPONENTS grpc)
  if(NOT TARGET netmeter::core OR TARGET netmeter::grpc OR netmeter_grpc_FOUND)
    message(FATAL_ERROR "core alone is here")
  endif()
endforeach()
"""
MOVED = """\
cmake_minimum_required(VERSION 3.18)
project(moved CXX)
find_package(netmeter REQUIRED)
get_target_property(shared netmeter::netmeter IMPORTED_LOCATION)
get_target_property(static netmeter::netmeter_static IMPORTED_LOCATION)
get_target_property(headers netmeter::netmeter INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "${shared} ${static} ${headers}")
"""


class ConsumersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.consumers = Consumers(folder.name)

    def expect_no_meter(self, program):
        done = subprocess.run(
            [program, "/nonexistent"], stdout=subprocess.PIPE, env=self.consumers.environment, timeout=60
        )
        text = done.stdout.decode()
        self.assertTrue(any(words in text for words in NO_METER), text)
        self.assertEqual(done.returncode, 2)

    def test_each_compiles_and_tells_that_there_is_no_meter(self):
        programs = self.consumers.compile_all()
        self.assertEqual(sorted(programs), sorted(CONSUMERS))
        for name, program in programs.items():
            with self.subTest(name):
                self.expect_no_meter(program)

    def test_make_finds_it_by_pkg_config(self):
        self.expect_no_meter(self.consumers.build_by_make())

    def test_cmake_finds_all_components_at_once(self):
        programs = self.consumers.build_by_cmake("cmake-all", list(CMAKE_PROGRAMS))
        self.assertEqual(len(programs), 6)
        for program in programs:
            self.expect_no_meter(program)

    def test_cmake_finds_each_component_alone(self):
        # Once there was core alone, and it did not bring the abseil of its headers.
        for component in CMAKE_PROGRAMS:
            if component == "grpc":  # which takes long, and is above
                self.consumers.configure_by_cmake("cmake-grpc", ["grpc"])
                continue
            for program in self.consumers.build_by_cmake("cmake-" + component, [component]):
                self.expect_no_meter(program)

    def test_cmake_needs_no_abseil_for_c(self):
        folder = self.consumers.configure_by_cmake("cmake-c", [], *self.without("absl"))
        run(["cmake", "--build", folder], env=self.consumers.environment)
        self.expect_no_meter(folder + "/consumer_c")

    @staticmethod
    def without(package):
        """Options for CMake, which then does not find the package."""
        return ["-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON" % package]

    def test_cmake_says_which_component_there_is_not(self):
        with self.assertRaises(RuntimeError) as caught:
            self.consumers.configure_by_cmake("cmake-none", ["core", "orc8r"])
        words = " ".join(str(caught.exception).split())
        self.assertIn("netmeter has no component orc8r, only core, prometheus, magma and grpc.", words)

    def test_cmake_goes_on_without_an_optional_component(self):
        folder = os.path.join(self.consumers.directory, "optional")
        os.mkdir(folder)
        with open(folder + "/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write(OPTIONAL)
        # A second time, as a part of a project may.
        run(["cmake", folder, "-B", folder, *self.without("gRPC")], env=self.consumers.environment)

    def test_cmake_says_what_a_component_needs(self):
        needs = {
            "core": ("absl", "absl::statusor", "libabsl-dev"),
            "prometheus": ("prometheus-cpp", "prometheus-cpp::core", "prometheus-cpp-dev"),
            "magma": ("absl", "absl::statusor", "libabsl-dev"),
            "grpc": ("gRPC", "gRPC::grpc++", "libgrpc++-dev"),
        }
        self.assertEqual(sorted(needs), sorted(CMAKE_PROGRAMS))
        for component, (package, target, debian) in needs.items():
            with self.subTest(component), self.assertRaises(RuntimeError) as caught:
                self.consumers.configure_by_cmake("cmake-no-" + component, [component], *self.without(package))
            words = " ".join(str(caught.exception).split())
            self.assertIn("netmeter's component %s needs %s, and there is no package %s " % (component, target, package), words)
            self.assertIn("(in Debian it is in %s; else set %s_DIR)" % (debian, package), words)

    def test_cmake_finds_a_tree_that_was_moved(self):
        # In a sysroot it once named the library and the headers of the host.
        folder = os.path.join(self.consumers.directory, "sysroot")
        shutil.copytree(self.consumers.prefix, folder + "/opt/netmeter", symlinks=True)
        with open(folder + "/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write(MOVED)
        places = run(["cmake", folder, "-B", folder + "/build", "-DCMAKE_PREFIX_PATH=" + folder + "/opt/netmeter"])
        moved = os.path.realpath(folder + "/opt/netmeter")
        self.assertIn("-- %s/lib/libnetmeter.so.1 %s/lib/libnetmeter.a %s/include\n" % (moved, moved, moved), places)

    def test_musl_compiles_the_header_and_cannot_have_the_library(self):
        # The documents say so: it was built with glibc. If this fails, correct them.
        folder = self.consumers.directory
        run([*MUSL, "-c", source("consumer.c"), *self.consumers.pkg_config("--cflags"), "-o", folder + "/musl.o"])
        libstdcpp = run(["g++", "-print-file-name=libstdc++.a"]).strip()
        static = ["-L" + self.consumers.library, "-l:libnetmeter.a", libstdcpp, "-lgcc_eh"]
        with self.assertRaisesRegex(RuntimeError, "undefined reference to `__libc_single_threaded'"):
            run([*MUSL, "-static", folder + "/musl.o", *static, "-o", folder + "/musl"])
        run([*MUSL, folder + "/musl.o", "-L" + self.consumers.library, "-lnetmeter", "-o", folder + "/musl"])
        # With all libraries of glibc's world where musl looks for them.
        libraries = os.path.dirname(run(["g++", "-print-file-name=libstdc++.so.6"]).strip())
        paths = {"LD_LIBRARY_PATH": ":".join([self.consumers.library, libraries, "/usr/lib/x86_64-linux-gnu"])}
        done = subprocess.run([folder + "/musl", "/nonexistent"], stderr=subprocess.PIPE, env=paths, timeout=60)
        self.assertRegex(done.stderr.decode(), "libnetmeter.so.1: __libc_single_threaded: symbol not found")
        self.assertEqual(done.returncode, 127)

    def test_the_version_of_the_files_is_that_of_the_library(self):
        (version,) = self.consumers.pkg_config("--modversion")
        with open("include/netmeter/netmeter.h", encoding="utf-8") as file:
            self.assertIn('#define NETMETER_VERSION "%s"' % version, file.read())


if __name__ == "__main__":
    unittest.main()
