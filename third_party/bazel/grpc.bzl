"""C++ protobuf and gRPC code from the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cc_grpc_library(name, src, **kwargs):
    """Generates and compiles src's messages and services.

    The package that calls this is the proto root: headers are included by
    their path below it, through -isystem (so warnings in them don't count).

    Args:
      name: the cc_library.
      src: the .proto file, below this package.
      **kwargs: passed on to cc_library.
    """
    if not src.endswith(".proto"):
        fail("src must be a .proto file", "src")
    stem = src[:-len(".proto")]
    hdrs = [stem + ".pb.h", stem + ".grpc.pb.h"]
    srcs = [stem + ".pb.cc", stem + ".grpc.pb.cc"]
    native.genrule(
        name = name + "_codegen",
        srcs = [src],
        outs = srcs + hdrs,
        cmd = " ".join([
            "$(execpath @system_tools//:protoc)",
            "--proto_path=" + (native.package_name() or "."),
            "--plugin=protoc-gen-grpc=$(execpath @system_tools//:grpc_cpp_plugin)",
            "--cpp_out=$(RULEDIR)",
            "--grpc_out=$(RULEDIR)",
            "$(execpath %s)" % src,
        ]),
        tools = [
            "@system_tools//:grpc_cpp_plugin",
            "@system_tools//:protoc",
        ],
    )
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        includes = ["."],
        deps = ["//third_party:grpc++"],
        **kwargs
    )
