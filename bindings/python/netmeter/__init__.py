# SPDX-License-Identifier: BSD-3-Clause
"""How many bytes each service of this host sent and received, and to whom.

    import netmeter

    with netmeter.Meter.open(service="subscriberdb") as meter:
        ...
        for sample in meter.read_service():
            print(sample.destination, sample.tx_bytes)

Reads the counters that netmeter-loader put into the kernel: no agent, no
per-packet work in this process, no privilege but the group of the pinned maps
(by default, netmeter). ``netmeter.prometheus`` publishes them.

Units: bytes and packets, as Python integers, exact up to 2**64 - 1. Times are
nanoseconds since 1970 (as of ``time.time_ns()``).

Names are ``str``. The kernel's names are any bytes but NUL; bytes that are no
UTF-8 come as lone surrogates (PEP 383, "surrogateescape") and go back the same
way, so that every name survives a round trip. To print such a name:
``name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")``.

Errors: all are ``netmeter.Error``; no function here raises anything else,
except TypeError for arguments of a wrong type. Subinterpreters cannot import
this: that is an ImportError.

Threads: everything may be called from any thread at any time. The GIL is not
held while the library works. Signals: Ctrl-C during a call is acted on when
the call returns, at most a few seconds later (see Meter.open). Fork: a
child of os.fork() may go on with every Meter, whatever the parent's other
threads were doing, and counts under the service of its parent.
"""

import dataclasses
import enum
import os
from types import TracebackType
from typing import Any, ClassVar, Dict, List, Optional, Protocol, Tuple, Type, Union

from netmeter import _netmeter

if _netmeter.in_subinterpreter():  # imported after the main one
    raise ImportError("netmeter does not support loading in subinterpreters")

__all__ = [
    "DEFAULT_PIN_DIR",
    "Error",
    "FailedPreconditionError",
    "ForwardedTraffic",
    "Health",
    "InvalidArgumentError",
    "Kind",
    "Meter",
    "Misattribution",
    "NotFoundError",
    "Path",
    "PermissionDeniedError",
    "Sample",
    "TcpConnections",
    "Transport",
    "UnavailableError",
    "Uplink",
    "UplinkCounts",
    "UplinkInterface",
    "register_process",
    "set_socket_service",
    "tag_socket",
]

__version__: str = _netmeter.__version__

DEFAULT_PIN_DIR: str = _netmeter.DEFAULT_PIN_DIR
"""The default pin directory of netmeter-loader."""


class Error(Exception):
    """An error of the meter. Its text is one line that also says what to do."""

    code: str
    """The name of the absl::StatusCode, such as "NOT_FOUND"."""

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidArgumentError(Error, ValueError):
    """INVALID_ARGUMENT: a name or a descriptor is invalid."""


class NotFoundError(Error):
    """NOT_FOUND: no meter is loaded here, or for this cgroup."""


class PermissionDeniedError(Error):
    """PERMISSION_DENIED: the process is not in the group of the pins. For a
    registration or a tag: the meter's tables are full, or ``register_by`` of the
    configuration reserves the service for another user."""


class FailedPreconditionError(Error):
    """FAILED_PRECONDITION: no service is registered; or the Meter was closed; or the
    maps are of another ABI version."""


class UnavailableError(Error):
    """UNAVAILABLE: there is no meter that this process can read at the moment, or
    ``netmeter-fds`` does not answer. Reads look again, at most once a second."""


_ERRORS: Dict[str, Type[Error]] = {
    "FAILED_PRECONDITION": FailedPreconditionError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "NOT_FOUND": NotFoundError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAVAILABLE": UnavailableError,
}


def _error(code: str, message: str) -> Error:
    """Called by _netmeter."""
    return _ERRORS.get(code, Error)(message, code)


class Kind(enum.Enum):
    """The kind of a series' owner. The values are those of the label ``kind``.

    A later 1.x may add values to Kind, Transport and Path.
    """

    SERVICE = "service"
    """A process that registered itself, or that the configuration names."""
    BINARY = "binary"
    """Any other process, by its executable."""
    UNATTRIBUTED = "unattributed"
    """Sockets that no process owns, such as the kernel's."""
    OVERFLOW = "overflow"
    """Traffic for which the table of series or of names was full."""
    PENDING = "pending"
    """A service's traffic on connections that have not named their destination yet. It
    moves to SERVICE when they do, so it may shrink."""
    UNIT = "unit"
    """A process, by its systemd unit."""
    CONTAINER = "container"
    """A process, by the short id of its container."""
    EVICTED = "evicted"
    """The counts of idle series that were evicted; the name is the kind that they had.
    A series that comes back begins at 0, and Health.evicted_series counts the evicted
    ones. No other series disappear."""
    USER = "user"
    """A process, by the id of the user that executed it, in decimal."""
    UNKNOWN = "unknown"
    """A kind that only a newer meter has. Count it in sums like any other."""


class Transport(enum.Enum):
    """The values are those of the label ``transport``."""

    OTHER = "other"
    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"
    ICMP = "icmp"
    """ICMP and ICMPv6."""
    UNKNOWN = "unknown"
    """As in Kind."""


class Path(enum.Enum):
    """The way of packets.

    Traffic of a service through a proxy on this host is counted on both paths:
    under the service on PROXY, and under the proxy on DIRECT. So only the sum
    over DIRECT is the traffic of the links.
    """

    DIRECT = "direct"
    """Over any interface but loopback."""
    PROXY = "proxy"
    """Over loopback, to or from a proxy port."""
    UNKNOWN = "unknown"
    """As in Kind."""


@dataclasses.dataclass(frozen=True)
class TcpConnections:
    """The connections of one TCP series: totals, like those of Sample.

    Connections that were open before the load are not counted.
    """

    RTT_BOUNDS_US: ClassVar[Tuple[int, ...]] = _netmeter.RTT_BOUNDS_US
    """Upper bounds of rtt_buckets in microseconds; the last bucket has none."""

    opened: int = 0
    """Opened by this host, with a complete handshake."""
    accepted: int = 0
    """Opened by a peer, with a complete handshake."""
    closed: int = 0
    """Closed ones of both; open now: opened + accepted - closed."""
    failed: int = 0
    """connect(2) without a handshake: refused, timed out or given up."""
    rtt_us: int = 0
    """The sum of all round-trip times in rtt_buckets, in microseconds."""
    rtt_buckets: Tuple[int, ...] = (0,) * (len(RTT_BOUNDS_US) + 1)
    """The number of smoothed round-trip times (RFC 6298, section 2; path direct only)
    in each bucket: one sample with about each 64th packet with payload that a CPU
    sends, and one at the end of a connection."""
    resets_sent: int = 0
    """Closed ones that a RST of the socket ended."""
    resets_received: int = 0
    """Closed ones that a RST of the peer ended. Refused ones are in failed."""
    timeouts: int = 0
    """Expirations of the retransmission timer, SYNs included."""
    retransmitted_segments: int = 0
    """Segments retransmitted for any reason, SYNs included."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One series: totals since counting began. They never decrease, except
    those of Kind.PENDING.

    Counting begins with the first ``netmeter-loader load``, and again with the
    first one after an ``unload`` or a reboot. A restart of this process
    changes nothing.
    """

    kind: Kind = Kind.UNATTRIBUTED
    name: str = ""
    """The service, binary, unit or container."""
    destination: str = ""
    """Empty if unknown."""
    transport: Transport = Transport.OTHER
    path: Path = Path.DIRECT
    uplink: str = ""
    """The uplink's name in the configuration; "other" for an interface that is in no
    uplink. Empty if the configuration has no uplinks, for path proxy, or for a socket
    in another network namespace."""
    registered: bool = False
    """The service registered itself, and so promises to publish. This is not
    checked."""

    tx_bytes: int = 0
    """Wire bytes, as on the link: IP header, transport header and payload; each segment
    of a GSO packet has its own headers; retransmissions are included. Without layer-2
    headers: add 14 bytes a packet for Ethernet."""
    rx_bytes: int = 0
    """Received bytes, counted as in tx_bytes."""
    tx_packets: int = 0
    """Packets on the link: each segment of a GSO packet is one."""
    rx_packets: int = 0
    """Received packets, counted as in tx_packets."""
    tx_payload_bytes: int = 0
    """Transport payload. Each TCP byte counts once, even if it was retransmitted."""
    rx_payload_bytes: int = 0
    """Transport payload. For TCP, the bytes that arrived in order, up to our last
    acknowledgement."""
    tx_retransmit_bytes: int = 0
    """Retransmitted TCP payload."""
    tcp: Optional[TcpConnections] = None
    """For TCP series; None if the meter counts no connections."""


@dataclasses.dataclass(frozen=True)
class Misattribution:
    """A total of what was not counted under its own name, and why.

    The sum over all series includes it. It is
    netmeter_misattributed_UNIT_total{reason="REASON"} in the metrics. A later version
    may add rows. Misattribution of ``netmeter/sample.h`` says what each row means.
    """

    unit: str
    """"packets", "names", "processes" or "sockets"."""
    reason: str
    """Such as "series_full"."""
    count: int


@dataclasses.dataclass(frozen=True)
class Health:
    """The meter's own state."""

    version: str = ""
    """The version of the loader that loaded the programs."""
    abi: str = ""
    """The ABI of the maps, such as "1.0"."""
    kernel: str = ""
    """The kernel on which it was loaded, in the format of uname -r."""
    cgroup: str = ""
    """The directory of the counted cgroup."""
    config_hash: str = ""
    """The hash of the loaded configuration, as ``netmeter-loader check`` prints it for a
    file. "": a loader that does not know this field."""
    start_time_ns: int = 0
    """When counting began, in nanoseconds of time.CLOCK_BOOTTIME."""
    load_time_ns: int = 0
    """When it was last loaded or upgraded, in nanoseconds of time.CLOCK_BOOTTIME."""
    series: int = 0
    """Slots in use, without the 21 reserved ones."""
    max_series: int = 0
    """All slots, with the reserved ones."""
    names: int = 0
    """Names in use, without the 3 reserved ones."""
    max_names: int = 0
    """All slots for names, with the reserved ones."""
    evicted_series: int = 0
    """Total of idle series that were evicted (Kind.EVICTED). If this has grown, a
    counter may be less than before because its series was evicted."""
    evicted_names: int = 0
    """Total of unused names that were forgotten."""
    misattributed: Tuple[Misattribution, ...] = ()


@dataclasses.dataclass(frozen=True)
class UplinkCounts:
    """One direction of an uplink. If Uplink.unknown is empty, interface_bytes is
    local_bytes + forwarded_bytes + layer2_header_bytes + unnamed_bytes, and
    interface_packets is local_packets + forwarded_packets + unnamed_packets."""

    interface_bytes: int = 0
    """As ``ip -s link`` counts, with layer-2 headers, while the interfaces were in this
    uplink and since counting began."""
    interface_packets: int = 0
    local_bytes: int = 0
    """Wire bytes of this host's own sockets: the sum over the samples of read_host()
    with this uplink."""
    local_packets: int = 0
    forwarded_bytes: int = 0
    """Wire bytes that this host forwarded: sent packets left by this uplink, received
    ones came in by it."""
    forwarded_packets: int = 0
    layer2_header_bytes: int = 0
    """Layer-2 headers of local and forwarded packets."""
    unnamed_bytes: int = 0
    """The rest, with its layer-2 headers: traffic without a socket. 0 if
    Uplink.unknown is not empty."""
    unnamed_packets: int = 0


@dataclasses.dataclass(frozen=True)
class UplinkInterface:
    """What one interface counted for an uplink."""

    name: str
    """Or a pattern of the configuration that matches no interface."""
    index: int = 0
    """The ifindex."""
    tx_bytes: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    rx_packets: int = 0
    tx_header_bytes: int = -1
    """The layer-2 header that the interface counts with each packet. -1: unknown."""
    rx_header_bytes: int = -1
    has_left: bool = False
    """It is in this uplink no more. What it counted before still counts."""
    not_counted: str = ""
    """Why a configured interface counts nothing here. Empty: it counts."""


@dataclasses.dataclass(frozen=True)
class ForwardedTraffic:
    """A part of the forwarded traffic of an uplink, by the other interface that the
    packets passed."""

    interface: str
    """"forwarded" if it is not known, as of a multicast."""
    client: str = ""
    """The address behind that interface, with ``forwarded_clients`` in the
    configuration. Empty: all other traffic of the interface."""
    tx_bytes: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    rx_packets: int = 0


@dataclasses.dataclass(frozen=True)
class Uplink:
    """What the interfaces of an uplink counted, and its parts: totals since counting
    began, and until ``netmeter-loader unload``."""

    name: str
    """As in Sample.uplink: the configuration's name, or "other"."""
    is_paid: bool = False
    """The configuration has the uplink, and it does not lead to clients. A sum over
    these uplinks has each forwarded packet once."""
    leads_to_clients: bool = False
    """It is one of ``forwarded_clients`` of the configuration, or was."""
    tx: UplinkCounts = UplinkCounts()
    rx: UplinkCounts = UplinkCounts()
    interfaces: Tuple[UplinkInterface, ...] = ()
    forwarded: Tuple[ForwardedTraffic, ...] = ()
    unknown: str = ""
    """Why the unnamed traffic is not known. Empty: it is known."""
    forwarded_unknown: str = ""
    """Why forwarded traffic is not measured, and so unnamed. Empty: it is measured."""
    forwarded_began_later: bool = False
    """Forwarded traffic was not measured yet when interfaces began to count. What was
    forwarded before is unnamed."""


_KINDS = {kind.value: kind for kind in Kind}
_TRANSPORTS = {transport.value: transport for transport in Transport}
_PATHS = {path.value: path for path in Path}


def _to_bytes(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError("a name is str, not %s" % type(name).__name__)
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            "the name has a surrogate that stands for no byte: %s" % error,
            "INVALID_ARGUMENT",
        ) from None


def _to_samples(rows: List[Tuple[Any, ...]]) -> List[Sample]:
    samples = []
    for kind, name, destination, transport, path, *rest in rows:
        if rest[-1] is not None:
            rest[-1] = TcpConnections(*rest[-1])
        samples.append(
            Sample(
                _KINDS[kind],
                name,
                destination,
                _TRANSPORTS[transport],
                _PATHS[path],
                *rest,
            )
        )
    return samples


class Meter:
    """Reads one meter, which netmeter-loader pinned in one directory.

    Meter.open() makes it. A read only loads memory, without a system call, unless
    its description says otherwise. A Meter holds two or three megabytes of mapped
    memory that it shares with the kernel, and no descriptors.

    A context manager: ``with`` closes it.
    """

    _meter: Optional[_netmeter.Meter] = None
    _pin_dir: bytes = b""

    def __init__(self) -> None:
        raise TypeError("use netmeter.Meter.open()")

    @classmethod
    def open(
        cls,
        pin_dir: Union[str, bytes, "os.PathLike[str]"] = DEFAULT_PIN_DIR,
        service: str = "",
        wait_for_loader: bool = False,
    ) -> "Meter":
        """Maps the pinned maps.

        pin_dir: the --pin-dir of netmeter-loader.

        service: if not empty, registers this process under that name, as by
        register(): 1 to 64 bytes without NUL.

        wait_for_loader: if true, open() and register() also succeed without a
        loaded meter.

        A Meter follows the loader. After an unload, reads raise
        UnavailableError and look for a meter at most once a second, until the
        next load. The Meter then registers its service again.

        Costs about 20 system calls. If the kernel refuses bpf(2) to this user,
        the maps come from ``netmeter-fds``; if that hangs, open() waits up to 2
        seconds.

        Raises, with wait_for_loader only the last one:
          NotFoundError            the loader has not run, or pins are missing
          PermissionDeniedError    not root and not in the group of the pins
          FailedPreconditionError  the maps are of another ABI version
          UnavailableError         netmeter-fds does not answer, or has no maps
          InvalidArgumentError     service or pin_dir is not valid
        """
        try:
            path = os.fsencode(pin_dir)
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                "pin_dir: %s" % error, "INVALID_ARGUMENT"
            ) from None
        if not isinstance(wait_for_loader, bool):
            raise TypeError(
                "wait_for_loader is bool, not %s" % type(wait_for_loader).__name__
            )
        meter = _netmeter.Meter.open(path, _to_bytes(service), wait_for_loader)
        self = cls.__new__(cls)
        self._meter = meter
        self._pin_dir = path
        return self

    def register(self, service: str) -> None:
        """Names this process.

        Sockets that it opens from now on, and those of processes that it forks,
        are counted under ``service``. Open sockets keep their name, except those
        of socket activation (LISTEN_PID and LISTEN_FDS in the environment), which
        get the first name that the process registers, until set_socket_service().
        The name ends at exec. A second call renames. The name belongs to the
        process, not to this Meter: closing the Meter changes nothing.

        Three system calls, and three for each such socket; needs no privilege.

        Raises the errors below, with wait_for_loader only the first one. In that
        mode the first read that finds the meter registers the name, and sockets
        opened before keep the executable's name. read_service() then raises a
        refusal, and tries again once a second.
          InvalidArgumentError   empty, longer than 64 bytes, or with a NUL
          NotFoundError          no meter is loaded for this process's cgroup
          PermissionDeniedError  the meter refused: its tables are full, or this
                                 user's share of them; or the name is another
                                 user's by ``register_by`` of the configuration
          Error                  RESOURCE_EXHAUSTED: no descriptor was left
        """
        self._open_meter().register(_to_bytes(service))

    def read_service(self, service: Optional[str] = None) -> List[Sample]:
        """The series of one service, in no particular order.

        service: any service, whichever process registered it; None: the service
        that this Meter registered. The list is empty until its first packet.

        Costs time in proportion to the series of the service.

        Raises:
          FailedPreconditionError  nothing is registered; or closed
          PermissionDeniedError    for None: the meter that is loaded now refuses
                                   the name (see register()), and its series
                                   belong to other processes
          UnavailableError         there is no meter that this process can read
                                   at the moment; the message says why
        """
        meter = self._open_meter()
        if service is None:
            return _to_samples(meter.read_own_service())
        return _to_samples(meter.read_service(_to_bytes(service)))

    def read_host(self) -> List[Sample]:
        """All series of the meter, in no particular order.

        Costs time in proportion to the series in use.
        Raises as read_service(), except that no registration is needed.
        """
        return _to_samples(self._open_meter().read_host())

    def read_health(self) -> Health:
        """The meter's own state. Raises as read_host()."""
        *fields, misattributed = self._open_meter().read_health()
        fields.append(tuple(Misattribution(*row) for row in misattributed))
        return Health(*fields)

    def read_uplinks(self) -> List[Uplink]:
        """The uplinks of the configuration, and those that it had before.

        Needs root or the group of the pins, and the network namespace of the
        uplinks. Makes system calls each time: it reads five maps, and asks the
        kernel for all interfaces.

        Raises:
          NotFoundError            the meter never had uplinks; the message says
                                   what to do
          FailedPreconditionError  the uplinks are those of another network
                                   namespace; or the maps are of another version;
                                   or closed
          PermissionDeniedError    not root and not in the group of the pins; or
                                   the kernel refuses bpf(2): netmeter-fds does
                                   not help here
          UnavailableError         as read_service(); or interfaces changed all
                                   the time
        """
        return [
            Uplink(
                name,
                is_paid,
                leads_to_clients,
                UplinkCounts(*tx),
                UplinkCounts(*rx),
                tuple(UplinkInterface(*row) for row in interfaces),
                tuple(ForwardedTraffic(*row) for row in forwarded),
                *rest,
            )
            for name, is_paid, leads_to_clients, tx, rx, interfaces, forwarded, *rest in (
                self._open_meter().read_uplinks()
            )
        ]

    def _families(
        self,
        scope: str,
        families: str = "default",
        omit_zeros: bool = False,
        names_without_total: bool = False,
    ) -> "List[_netmeter._Family]":
        """For netmeter.prometheus."""
        return self._open_meter().families(
            scope, families, omit_zeros, names_without_total
        )

    def close(self) -> None:
        """Frees the memory; a second call does nothing.

        Later reads raise FailedPreconditionError. Running calls of other threads
        finish normally. The process stays registered.
        """
        self._meter = None

    def __enter__(self) -> "Meter":
        self._open_meter()
        return self

    def __exit__(
        self,
        exception_type: Optional[Type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a Meter cannot be copied or pickled: open another one")

    def __repr__(self) -> str:
        return "<netmeter.Meter %s%s>" % (
            os.fsdecode(self._pin_dir),
            "" if self._meter is not None else " (closed)",
        )

    def _open_meter(self) -> _netmeter.Meter:
        meter = self._meter
        if meter is None:
            raise FailedPreconditionError(
                "the meter is closed", "FAILED_PRECONDITION"
            )
        return meter


def register_process(service: str) -> None:
    """Names this process as Meter.register() does, but without a Meter.

    For a service that leaves publishing to netmeter-exporter. It needs no right
    to read, so it need not be in the group of the maps. A meter that is loaded
    later does not get the name.

    service: 1 to 64 bytes without NUL, such as "mobilityd".

    Three system calls, and three for each socket of socket activation.

    Raises:
      InvalidArgumentError   empty, longer than 64 bytes, or with a NUL
      NotFoundError          no meter is loaded for this process's cgroup
      PermissionDeniedError  the meter refused: its tables are full, or this
                             user's share of them; or the name is another
                             user's by ``register_by`` of the configuration
      Error                  RESOURCE_EXHAUSTED: no descriptor was left
      TypeError              service is not a str
    The message says which service was refused.
    """
    _netmeter.register_process(_to_bytes(service))


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def _descriptor_of(what: str, socket: Union[int, _HasFileno]) -> int:
    if not isinstance(socket, int) and not hasattr(socket, "fileno"):
        raise TypeError(
            "a socket or a descriptor is needed, not %s" % type(socket).__name__
        )
    try:
        descriptor = socket if isinstance(socket, int) else socket.fileno()
    except (OSError, ValueError) as error:  # a closed file, or one without a descriptor
        raise InvalidArgumentError(
            "%s: %s" % (what, error), "INVALID_ARGUMENT"
        ) from None
    if not isinstance(descriptor, int):
        raise TypeError("fileno() is %s" % type(descriptor).__name__)
    if not -1 <= descriptor < 2**31:
        raise InvalidArgumentError(
            "%s: %d is no descriptor" % (what, descriptor), "INVALID_ARGUMENT"
        )
    return descriptor


def tag_socket(socket: Union[int, _HasFileno], name: str) -> None:
    """Names the destination of one socket's traffic, with priority over rules.

    socket: a socket.socket, anything else with fileno(), or a descriptor.
    name: 1 to 64 bytes without NUL, such as "streamer".

    Takes effect with the socket's next packet, so tag before connect(). A tag
    has an effect if the kind of the socket's owner has destinations, which is the
    case unless ``destinations_of`` of the configuration excludes it. One system
    call; needs no Meter and no privilege.

    Raises:
      InvalidArgumentError   not a valid name, or not an (open) socket of IP
      NotFoundError          no meter is loaded for this process's cgroup
      PermissionDeniedError  the meter refused: its tables are full, or grow
                             at this moment
      TypeError              not a socket or a descriptor; name is not a str
    Errors of fileno() pass through, except OSError and ValueError of a closed
    file, which become an InvalidArgumentError.
    """
    _netmeter.tag_socket(_descriptor_of("tag the socket", socket), _to_bytes(name))


def set_socket_service(socket: Union[int, _HasFileno], name: str) -> None:
    """Counts one socket under another service than its process.

    For several services in one process, and for inherited sockets, such as
    those of socket activation.

    socket: a socket.socket, anything else with fileno(), or a descriptor.
    name: 1 to 64 bytes without NUL, such as "mobilityd".

    Takes effect with the socket's next packet, so call it before connect(); on
    a listening socket, also for the sockets that accept() returns from it.
    Meter.read_service(name) reads the counts. One system call, or two in a
    process that socket activation started; needs no Meter and no privilege.
    Raises as tag_socket().
    """
    _netmeter.set_socket_service(
        _descriptor_of("name the socket's service", socket), _to_bytes(name)
    )


os.register_at_fork(
    before=_netmeter.before_fork,
    after_in_parent=_netmeter.after_fork_in_parent,
    after_in_child=_netmeter.after_fork_in_child,
)
