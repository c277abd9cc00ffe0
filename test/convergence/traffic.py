#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""traffic.py echo ADDRESS | send ADDRESS COUNT_FILE: UDP and TCP of one veth pair.

`send` keeps as many tagged UDP sockets open as COUNT_FILE says, each a series of its own.
"""
import select
import socket
import sys
import time

NM_SOL, NM_TAG = 0x6E74, 2


def echo(address):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    udp.bind((address, 9999))
    tcp = socket.create_server((address, 9998))
    streams = []
    print("ready", flush=True)
    while True:
        for ready in select.select([udp, tcp] + streams, [], [])[0]:
            if ready is udp:
                data, peer = udp.recvfrom(2048)
                udp.sendto(data[: len(data) // 2], peer)
            elif ready is tcp:
                streams.append(tcp.accept()[0])
            else:
                data = ready.recv(65536)
                if data:
                    ready.sendall(data[: len(data) // 3 + 1])
                else:
                    streams.remove(ready)


def send(address, count_file):
    sockets, number, untagged, generation = [], 0, [], 0
    tcp = socket.create_connection((address, 9998))
    tcp.setblocking(False)
    data = bytes(range(256)) * 4
    print("ready", flush=True)
    while True:
        words = open(count_file).read().split()
        if len(words) == 2:
            wanted = int(words[0])
            if generation != words[1]:  # another meter: it knows no tags
                generation = words[1]
                untagged = list(enumerate(sockets, 1))
        while len(sockets) < wanted:
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.connect((address, 9999))
            one.setblocking(False)
            sockets.append(one)
            untagged.append((len(sockets), one))
        if number % 16 == 0 and untagged:
            rest = []
            for index, one in untagged:
                try:
                    one.setsockopt(NM_SOL, NM_TAG, b"d%05d" % index)
                except OSError:
                    rest.append((index, one))
            untagged = rest
        for _ in range(32):
            one = sockets[number % len(sockets)]
            number += 1
            try:
                one.send(data[: 40 + number * 7 % 900])
                while True:
                    one.recv(2048)
            except BlockingIOError:
                pass
        try:
            tcp.send(data[: 100 + number % 800])
            while tcp.recv(65536):
                pass
        except BlockingIOError:
            pass
        time.sleep(0.004)


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        echo(sys.argv[2])
    else:
        send(sys.argv[2], sys.argv[3])
