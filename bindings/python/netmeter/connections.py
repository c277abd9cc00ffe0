# SPDX-License-Identifier: BSD-3-Clause
"""How this process's own TCP connections are, and records of those that ended.

    import netmeter.connections

    for c in netmeter.connections.read_own():
        print(c.remote_address, c.rtt_us, c.retransmitted_segments)

Needs no root and no loaded meter: the kernel tells each process of its own
sockets. Of other processes' sockets, and of services and destinations, root
alone is told (``netmeter sockets``). docs/connections.md says what each kernel
has.

Errors are ``netmeter.Error``, and TypeError for arguments of a wrong type.
Threads: the functions may be called from any thread; a FlowDecoder by one at a
time.
"""

import dataclasses
from typing import Iterator, List, Union

from netmeter import _HasFileno, _descriptor_of, _netmeter

__all__ = ["Connection", "FlowDecoder", "FlowRecord", "read", "read_own"]


@dataclasses.dataclass(frozen=True)
class Connection:
    """A TCP socket of this process.

    Of a socket that listens only the first fields tell something, up to
    remote_port. Totals count from the socket's beginning.
    """

    fd: int
    """Of several descriptors of one socket, the lowest."""
    cookie: int
    """As SO_COOKIE: no other socket of this boot has it."""
    mptcp: bool
    """All below is of the first subflow then."""
    state: str
    """The kernel's name, such as "ESTABLISHED"."""
    local_address: str
    local_port: int
    remote_address: str
    """"" where it is not connected."""
    remote_port: int
    congestion: str
    """The congestion control, such as "cubic"."""
    rtt_us: int
    """Smoothed round-trip time (RFC 6298) in microseconds. 0: none measured."""
    rtt_variation_us: int
    min_rtt_us: int
    retransmission_timeout_us: int
    sent_bytes: int
    """Bytes of payload, with those that were sent again."""
    retransmitted_bytes: int
    """Of sent_bytes, those that were sent again."""
    acknowledged_bytes: int
    received_bytes: int
    unsent_bytes: int
    """Written by the service, not sent yet; a level."""
    sent_segments: int
    received_segments: int
    retransmitted_segments: int
    out_of_order_segments: int
    """That came overtaken, or after a loss."""
    duplicate_segments: int
    """Sent again in vain, as the peer told (DSACK)."""
    unacknowledged_segments: int
    """Under way; a level."""
    lost_segments: int
    """Of these, taken for lost; a level."""
    timeouts_in_a_row: int
    """Without an answer since; a level. Above 0, the peer is not heard now."""
    timeouts_known: bool
    """From Linux 6.7 on. Before it the next two are 0."""
    timeouts: int
    """Retransmission time-outs."""
    timeout_time_ms: int
    """The time that was lost in them."""
    delivery_rate: int
    """Bytes a second, as it was measured last."""
    delivery_limited_by_application: bool
    """That was all there was to send."""
    pacing_rate: int
    """Bytes a second; 2**64 - 1: no limit."""
    busy_us: int
    """Microseconds in which there was something to send."""
    limited_by_receiver_us: int
    """Of busy_us, held back by the peer's window."""
    limited_by_buffer_us: int
    """Of busy_us, held back by this socket's send buffer."""
    congestion_window_segments: int
    segment_bytes: int
    """Payload of the largest segment to send."""
    path_mtu: int
    send_window_bytes: int
    """That the peer offers; 0: it can take no more."""
    since_sent_ms: int
    """Since the last payload."""
    since_received_ms: int
    tcp_info: bytes
    """struct tcp_info of linux/tcp.h, as this kernel wrote it."""


@dataclasses.dataclass(frozen=True)
class FlowRecord:
    """A connection that has ended, as ``netmeter flows`` tells of it.

    docs/connections.md explains each field. One that the record does not have
    is 0 or "".
    """

    record: str
    """"flow"; "remainder" and "lost" are no connections."""
    start_ns: int
    end_ns: int
    duration_ns: int
    protocol: str
    family: str
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int
    interface: int
    cookie: int
    """That of Connection."""
    kind: str
    service: str
    destination: str
    transport: str
    path: str
    uplink: str
    owner_pid: int
    process: str
    opened_by: str
    handshake_ns: int
    end: str
    """"fin", "rst", "timeout", and so on."""
    closed_by: str
    error: str
    partial: int
    part: int
    tx_bytes: int
    rx_bytes: int
    tx_packets: int
    rx_packets: int
    tx_payload_bytes: int
    rx_payload_bytes: int
    tx_retransmit_bytes: int
    rx_retransmit_bytes: int
    tx_retransmits: int
    rtt_us: int
    min_rtt_us: int
    reason: str
    records: int


def read(socket: Union[int, _HasFileno]) -> Connection:
    """One socket, whoever opened it.

    socket: a socket.socket, anything else with fileno(), or a descriptor.

    Costs eight system calls. Raises:
      InvalidArgumentError  no open TCP socket
      Error                 UNIMPLEMENTED: an MPTCP socket, before Linux 5.16
    """
    descriptor = _descriptor_of("read the connection", socket)
    return Connection(*_netmeter.read_connection(descriptor))


def read_own() -> List[Connection]:
    """All TCP sockets that this process has open, by their descriptors.

    Those that listen are among them. Other processes' sockets are not looked
    at, so the cost does not grow with the host: a system call for each
    descriptor, and nine for each TCP socket. Sockets that another thread closes
    meanwhile are left out. Raises NotFoundError where no /proc is mounted.
    """
    return [Connection(*values) for values in _netmeter.read_own_connections()]


class FlowDecoder:
    """Reads what ``netmeter flows --follow --protobuf`` writes.

    That command needs root; a service without root gets its output through a
    pipe that root makes (docs/connections.md has the unit). No call here makes
    a system call, so the pipe may be read as an event loop likes to:

        decoder = netmeter.connections.FlowDecoder()
        while data := os.read(pipe, 65536):
            for record in decoder.feed(data):
                print(record.destination, record.end, record.tx_bytes)
    """

    def __init__(self) -> None:
        self._decoder = _netmeter.FlowDecoder()

    def feed(self, data: bytes) -> Iterator[FlowRecord]:
        """Takes bytes, which may end within a record; yields what is whole.

        Raises Error with code DATA_LOSS where the bytes are no such stream.
        """
        self._decoder.append(data)
        return self._records()

    def _records(self) -> Iterator[FlowRecord]:
        while True:
            values = self._decoder.next()
            if values is None:
                return
            yield FlowRecord(*values)
