"""Repository rule that finds the system's code generators and its Python.

Each tool is looked up once (environment override first, then fixed
directories, so that neither pyenv's shims nor a PATH without /usr/sbin
matter) and offered as @system_tools//:<name>. The Python that is found gives
@system_tools//:python_headers and the toolchain of py_test and py_binary.
@system_tools//:glib_headers are in two directories, one of which is the machine's.
@system_tools//:archives.bzl has the names of the static libraries that programs
without shared ones are linked with.
"""

# name -> (environment override, candidates, Debian package)
_TOOLS = {
    "bpftool": ("NETMETER_BPFTOOL", ["bpftool"], "bpftool"),
    "clang": ("NETMETER_BPF_CLANG", ["clang", "clang-14"], "clang"),
    "grpc_cpp_plugin": ("NETMETER_GRPC_CPP_PLUGIN", ["grpc_cpp_plugin"], "protobuf-compiler-grpc"),
    "llvm_objcopy": ("NETMETER_LLVM_OBJCOPY", ["llvm-objcopy", "llvm-objcopy-14"], "llvm"),
    "protoc": ("NETMETER_PROTOC", ["protoc"], "protobuf-compiler"),
}

_PYTHON_ENV = "NETMETER_PYTHON"

_DIRS = ["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"]

_PYTHON_QUERY = "import sys, sysconfig; print(sys.executable); print(sysconfig.get_paths()['include'])"

# Abseil's are added as found, because each release divides them in another way.
_ARCHIVES = ["bpf", "elf", "m", "yaml-cpp", "z"]

# If libelf was built with them; and the applications', which the core is built without.
_ARCHIVES_IF_THERE = ["bz2", "lzma", "zstd", "ncursesw", "nghttp2", "sqlite3", "tinfo"]

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

{tools}
cc_library(
    name = "python_headers",
    hdrs = glob(["python_include/**/*.h"]),
    includes = ["python_include"],
)

cc_library(
    name = "glib_headers",
    hdrs = glob(
        ["glib_*/**/*.h"],
        allow_empty = True,
    ),
    includes = [
        "glib_config",
        "glib_include",
    ],
)

py_runtime(
    name = "python_runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "python_runtime_pair",
    py2_runtime = None,
    py3_runtime = ":python_runtime",
)

toolchain(
    name = "python_toolchain",
    toolchain = ":python_runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

_TOOL = """\
filegroup(
    name = "{0}",
    srcs = ["bin/{0}"],
)
"""

def _find(rctx, env, candidates):
    override = rctx.os.environ.get(env)
    if override:
        return rctx.path(override)
    for candidate in candidates:
        for directory in _DIRS:
            path = rctx.path(directory + "/" + candidate)
            if path.exists:
                return path
    return None

def _libraries(rctx):
    # Of the compiler's machine, which may be another one: aarch64-linux-gnu-gcc.
    compiler = rctx.os.environ.get("CC", "gcc")
    machine = rctx.execute([compiler, "-dumpmachine"]).stdout.strip().split("-")[0]
    return rctx.path("/usr/lib/%s-linux-gnu" % machine)

def _archives(directory):
    there = []
    if directory.exists:
        there = [
            path.basename[len("lib"):-len(".a")]
            for path in directory.readdir()
            if path.basename.startswith("lib") and path.basename.endswith(".a")
        ]
    return sorted(_ARCHIVES + [
        name
        for name in there
        if name.startswith("absl_") or name in _ARCHIVES_IF_THERE
    ])

def _impl(rctx):
    missing = []
    for name, (env, candidates, package) in _TOOLS.items():
        path = _find(rctx, env, candidates)
        if path == None:
            missing.append("%s (apt-get install %s, or set %s)" % (name, package, env))
        else:
            rctx.symlink(path, "bin/" + name)
    python = _find(rctx, _PYTHON_ENV, ["python3"])
    if python == None:
        missing.append("python3 (apt-get install python3-dev, or set %s)" % _PYTHON_ENV)
    if missing:
        fail("missing build tools:\n  " + "\n  ".join(missing))

    result = rctx.execute([python, "-c", _PYTHON_QUERY])
    if result.return_code != 0:
        fail("cannot query %s: %s" % (python, result.stderr))
    executable, include = result.stdout.strip().split("\n")
    include = rctx.path(include)
    if not include.get_child("Python.h").exists:
        fail("no Python.h in %s (apt-get install python3-dev)" % include)
    rctx.symlink(include, "python_include")

    libraries = _libraries(rctx)
    rctx.file("archives.bzl", "ARCHIVES = %r\n" % _archives(libraries))

    # The core is built without glib.
    for link, path in (
        ("glib_include", rctx.path("/usr/include/glib-2.0")),
        ("glib_config", rctx.path("%s/glib-2.0/include" % libraries)),
    ):
        if path.exists:
            rctx.symlink(path, link)
    rctx.file("BUILD.bazel", _BUILD.format(
        python = executable,
        tools = "\n".join([_TOOL.format(name) for name in _TOOLS]),
    ))

system_tools = repository_rule(
    implementation = _impl,
    configure = True,
    environ = [env for (env, _, _) in _TOOLS.values()] + [_PYTHON_ENV, "CC"],
    local = True,
)
