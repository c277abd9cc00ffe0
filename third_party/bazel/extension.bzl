"""The module extension of MODULE.bazel: what WORKSPACE declares by itself."""

load(":system_tools.bzl", "system_tools")

def _system_impl(_):
    system_tools(name = "system_tools")

system = module_extension(implementation = _system_impl)
