"""The kinds of targets that this tree is made of.

Each macro is the rule of that name with what all targets of its kind share:
compiler options, GoogleTest, the tags of a test that needs root, and files that
have the name of the target. The macro passes all other attributes on.
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

# For code that runs once in a program whose size matters more, such as the loader. Only
# with "-c opt": -Os comes later than its -O2 and wins. Without, -O0 compiles faster.
FOR_SIZE = select({
    "//third_party/bazel:opt": ["-Os"],
    "//conditions:default": [],
})

# A root test loads BPF programs, which attach to the machine, so it runs outside of the
# sandbox.
_ROOT_TAGS = [
    "local",
    "requires-root",
]

# For Python tests that load our library. The interpreter lacks the runtime that a
# library built with asan or tsan needs. UBSan needs none.
NO_SANITIZERS = [
    "no-asan",
    "no-tsan",
]

def netmeter_cc_library(name, srcs = None, hdrs = None, copts = [], **kwargs):
    """A cc_library: name + ".cc" with name + ".h", unless it names its files.

    Args:
      name: the library.
      srcs: the sources, if they are others; none if only hdrs is given.
      hdrs: the headers, if they are others; none if only srcs is given.
      copts: more compiler options.
      **kwargs: passed on to cc_library.
    """
    if srcs == None and hdrs == None:
        srcs = [name + ".cc"]
        hdrs = [name + ".h"]
    cc_library(
        name = name,
        srcs = srcs or [],
        hdrs = hdrs or [],
        copts = _COPTS + copts,
        **kwargs
    )

def netmeter_cc_binary(name, srcs, copts = [], static = False, deps = [], **kwargs):
    """A cc_binary with the compiler options of this tree.

    Args:
      name: the program.
      srcs: its own sources.
      copts: more compiler options.
      static: whether to make name + "-static", too: the same objects linked with
        archives alone. It runs on any kernel and glibc, or without glibc.
      deps: what it needs.
      **kwargs: passed on to cc_binary.
    """
    if not static:
        cc_binary(name = name, srcs = srcs, copts = _COPTS + copts, deps = deps, **kwargs)
        return

    # Compiled once for both.
    netmeter_cc_library(
        name = name + "_main",
        srcs = srcs,
        alwayslink = True,
        copts = copts,
        deps = deps,
    )
    cc_binary(name = name, deps = [name + "_main"], **kwargs)
    cc_binary(
        name = name + "-static",
        features = ["fully_static_link"],
        deps = [name + "_main", "//third_party:archives"],
        **kwargs
    )

def netmeter_cc_test(name, deps, srcs = None, size = "small", copts = [], gtest = "//third_party:gtest_main", **kwargs):
    """A unit test with GoogleTest: no root, no kernel.

    Args:
      name: the test; its source is name + ".cc" unless srcs says otherwise.
      deps: what it needs beside GoogleTest and its main().
      srcs: the sources, if there is more than one.
      size: of cc_test.
      copts: more compiler options.
      gtest: "//third_party:gtest" if srcs has a main() of its own.
      **kwargs: passed on to cc_test.
    """
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = _COPTS + copts,
        deps = deps + [gtest],
        **kwargs
    )

def _root_tags(alone):
    return _ROOT_TAGS + (["exclusive"] if alone else [])

def netmeter_cc_root_test(name, alone = False, tags = [], **kwargs):
    """netmeter_cc_test() that needs root; "bazel test --config=root" runs it.

    Args:
      name: the test.
      alone: whether no other test may run at the same time: for a test that measures
        time or memory.
      tags: more tags.
      **kwargs: passed on to netmeter_cc_test.
    """
    netmeter_cc_test(name = name, tags = _root_tags(alone) + tags, **kwargs)

def netmeter_py_root_test(name, srcs = None, size = "medium", alone = False, tags = [], **kwargs):
    """A py_test that needs root.

    Args:
      name: the test; its source is name + ".py" unless srcs says otherwise.
      srcs: the sources, if there is more than one.
      size: of py_test.
      alone: as for netmeter_cc_root_test.
      tags: more tags.
      **kwargs: passed on to py_test.
    """
    native.py_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".py"],
        main = name + ".py",
        tags = _root_tags(alone) + NO_SANITIZERS + tags,
        **kwargs
    )

def netmeter_sh_root_test(name, alone = False, tags = [], **kwargs):
    """A sh_test that needs root.

    Args:
      name: the test.
      alone: as for netmeter_cc_root_test.
      tags: more tags.
      **kwargs: passed on to sh_test.
    """
    native.sh_test(name = name, tags = _root_tags(alone) + NO_SANITIZERS + tags, **kwargs)

def netmeter_headers_compile(deps, copts = ["-pedantic-errors"]):
    """Compiles headers_compile.cc as C++14, C++17 and C++20.

    The file includes the public headers of the package one by one, with nothing
    before them.

    Args:
      deps: the headers' libraries.
      copts: how strict the compiler is.
    """
    for standard in ["14", "17", "20"]:
        netmeter_cc_library(
            name = "headers_as_cpp" + standard,
            srcs = ["headers_compile.cc"],
            copts = copts + ["-std=c++" + standard],
            deps = deps,
        )

def netmeter_tool(name, deps = [], **kwargs):
    """A folder of lib/apps/netmeter: its library, and name + "_test" of its *_test.cc.

    Args:
      name: of the folder.
      deps: what it needs beside lib/apps/netmeter:command.
      **kwargs: passed on to netmeter_cc_library.
    """
    netmeter_cc_library(
        name = name,
        srcs = native.glob(
            ["*.cc"],
            exclude = ["*_test.cc"],
        ),
        hdrs = native.glob(["*.h"]),
        visibility = ["//lib/apps:clients"],
        deps = deps + ["//lib/apps/netmeter:command"],
        **kwargs
    )
    tests = native.glob(
        ["*_test.cc"],
        exclude = ["*_root_test.cc"],
    )
    if tests:
        netmeter_cc_test(
            name = name + "_test",
            srcs = tests,
            deps = [":" + name],
        )
