#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The TCP health of this process's own connections, without root and without a
meter; and, from a pipe, the records of those that ended.

    connections.py ADDRESS PORT
    netmeter flows --follow --protobuf --service mme | connections.py -

Needs: pip install ./bindings/python
"""

import os
import socket
import sys

import netmeter.connections


def main():
    if sys.argv[1:] == ["-"]:
        decoder = netmeter.connections.FlowDecoder()
        while True:
            data = os.read(0, 65536)
            if not data:
                return
            for r in decoder.feed(data):
                if r.record == "flow":
                    print(r.destination, r.end, r.tx_bytes, r.rx_bytes, flush=True)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))):
        for c in netmeter.connections.read_own():
            print("%s %s:%d rtt %d us, retransmitted segments %d" %
                  (c.state, c.remote_address, c.remote_port, c.rtt_us, c.retransmitted_segments))


if __name__ == "__main__":
    main()
