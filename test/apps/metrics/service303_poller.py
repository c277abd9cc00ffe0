# SPDX-License-Identifier: BSD-3-Clause
"""The channel of metrics_lab.Service303Client: HOST:PORT, then for each line with a
method's name a line with the reply in hexadecimal, or with the error's name."""

import sys

import grpc

TIMEOUT = 30  # seconds

with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result(timeout=TIMEOUT)
    for line in sys.stdin:
        try:
            reply = channel.unary_unary("/magma.orc8r.Service303/" + line.strip())(b"", timeout=TIMEOUT)
            print("reply", reply.hex(), flush=True)
        except grpc.RpcError as error:
            print("error", error.code().name, flush=True)
