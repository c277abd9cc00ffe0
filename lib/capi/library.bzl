"""The library for programs that Bazel does not build: libnetmeter.so.1 and
libnetmeter.a.

Both show the C API, and nothing else, so a program's own abseil, of whatever
version, is never asked, and never gets in the way.

The shared library is linked with the system's abseil, and hides all else
by its version script.

The static library has in it what it uses of abseil. It is one object:

- `ld -r` joins all of it. --force-group-allocation dissolves the COMDAT groups
  (templates and inline functions); else the program's linker could replace ours
  by the program's, of the same name and another shape.
- `llvm-objcopy --keep-global-symbols` makes every symbol local, but for the C API.

It is for programs, not for shared libraries: Debian's libabsl_cord.a is compiled
for programs (-fPIE).
"""

def _archives(deps):
    """The archives of position-independent code of `deps` and all below, each once."""
    found = []
    for dep in deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                archive = library.pic_static_library or library.static_library
                if archive != None and archive not in found:
                    found.append(archive)
    return found

def _netmeter_library_impl(ctx):
    archives = _archives(ctx.attr.deps)
    shared = ctx.actions.declare_file(ctx.attr.soname)
    static = ctx.actions.declare_file("libnetmeter.a")
    ctx.actions.run(
        executable = ctx.executable._link,
        arguments = [
            shared.path,
            ctx.attr.soname,
            static.path,
            ctx.file.exports.path,
        ] + [archive.path for archive in archives] + ["--"] + ctx.attr.system_libraries,
        inputs = archives + [ctx.file.exports],
        outputs = [shared, static],
        mnemonic = "NetmeterLibrary",
        progress_message = "Linking libnetmeter",
        # For g++, ld, objcopy and ar of the system.
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(
            files = depset([shared, static]),
            runfiles = ctx.runfiles(files = [shared, static]),
        ),
        OutputGroupInfo(shared = depset([shared]), static = depset([static])),
    ]

netmeter_library = rule(
    implementation = _netmeter_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "exports": attr.label(allow_single_file = True, mandatory = True),
        "soname": attr.string(mandatory = True),
        # Such as "absl_status"; may have a "*".
        "system_libraries": attr.string_list(),
        "_link": attr.label(default = ":link_library", executable = True, cfg = "host"),
    },
)
