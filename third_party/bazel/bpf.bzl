"""Rules for BPF objects and their libbpf skeletons."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_ARCH = {
    "aarch64": "arm64",
    "k8": "x86",
}

def _bpf_skeleton_impl(ctx):
    raw = ctx.actions.declare_file(ctx.label.name + ".raw.bpf.o")
    unlabelled = ctx.actions.declare_file(ctx.label.name + ".unlabelled.bpf.o")
    obj = ctx.actions.declare_file(ctx.label.name + ".bpf.o")
    skel = ctx.actions.declare_file(ctx.label.name + ".skel.h")
    arch = _ARCH.get(ctx.var["TARGET_CPU"])
    if not arch:
        fail("no BPF target architecture for cpu " + ctx.var["TARGET_CPU"])

    args = ctx.actions.args()
    args.add_all(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
    args.add_all(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])

    # The BTF line info names files below this, and not the sandbox's path. This folder
    # does not exist, so clang leaves out the text of each line, which would be a fifth
    # of the object. A verifier's log has the file and the number. It shows no columns,
    # which would be a tenth.
    args.add("-ffile-compilation-dir=libnetmeter")
    args.add("-gno-column-info")
    args.add("-D__TARGET_ARCH_" + arch)

    # <asm/types.h>, which -target bpf does not find by itself on Debian.
    args.add_all(["-idirafter", "/usr/include/%s-linux-gnu" % ("x86_64" if arch == "x86" else "aarch64")])
    args.add_all(["-iquote", "."])
    args.add_all([h.dirname for h in ctx.files.hdrs], before_each = "-isystem", uniquify = True)
    args.add_all(ctx.attr.copts)
    args.add_all(["-c", ctx.file.src, "-o", raw])
    ctx.actions.run(
        executable = ctx.executable._clang,
        arguments = [args],
        inputs = [ctx.file.src] + ctx.files.hdrs,
        outputs = [raw],
        mnemonic = "BpfCompile",
        progress_message = "Compiling BPF object " + raw.short_path,
    )

    # The labels of jumps, which are a tenth of the object and unused.
    ctx.actions.run(
        executable = ctx.executable._objcopy,
        arguments = ["--wildcard", "--strip-symbol=LBB*", raw.path, unlabelled.path],
        inputs = [raw],
        outputs = [unlabelled],
        mnemonic = "BpfStrip",
    )

    # "gen object" links and drops DWARF, keeping BTF: no llvm-strip needed.
    ctx.actions.run(
        executable = ctx.executable._bpftool,
        arguments = ["gen", "object", obj.path, unlabelled.path],
        inputs = [unlabelled],
        outputs = [obj],
        mnemonic = "BpfLink",
    )
    ctx.actions.run_shell(
        tools = [ctx.executable._bpftool],
        inputs = [obj],
        outputs = [skel],
        command = "%s gen skeleton %s name %s > %s" % (
            ctx.executable._bpftool.path,
            obj.path,
            # Not the bare name, which a C++ namespace is likely to have.
            ctx.label.name + "_bpf",
            skel.path,
        ),
        mnemonic = "BpfSkeleton",
    )
    return [
        DefaultInfo(files = depset([skel])),
        OutputGroupInfo(bpf_object = depset([obj])),
    ]

_bpf_skeleton = rule(
    implementation = _bpf_skeleton_impl,
    attrs = {
        "copts": attr.string_list(),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "src": attr.label(allow_single_file = [".bpf.c"], mandatory = True),
        "_bpftool": attr.label(
            default = "@system_tools//:bpftool",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
        "_clang": attr.label(
            default = "@system_tools//:clang",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
        "_objcopy": attr.label(
            default = "@system_tools//:llvm_objcopy",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
    },
)

def bpf_skeleton_library(name, src, hdrs = [], copts = [], tags = [], **kwargs):
    """Compiles src for BPF; name is a cc_library with its <name>.skel.h.

    Args:
      name: the cc_library; "<name>" with "_skel" dropped names the skeleton.
      src: the .bpf.c file.
      hdrs: headers that src includes.
      copts: more options for clang.
      tags: tags of all targets.
      **kwargs: passed on to cc_library.
    """
    base = name[:-len("_skel")] if name.endswith("_skel") else name + "_bpf"
    _bpf_skeleton(
        name = base,
        src = src,
        hdrs = hdrs,
        copts = copts,
        tags = tags,
    )
    cc_library(
        name = name,
        hdrs = [":" + base],
        includes = ["."],
        tags = tags,
        deps = ["//third_party:libbpf"],
        **kwargs
    )
