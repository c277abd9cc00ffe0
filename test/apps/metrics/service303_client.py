# SPDX-License-Identifier: BSD-3-Clause
"""grpcio against a Service303: see service303_clients_test.py, which says what
all these clients do and print.

service303_client.py HOST:PORT
"""

import sys

import grpc

PREFIX = "/magma.orc8r.Service303/"
METHODS = (
    "GetServiceInfo",
    "GetMetrics",
    "SetLogLevel",
    "SetLogVerbosity",
    "ReloadServiceConfig",
    "GetOperationalStates",
)


def finish(what, call):
    try:
        print("%s: %d bytes" % (what, len(call.result())))
    except grpc.RpcError as error:
        code = error.code().value[0]
        print("%s: code %d" % (what, code) + ("" if code == 4 else ", " + error.details()))


with grpc.insecure_channel(sys.argv[1]) as channel:

    def start(path, size=0, **options):
        options.setdefault("timeout", 30)
        return channel.unary_unary(path).future(b"x" * size, **options)

    for method in METHODS:
        finish(method, start(PREFIX + method))
    finish("unknown", start("/other.Service/Method"))
    metrics = PREFIX + "GetMetrics"
    finish("gzip", start(metrics, 1000, compression=grpc.Compression.Gzip))
    finish("long", start(metrics, 100000))
    # Not 0: gRPC rounds up to a millisecond, in which a kept reply has come.
    finish("deadline", start(metrics, timeout=-1))
    for running in [start(metrics) for _ in range(40)]:
        finish("at once", running)
