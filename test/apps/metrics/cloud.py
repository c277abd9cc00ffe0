#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cloud's metricsd: takes what a gateway reports, and says so.

cloud.py ADDRESS:PORT"""

import concurrent.futures
import sys

import grpc


def collect(request, _context):
    print("collected", len(request), flush=True)
    return b""


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    method = grpc.unary_unary_rpc_method_handler(collect)
    service = grpc.method_handlers_generic_handler("magma.orc8r.MetricsController", {"Collect": method})
    server.add_generic_rpc_handlers((service,))
    if not server.add_insecure_port(sys.argv[1]):
        sys.exit("cannot listen on " + sys.argv[1])
    server.start()
    print("listening", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
