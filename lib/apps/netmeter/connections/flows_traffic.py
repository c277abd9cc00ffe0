# SPDX-License-Identifier: BSD-3-Clause
"""The traffic of flows_root_test.py: connections of all kinds, their peers, and
strangers."""

import socket
import struct
import threading
import time

import lab

HERE, THERE = lab.Cloud.HERE, lab.Cloud.THERE
# Unused addresses: packets to them, and packets with them as forged source, get no
# answer.
SILENT, SPOOFED = "10.88.0.77", "10.88.0.88"
TCP, UDP, OURS, SINK = 7000, 7001, 7002, 7004
NM_SOL, NM_TAG, NM_SERVICE = 0x6E74, 2, 3  # abi.h
# Segments that have no flow, because a raw socket sends them. A RST has no answer.
NO_FLOW = """
import socket, struct
r = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
for i in range(%d): r.sendto(struct.pack("!HHIIBBHHH", 7, 7, i, 0, 0x50, 4, 0, 0, 0), (%r, 0))
"""


def abort(one):
    """close(2) that sends a RST."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def serve(listener):
    """Answers each connection with as much as it sent, at its end."""
    while True:
        try:
            one = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=answer, args=(one,), daemon=True).start()


def answer(one):
    size = 0
    with one:
        try:
            while data := one.recv(65536):
                size += len(data)
            one.sendall(b"y" * size)
        except OSError:
            pass



def echo(udp):
    while True:
        data, peer = udp.recvfrom(2000)
        udp.sendto(data, peer)


# --- What runs in the cgroup ---------------------------------------------------


def exchange(count, size=100, address=(THERE, TCP)):
    """Connections that end as they should, from the side that opened them."""
    for i in range(count):
        with socket.create_connection(address) as one:
            one.sendall(b"x" * (size + i))
            one.shutdown(socket.SHUT_WR)
            while one.recv(65536):
                pass


def aborted(count):
    for _ in range(count):
        one = socket.create_connection((THERE, TCP))
        one.sendall(b"x" * 50)
        abort(one)


def refused(count):
    for _ in range(count):
        with socket.socket() as one:
            assert one.connect_ex((THERE, TCP + 900)) != 0


def timed_out(count):
    waiting = []
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
        one.setblocking(False)
        one.connect_ex((SILENT, TCP))
        waiting.append(one)
    for one in waiting:
        one.setblocking(True)
        one.settimeout(30)
        try:
            one.send(b"x")
        except OSError:
            pass
        one.close()




def datagrams(count):
    for i in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(10)
            one.sendto(b"u" * (10 + i % 500), (THERE, UDP))
            one.recvfrom(2000)



def pings(count):
    """Echo requests and their answers: a socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as one:
        one.settimeout(10)
        for i in range(count):
            echo = struct.pack("!BBHHH", 8, 0, 0, 7, i)
            checksum = ~(0x0800 + 7 + i) & 0xFFFF
            one.sendto(echo[:2] + struct.pack("!H", checksum) + echo[4:], (THERE, 0))
            one.recv(2000)


def many_peers(count):
    """One socket, and as many peers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for i in range(count):
            one.sendto(b"p" * 10, (THERE, 20000 + i))


# --- What runs outside -----------------------------------------------------------


def send_segment(raw, source, target, number, flags, acknowledged=0):
    """A segment without payload; source and target are (address, port)."""
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], number, acknowledged, 0x50, flags, 8192, 0, 0)
    pseudo = addresses + struct.pack("!BBH", 0, 6, len(tcp)) + tcp
    total = sum(struct.unpack("!%dH" % (len(pseudo) // 2), pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    tcp = tcp[:16] + struct.pack("!H", ~total & 0xFFFF) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + addresses
    raw.sendto(ip + tcp, (target[0], 0))


def raw_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def connect_slowly(port, meanwhile):
    """A stranger's connection to our listener, which ends at once. Returns how long its
    handshake took at least: what runs before its last segment."""
    stranger, ours = (SPOOFED, port), (HERE, OURS)
    with raw_socket() as raw, socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as seen:
        seen.settimeout(20)

        def await_flag(flag):
            while True:
                tcp = seen.recv(2000)[20:]
                if struct.unpack("!HH", tcp[:4]) == (OURS, port) and tcp[13] & flag:
                    return struct.unpack("!I", tcp[4:8])[0]

        send_segment(raw, stranger, ours, 1, flags=2)
        theirs = await_flag(2) + 1
        begin = time.monotonic_ns()
        meanwhile()
        took = time.monotonic_ns() - begin
        send_segment(raw, stranger, ours, 2, flags=0x10, acknowledged=theirs)
        send_segment(raw, stranger, ours, 2, flags=0x11, acknowledged=theirs)
        await_flag(1)
        send_segment(raw, stranger, ours, 3, flags=0x10, acknowledged=theirs + 1)
        return took


def half_open(count):
    """SYNs of somebody who never answers, to our listener."""
    with raw_socket() as raw:
        for i in range(count):
            send_segment(raw, (SPOOFED, 10000 + i), (HERE, OURS), 1, flags=2)


def spoofed_datagrams(count):
    """Datagrams of as many peers, to a socket of ours."""
    with raw_socket() as raw:
        for i in range(count):
            udp = struct.pack("!HHHH", 10000 + i, SINK, 18, 0) + b"d" * 10
            addresses = socket.inet_aton(SPOOFED) + socket.inet_aton(HERE)
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses
            raw.sendto(ip + udp, (HERE, 0))
