"""C++ protobuf and gRPC code from the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cc_grpc_library(name, srcs, **kwargs):
    """Generates and compiles the messages and services of srcs.

    The package that calls this is the proto root: headers and imports are by
    the path below it, headers through -isystem (so warnings in them don't
    count).

    Args:
      name: the cc_library.
      srcs: .proto files below this package, with all that they import but
        protobuf's own.
      **kwargs: passed on to cc_library.
    """
    hdrs = []
    ccs = []
    for src in srcs:
        if not src.endswith(".proto"):
            fail("srcs must be .proto files", "srcs")
        stem = src[:-len(".proto")]
        hdrs += [stem + ".pb.h", stem + ".grpc.pb.h"]
        ccs += [stem + ".pb.cc", stem + ".grpc.pb.cc"]
    native.genrule(
        name = name + "_codegen",
        srcs = srcs,
        outs = ccs + hdrs,
        cmd = " ".join([
            "$(execpath @system_tools//:protoc)",
            "--proto_path=" + (native.package_name() or "."),
            "--plugin=protoc-gen-grpc=$(execpath @system_tools//:grpc_cpp_plugin)",
            "--cpp_out=$(RULEDIR)",
            "--grpc_out=$(RULEDIR)",
            "$(SRCS)",
        ]),
        tools = [
            "@system_tools//:grpc_cpp_plugin",
            "@system_tools//:protoc",
        ],
    )
    cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        includes = ["."],
        deps = ["//third_party:grpc++"],
        **kwargs
    )
