"""The part of rules_cc in use, on Bazel's built-in rules.

Debian's bazel-rules-cc (0.0.4) doesn't load in Debian's Bazel (4.2.3): it
wants use_cpp_toolchain, which came with Bazel 5. @bazel_tools itself loads
cc_toolchain, cc_toolchain_suite, cc_proto_library and objc_library from here.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
