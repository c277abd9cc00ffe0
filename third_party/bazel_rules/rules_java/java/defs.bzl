"""The part of rules_java that @bazel_tools loads, on Bazel's built-in rules."""

java_import = native.java_import
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
