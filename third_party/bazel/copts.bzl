"""Compiler options of the project's own code."""

NETMETER_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]
