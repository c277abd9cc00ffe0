#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Python service that publishes what its traffic costs.

    python_service.py --cloud 10.0.0.2:9000
    curl http://127.0.0.1:9092/metrics

Uploads to the cloud every second, and serves /metrics by prometheus_client
until SIGTERM or Ctrl-C. What libnetmeter needs is marked with (n). Without a
loaded meter the service works all the same, and netmeter_up is 0.

The other end is cloud_stub.py. Needs: pip install ./bindings/python prometheus_client
"""

import argparse
import signal
import socket
import threading

import prometheus_client

import netmeter
import netmeter.prometheus


def upload(cloud, size):
    with socket.socket() as sock:
        sock.settimeout(10)
        try:
            netmeter.tag_socket(sock, "metricsd")  # (3) before connect()
        except netmeter.Error:
            pass  # counted all the same, without a destination
        sock.connect(cloud)
        sock.sendall(b"UP %d\n" % size + bytes(size))
        sock.recv(1)  # the cloud closes first: TIME_WAIT stays there


def main():
    parser = argparse.ArgumentParser(description="A service, metered by libnetmeter.")
    parser.add_argument("--cloud", required=True, metavar="IP:PORT")
    parser.add_argument("--name", default="subscriberdb", help="of the service")
    parser.add_argument("--port", type=int, default=9092, help="of /metrics")
    parser.add_argument("--bytes", type=int, default=10000, help="of one upload")
    parser.add_argument("--pin-dir", default=netmeter.DEFAULT_PIN_DIR)
    options = parser.parse_args()
    host, port = options.cloud.rsplit(":", 1)

    # (1) Names this process; (2) publishes its series beside the others.
    meter = netmeter.Meter.open(options.pin_dir, options.name, wait_for_loader=True)
    prometheus_client.REGISTRY.register(netmeter.prometheus.Collector(meter))
    prometheus_client.start_http_server(options.port, addr="127.0.0.1")

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(1):
        try:
            upload((host, int(port)), options.bytes)
            print("uploaded", flush=True)
        except OSError as error:
            print("upload: %s" % error, flush=True)


if __name__ == "__main__":
    main()
