#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Python service of a Magma gateway. It knows nothing of libnetmeter, which
takes its name from the command line, and its destinations from :authority (on
the way to the proxy) or from the server name of TLS.

    python3 -m magma.mobilityd.main 127.0.0.1:8443 state=3145728 streamer=0
    python3 -m magma.magmad.main 10.0.0.2:443 bootstrapper=0 CA-CERTIFICATE

Sends so many bytes to each cloud service, asks each for a MiB more, says
"done" and keeps its channels until SIGTERM. With a certificate it talks to the
cloud itself, over TLS; without, through the proxy.

The other end is cloud_stub.py. Needs: python3-grpcio
"""

import sys
import time

import grpc

TIMEOUT = 10
MESSAGE = 1 << 20


def open_channel(target, service, certificate):
    host = service + "-controller.magma.test"
    if certificate is None:
        return grpc.insecure_channel(target, [("grpc.default_authority", host)])
    with open(certificate, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    return grpc.secure_channel(target, credentials, [("grpc.ssl_target_name_override", host)])


def main():
    target, *words = sys.argv[1:]
    certificate = None if "=" in words[-1] else words.pop()
    channels = []
    for word in words:
        service, size = word.split("=")
        channel = open_channel(target, service, certificate)
        channels.append(channel)
        for sent in range(0, int(size), MESSAGE):
            request = bytes(min(MESSAGE, int(size) - sent))
            channel.unary_unary("/cloud.Stub/Upload")(request, timeout=TIMEOUT)
        answer = channel.unary_unary("/cloud.Stub/Download")(b"%d" % MESSAGE, timeout=TIMEOUT)
        assert len(answer) == MESSAGE, len(answer)
    print("done", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
