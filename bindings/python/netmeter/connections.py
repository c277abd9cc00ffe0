# SPDX-License-Identifier: BSD-3-Clause
"""The TCP health of this process's own connections, and records of ended ones.

    import netmeter.connections

    for c in netmeter.connections.read_own():
        print(c.remote_address, c.rtt_us, c.retransmitted_segments)

Needs no root and no loaded meter, because the kernel tells each process about its
own sockets. Only root can see other processes' sockets, services and destinations
(``netmeter sockets``). docs/connections.md says which kernel has which data.

Errors are ``netmeter.Error``, and TypeError for arguments of a wrong type.
Threads: any may call the functions; only one at a time may use a FlowDecoder.
"""

import dataclasses
from typing import Any, Dict, Iterator, List, Tuple, Union

from netmeter import _KINDS, _PATHS, _TRANSPORTS, Kind, Path, Transport, _HasFileno, _descriptor_of, _netmeter

__all__ = ["Connection", "FlowDecoder", "FlowRecord", "read", "read_own"]


@dataclasses.dataclass(frozen=True)
class Connection:
    """A TCP socket of this process.

    For a listening socket only the first fields have values, up to remote_port.
    Totals count from the socket's creation.
    """

    fd: int
    """The lowest descriptor of the socket."""
    cookie: int
    """SO_COOKIE: no other socket of this boot has it."""
    mptcp: bool
    """If true, all fields below are those of the first subflow."""
    state: str
    """The kernel's name, such as "ESTABLISHED"."""
    local_address: str
    local_port: int
    remote_address: str
    """"" if it is not connected."""
    remote_port: int
    congestion: str
    """The congestion control, such as "cubic"."""
    rtt_us: int
    """Smoothed round-trip time (RFC 6298) in microseconds. 0: none measured."""
    rtt_variation_us: int
    min_rtt_us: int
    retransmission_timeout_us: int
    sent_bytes: int
    """Payload bytes, with retransmissions."""
    retransmitted_bytes: int
    """The retransmitted part of sent_bytes."""
    acknowledged_bytes: int
    received_bytes: int
    unsent_bytes: int
    """Written by the service, but not sent yet. A present value."""
    sent_segments: int
    received_segments: int
    retransmitted_segments: int
    out_of_order_segments: int
    """Segments that arrived out of order."""
    duplicate_segments: int
    """Unnecessary retransmissions, as reported by the peer (DSACK)."""
    unacknowledged_segments: int
    """Segments in flight. A present value."""
    lost_segments: int
    """Segments in flight that are considered lost. A present value."""
    timeouts_in_a_row: int
    """Timeouts since the last answer. A present value. Above 0, the peer does not
    answer now."""
    timeouts_known: bool
    """True since Linux 6.7. Before, the next two fields are 0."""
    timeouts: int
    """Retransmission timeouts."""
    timeout_time_ms: int
    """The time lost in these timeouts."""
    delivery_rate: int
    """The last measured rate, in bytes a second."""
    delivery_limited_by_application: bool
    """The service had no more to send during that measurement."""
    pacing_rate: int
    """Bytes a second; 2**64 - 1: no limit."""
    busy_us: int
    """Microseconds with data to send."""
    limited_by_receiver_us: int
    """The part of busy_us in which the peer's window was full."""
    limited_by_buffer_us: int
    """The part of busy_us in which this socket's send buffer was full."""
    congestion_window_segments: int
    segment_bytes: int
    """The largest payload of a segment to send."""
    path_mtu: int
    send_window_bytes: int
    """The peer's window; 0 if it can take no more."""
    since_sent_ms: int
    """Time since payload was last sent."""
    since_received_ms: int
    tcp_info: bytes
    """struct tcp_info of linux/tcp.h, as this kernel wrote it."""


@dataclasses.dataclass(frozen=True)
class FlowRecord:
    """A connection that has ended, as a record of ``netmeter flows``.

    docs/output.md explains each field. A field that the record lacks is 0,
    "", {} or UNKNOWN. kind, transport and path are also UNKNOWN for a word of a
    newer netmeter.
    """

    record: str
    """"flow"; "remainder" and "lost" are not connections."""
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
    interface_name: str
    network: int
    """Inode of the network namespace."""
    cookie: int
    """As in Connection."""
    kind: Kind
    service: str
    destination: str
    transport: Transport
    path: Path
    uplink: str
    owner_pid: int
    process: str
    opened_by: str
    handshake_ns: int
    end: str
    """"fin", "rst", "timeout", and so on."""
    closed_by: str
    error: str
    partial: bool
    part: int
    tx_tcp_flags: int
    """The flags of all sent packets, as in TCP's header: 1 is FIN."""
    rx_tcp_flags: int
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
    host: str
    """The name of the host that made the record."""
    labels: Dict[str, str]
    """Those of ``netmeter flows --label``."""
    client_interface: int
    """The index. Only a forwarded flow has these; its local end is the client."""
    client_interface_name: str
    client_uplink: str
    client_mac: str
    client_peer: str
    """The public key of WireGuard."""
    client_name: str


# By the name of the field.
_ENUMS: Dict[str, Dict[str, Any]] = {"kind": _KINDS, "transport": _TRANSPORTS, "path": _PATHS}


def _record_of(values: Tuple[Any, ...]) -> FlowRecord:
    fields = dict(zip(_netmeter.FLOW_RECORD_FIELDS, values))
    for name, words in _ENUMS.items():
        fields[name] = words[fields[name]]
    return FlowRecord(**fields)


def read(socket: Union[int, _HasFileno]) -> Connection:
    """Reads one socket, which any process may have opened.

    socket: a socket.socket, anything else with fileno(), or a descriptor.

    Costs eight system calls. Raises:
      InvalidArgumentError  no open TCP socket
      Error                 UNIMPLEMENTED: an MPTCP socket, before Linux 5.16
    """
    descriptor = _descriptor_of("read the connection", socket)
    return Connection(*_netmeter.read_connection(descriptor))


def read_own() -> List[Connection]:
    """Reads all open TCP sockets of this process, by descriptor.

    Listening ones are included. The cost does not depend on other processes: a
    system call for each descriptor, and nine for each TCP socket. A socket that
    another thread closes meanwhile is left out. Raises NotFoundError if /proc is
    not mounted.
    """
    return [Connection(*values) for values in _netmeter.read_own_connections()]


class FlowDecoder:
    """Reads the output of ``netmeter flows --follow --protobuf``.

    That command needs root. A service without root gets its output through a
    pipe that root makes (docs/connections.md has the unit). The decoder makes no
    system call, so it also works in an event loop:

        decoder = netmeter.connections.FlowDecoder()
        while data := os.read(pipe, 65536):
            for record in decoder.feed(data):
                print(record.destination, record.end, record.tx_bytes)
    """

    def __init__(self) -> None:
        self._decoder = _netmeter.FlowDecoder()

    def feed(self, data: bytes) -> Iterator[FlowRecord]:
        """Takes bytes, which may end within a record; yields complete records.

        Raises Error with code DATA_LOSS if the bytes are not such a stream.
        """
        self._decoder.append(data)
        return self._records()

    def _records(self) -> Iterator[FlowRecord]:
        while True:
            values = self._decoder.next()
            if values is None:
                return
            yield _record_of(values)
