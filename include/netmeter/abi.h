/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The layout of the maps that netmeter-loader pins, and the numbers of the
 * control channel. Plain C: the BPF programs, the loader, the library and any
 * other reader include this one file.
 *
 * A reader maps `info`, `names`, `stats`, `counters` and `tcp` read-only, and needs
 * nothing else for the series; the maps of uplinks are below.
 *
 *   sum of counters[slot * info->cells_per_series + i],
 *     for each i below cells_per_series                 one series
 *   names[cell->service], names[cell->destination]      its names
 *   tcp[slot]                                           its connections
 *
 * This is the first extent of each table. If the tables have grown, a slot or an id
 * beyond it is in another map: see NM_MAX_EXTENTS.
 *
 * Slots go from 1 to below NM_SLOT_FIRST + stats->slots_allocated. If all cells of a
 * slot have service 0, nothing has been counted for the slot yet.
 *
 * Several slots may have the same names after suffixes are removed: add them up.
 *
 * A name of kind NM_KIND_WIRE is stored as it was on the wire: nm_name.encoding says
 * how it is encoded, and info->suffixes what to remove from its end.
 *
 * Slots and names that are idle are reused. stats->moves shows when: it is odd while
 * a slot changes its series, and even, with a new number, after that. So a reader must
 *
 *   1. read stats->moves until it is even,
 *   2. if it differs from the previous read, forget which slot is which series,
 *   3. read,
 *   4. if stats->moves has changed, begin again.
 *
 * A load that keeps the maps also raises stats->moves when it writes info, because
 * the names on the wire are interpreted with it.
 *
 * With these steps the sum over all series never decreases, and counts no byte twice.
 *
 * These maps are frozen: no user, not even root, can write them; the programs keep
 * counting. All integers are in host byte order. The layout is frozen for 1.x: readers
 * of another major version must refuse. A new minor version may add fields in the
 * reserved space of nm_info and nm_stats, or at their ends, and raises NM_ABI_MINOR.
 * Readers use NM_ABI_MINOR to distinguish a 0 from a field that an older loader does not
 * count. Both structs may be longer than a reader or a loader knows, or shorter: of at
 * least NM_INFO_LEAST_BYTES and NM_STATS_LEAST_BYTES. info->info_size and stats_size are
 * what the last loader knew; what is beyond is 0 or old. All other values keep their
 * size.
 */
#ifndef NETMETER_ABI_H_
#define NETMETER_ABI_H_

#ifndef __BPF__
#include <stdint.h>
typedef uint8_t nm_u8;
typedef uint16_t nm_u16;
typedef uint32_t nm_u32;
typedef uint64_t nm_u64;
#else
typedef unsigned char nm_u8;
typedef unsigned short nm_u16;
typedef unsigned int nm_u32;
typedef unsigned long long nm_u64;
#endif

#ifdef __cplusplus
#define NM_STATIC_ASSERT(condition) static_assert(condition, #condition)
#else
#define NM_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define NM_MAGIC 0x314d54454e42494cULL /* "LIBNETM1" in memory */
#define NM_ABI_MAJOR 1
#define NM_ABI_MINOR 0

#define NM_NAME_BYTES 64

/*
 * Control channel: setsockopt(fd, NM_SOL, option, name, length), with 1 to
 * NM_NAME_BYTES bytes and no NUL. NM_REGISTER names the calling process, NM_TAG the
 * destination of the socket fd, NM_SERVICE the service that the socket belongs to.
 * If no meter is loaded, the kernel returns ENOPROTOOPT (EOPNOTSUPP on Unix sockets).
 * EPERM means that a meter is loaded but refused the call:
 *   permanently: the name is empty, too long or has a NUL; the option is unknown;
 *     or NM_TAG or NM_SERVICE on a socket that is no IP socket, or that the meter
 *     does not know, such as one from outside its cgroup
 *   by the configuration: the service is reserved for another user (register_by)
 *   until there is room: the table of names or, for NM_REGISTER, of processes is
 *     full; or this user, if not root, has added too many names
 */
#define NM_SOL 0x6e74
#define NM_REGISTER 1
#define NM_TAG 2
#define NM_SERVICE 3

enum nm_kind {
  NM_KIND_NONE = 0,
  NM_KIND_SERVICE = 1,      /* registered, or named by its command line or the
                               configuration */
  NM_KIND_BINARY = 2,       /* any other process, by its executable */
  NM_KIND_UNATTRIBUTED = 3, /* a socket that no process owns */
  NM_KIND_OVERFLOW = 4,     /* the table of series or of names was full */
  NM_KIND_DESTINATION = 5,  /* for names only, never for a series */
  NM_KIND_PENDING = 6,   /* traffic of a kind that has destinations, until the
                               destination of the connection is known. Such a
                               series shrinks, and one cell may go below 0: only
                               the sum over cells (mod 2^64) has a meaning */
  NM_KIND_WIRE = 7,      /* for names only: a destination as it was in
                               :authority, SNI or Host, with its port and suffix */
  NM_KIND_UNIT = 8,      /* a process, by its systemd unit */
  NM_KIND_CONTAINER = 9, /* a process, by the short id of its container */
  NM_KIND_EVICTED = 10,  /* for series only: totals of idle series whose slots
                               were reclaimed. `destination` is their former kind,
                               not a name */
  NM_KIND_UPLINK = 11,   /* for names only: the name of an uplink */
  NM_KIND_USER =
      12, /* a process, by the user id that executed it, in decimal */
};

enum nm_transport {
  NM_TRANSPORT_OTHER = 0,
  NM_TRANSPORT_TCP = 1,
  NM_TRANSPORT_UDP = 2,
  NM_TRANSPORT_SCTP = 3,
  NM_TRANSPORT_ICMP = 4, /* ICMP and ICMPv6 */
  NM_TRANSPORT_COUNT = 5,
};

enum nm_path {
  NM_PATH_DIRECT = 0, /* over any interface except loopback */
  NM_PATH_PROXY = 1,  /* over loopback, to or from a proxy port */
  NM_PATH_COUNT = 2,
};

/*
 * The byte `path` of a cell, of nm_tcp and of nm_series_key: enum nm_path in its
 * low half, the number of the uplink in its high half.
 *
 *   0                    no uplink: the configuration has none, the packet passed a
 *                        proxy, its socket is in another network namespace, or it
 *                        was counted before uplinks were configured
 *   1 to NM_MAX_UPLINKS  names[info->uplinks[number - 1]]
 *   NM_UPLINK_OTHER      an interface that is in no uplink
 */
#define NM_MAX_UPLINKS 14
#define NM_UPLINK_NONE 0
#define NM_UPLINK_OTHER 15
#define NM_UPLINK_SHIFT 4
#define NM_PATH_OF(byte) ((byte)&0xf)
#define NM_UPLINK_OF(byte) ((byte) >> NM_UPLINK_SHIFT)

/* nm_name.encoding */
#define NM_ENCODING_RAW 0
#define NM_ENCODING_HUFFMAN 1 /* RFC 7541, section 5.2 */

/* Bits of nm_cell.flags. */
/* The service registered itself, and should publish its own series. Not verified. */
#define NM_FLAG_REGISTERED 1

/* Name 0 is the empty name. */
#define NM_NAME_EMPTY 0
#define NM_NAME_UNATTRIBUTED 1
#define NM_NAME_OVERFLOW 2
#define NM_NAME_FIRST 3

/*
 * Slot 0 is no series: its cells are for the programs' own use. The next slots are the
 * reserved series, which therefore always have room. Slots from NM_SLOT_FIRST on are
 * allocated to other series.
 */
#define NM_SLOT_RESERVED(name, transport, path)                         \
  (1 +                                                                  \
   (((name)-NM_NAME_UNATTRIBUTED) * NM_TRANSPORT_COUNT + (transport)) * \
       NM_PATH_COUNT +                                                  \
   (path))
#define NM_SLOT_FIRST 21
#define NM_MAX_SERIES_LIMIT 65535

/*
 * `counters`, `tcp` and `names` have up to NM_MAX_EXTENTS extents, pinned as counters,
 * counters_1 and so on. The first extent has the slots, or ids, below first_series
 * (first_names). Each further extent has as many as all extents before it. Extents
 * never move. info has their number before a slot of a new extent is allocated.
 */
#define NM_MAX_EXTENTS 4
static inline nm_u32 nm_extent_start(nm_u32 first, nm_u32 extent) {
  return extent ? first << (extent - 1) : 0;
}
static inline nm_u32 nm_extent_size(nm_u32 first, nm_u32 extent) {
  return extent ? first << (extent - 1) : first;
}

/*
 * One CPU's part of one series, in one cache line. The last cell of a series is shared:
 * all CPUs together add to it. A cell is in use if its service is not 0. Its first
 * eight bytes, except flags, change only while nm_stats.moves is odd. Counters only
 * grow, until `netmeter-loader unload` or a reboot, or until the series is idle and its
 * slot is reclaimed: then its totals are in the series of kind evicted. Counters of
 * kind pending also shrink.
 */
struct nm_cell {
  nm_u16 service;     /* index in names */
  nm_u16 destination; /* index in names, 0: not known */
  nm_u8 transport;    /* enum nm_transport */
  nm_u8 path;         /* enum nm_path and the uplink: NM_PATH_OF() */
  nm_u8 kind;         /* enum nm_kind */
  nm_u8 flags;        /* NM_FLAG_* */
  nm_u64 tx_bytes;    /* wire bytes: from the IP header on, as on the link */
  nm_u64 rx_bytes;
  nm_u64 tx_packets; /* on the link: a GSO packet counts as its segments */
  nm_u64 rx_packets;
  nm_u64 tx_payload_bytes; /* TCP: each byte once */
  nm_u64 rx_payload_bytes; /* TCP: in order and acknowledged by us */
  nm_u64 tx_retransmit_bytes;
};
NM_STATIC_ASSERT(sizeof(struct nm_cell) == 2 * 2 + 4 * 1 + 7 * 8);

/* Upper bounds of nm_tcp.rtt_buckets in microseconds; the last bucket has none. */
#define NM_RTT_BOUNDS_US \
  { 1000, 5000, 20000, 50000, 100000, 250000, 500000, 750000, 1500000 }
#define NM_RTT_BUCKETS 10

/*
 * The connections of one TCP series. All CPUs share it, because such events are rare.
 * Connections that were open before the load are not counted.
 */
struct nm_tcp {
  nm_u16 service; /* as in nm_cell, kind 0: not in use */
  nm_u16 destination;
  nm_u8 transport;
  nm_u8 path;
  nm_u8 kind;
  nm_u8 flags;
  nm_u64 opened; /* completed handshakes of connections that this host opened */
  nm_u64 accepted; /* ... of connections that a peer opened */
  nm_u64 closed;   /* those of the above that ended */
  nm_u64 failed;   /* connect(2) without a handshake: refused, timed out */
  nm_u64 rtt_us;   /* sum of all that rtt_buckets counts, in microseconds */
  /* The kernel's smoothed round-trip times (RFC 6298) by size: a sample with about
     each 64th packet with payload that a CPU sends, and at each connection's end. Path
     direct only. */
  nm_u64 rtt_buckets[NM_RTT_BUCKETS];
  nm_u64 resets_sent;     /* those of `closed` that this host ended by a RST */
  nm_u64 resets_received; /* ... that the peer ended by a RST */
  nm_u64 timeouts;        /* of the retransmission timer, except a final one */
  nm_u64 retransmitted_segments;
};
NM_STATIC_ASSERT(sizeof(struct nm_tcp) ==
                 2 * 2 + 4 * 1 + 5 * 8 + NM_RTT_BUCKETS * 8 + 4 * 8);

struct nm_name {
  nm_u16 length;  /* 0: not in use */
  nm_u8 kind;     /* enum nm_kind */
  nm_u8 encoding; /* NM_ENCODING_* */
  nm_u16 user;    /* for the programs: the user whose quota it uses */
  nm_u16 pad;
  /* `length` bytes, then NUL. No byte of them is NUL, except in NM_KIND_WIRE, which
     is stored as a connection sent it: the Huffman code of "00" begins with a NUL. */
  char bytes[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_name) == 2 + 2 * 1 + 2 * 2 + NM_NAME_BYTES);

/* Losses and fill levels. All are counters, except those marked as levels. */
struct nm_stats {
  /* Slots ever taken from the free list, or more: slots in use are below
     NM_SLOT_FIRST + slots_allocated. */
  nm_u64 slots_allocated;
  nm_u64 series_used;    /* a level; without the reserved series */
  nm_u64 names_used;     /* a level; without the reserved names */
  nm_u64 series_full;    /* packets counted as overflow: no free slot */
  nm_u64 names_full;     /* attempts to add a name that found no room: it became
                              overflow, or the call was refused */
  nm_u64 processes_full; /* processes named later or never: table full */
  nm_u64 sockets_claimed;   /* sockets that got an entry of the socket table */
  nm_u64 sockets_freed;     /* ... and released it */
  nm_u64 socket_collisions; /* sockets kept in socket storage: entries taken */
  nm_u64 storage_failed_packets; /* unattributed: no memory for storage */
  nm_u64 storage_failed_sockets; /* ... at their creation: they have no owner */
  nm_u64 header_errors;          /* packets with a truncated header */
  nm_u64 unowned_sockets;   /* sockets without an owner (kernel, before load) */
  nm_u64 registrations;     /* successful NM_REGISTER calls */
  nm_u64 refused_controls;  /* NM_SOL calls that were refused */
  nm_u64 connections_named; /* by the first bytes that they sent */
  nm_u64 connections_unnamed;     /* ended, or sent 16 KiB, without a name */
  nm_u64 destinations_over_quota; /* names refused: the service has too many */
  nm_u64 names_over_quota;        /* names refused: the user has too many */
  nm_u64
      series_over_quota; /* packets counted as overflow: the user has too many
                           series */
  nm_u64 moves;          /* changes of slots and names; odd during a change. See
                           the top of this file */
  nm_u64 series_evicted; /* idle series whose totals went into kind evicted */
  nm_u64 names_evicted;  /* names that nothing used any more */
  nm_u64 sweeping;       /* not 0: the loader is looking for idle series */
  /* Heads of series, written after the head itself. While it does not change, no slot
     without a head has got one. 0: an older version, which does not count. */
  nm_u64 heads;
  /* Slots put into the queue of free slots, each once: all slots below
     NM_SLOT_FIRST + slots_made have been in it. */
  nm_u64 slots_made;
  nm_u64 names_made; /* ... names, from NM_NAME_FIRST on */
  /* Open connections that netfilter redirects to a proxy of this host. */
  nm_u64 connections_redirected;
  nm_u64 reserved[36];
};
NM_STATIC_ASSERT(sizeof(struct nm_stats) == 28 * 8 + 36 * 8);

/* Bits of nm_info.features: optional parts that are active. */
#define NM_FEATURE_PROCESS_TRACKING (1ULL << 0) /* exec, fork, exit */
#define NM_FEATURE_SOCKET_TABLE (1ULL << 1)     /* sockops: hot path */
#define NM_FEATURE_CONTROL (1ULL << 2)          /* setsockopt channel */
#define NM_FEATURE_GROUP_ACCESS (1ULL << 3)     /* pins readable by group */
#define NM_FEATURE_MPTCP (1ULL << 4)            /* subflows have owners */
#define NM_FEATURE_CGROUP_NAMES (1ULL << 5)     /* units, containers */
#define NM_FEATURE_FORWARDED (1ULL << 6)        /* forwarded, by uplink */

/* The fields that 1.0.0 has. */
#define NM_INFO_LEAST_BYTES 1040
#define NM_STATS_LEAST_BYTES 224

#define NM_VERSION_BYTES 32
#define NM_KERNEL_BYTES 64
#define NM_PATH_BYTES 256
#define NM_REASONS_BYTES 320
#define NM_SUFFIXES_BYTES 192

struct nm_info {
  nm_u64 magic;
  nm_u16 abi_major;
  nm_u16 abi_minor;
  nm_u32 info_size; /* sizeof(struct nm_info) of the loader */
  nm_u32 cell_size;
  nm_u32 name_size;
  nm_u32 stats_size;
  nm_u32 cells_per_series; /* one for each possible CPU, and the shared cell */
  nm_u32 max_series;       /* slots, reserved ones included */
  nm_u32 max_names;
  nm_u32 max_processes;
  nm_u32 max_sockets;
  nm_u64 created_ns; /* CLOCK_BOOTTIME of the load that made the maps */
  nm_u64 loaded_ns;  /* CLOCK_BOOTTIME of the last load or upgrade */
  nm_u64 features;   /* NM_FEATURE_* */
  nm_u64 build_id;   /* of the BPF object */
  nm_u64 config_id;  /* of the configuration */
  nm_u64 cgroup_id;
  nm_u32 closed;       /* not 0: unloaded or replaced, open again */
  nm_u32 fold_unknown; /* not 0: destinations without a suffix are "other" */
  char version[NM_VERSION_BYTES]; /* of the loader */
  char kernel[NM_KERNEL_BYTES];   /* uname -r at load */
  char cgroup[NM_PATH_BYTES];
  char reasons[NM_REASONS_BYTES]; /* why optional parts are off, a line each */
  /* Suffixes of destinations on the wire, one line each. */
  char suffixes[NM_SUFFIXES_BYTES];
  nm_u32 tcp_size; /* sizeof(struct nm_tcp) of the loader */
  /* How the programs add to a CPU's own cell, for `status`: 1 + enum nm_adds of
     bpf/config.h. 0: unknown. */
  nm_u8 adds_received;
  nm_u8 adds_sent;
  /* The names of the uplinks, by NM_UPLINK_OF(). 0: none. An uplink keeps its
     number. */
  nm_u16 uplinks[NM_MAX_UPLINKS];
  /* Not 0: tools show kB instead of KiB, unless told otherwise. */
  nm_u8 decimal_sizes;
  nm_u8 series_extents; /* of counters and tcp: see nm_extent_start() */
  nm_u32 first_series;  /* slots of the first extent */
  nm_u32 first_names;
  nm_u8 names_extents;
  nm_u8 pad;
  /* Bits 1 << NM_UPLINK_OF() of the configured uplinks that do not lead to clients of
     this host. A sum over these has forwarded packets once. */
  nm_u16 paid_uplinks;
  /* Those that do, with NM_UPLINK_OTHER, and with those that the configuration had
     before. */
  nm_u16 client_uplinks;
  nm_u8 pad_too[6];
  /* Inode of the network namespace that has the uplinks. 0: none yet. */
  nm_u64 uplinks_network;
  /* CLOCK_BOOTTIME since when forwarded packets are counted. An interface whose stay
     began earlier has forwarded packets without a name. 0: they are not counted. */
  nm_u64 forwarded_since_ns;
  /* The hash of the configuration, as `netmeter-loader check` prints it for a file: the
     same on each host. 0: a loader that does not know this field. */
  nm_u64 config_hash;
  nm_u64 reserved[15];
};
NM_STATIC_ASSERT(sizeof(struct nm_info) ==
                 8 + 2 * 2 + 9 * 4 + 6 * 8 + 2 * 4 + NM_VERSION_BYTES +
                     NM_KERNEL_BYTES + NM_PATH_BYTES + NM_REASONS_BYTES +
                     NM_SUFFIXES_BYTES + 4 + 6 * 1 + 2 * NM_MAX_UPLINKS +
                     2 * 4 + 2 * 2 + 6 + 3 * 8 + 15 * 8);

/*
 * Uplinks. These are hash maps, and `uplink_names` a trie, so a reader of them calls
 * bpf(2): it opens a pin by BPF_OBJ_GET with BPF_F_RDONLY. The group may read the pins,
 * and only programs and the loader write the maps. Before Linux 5.19, if
 * kernel.unprivileged_bpf_disabled is set, only root may call bpf(2). Each load makes
 * `uplink_names` and `interfaces` anew, so open them for each read. An ifindex is one of
 * the network namespace info->uplinks_network.
 */

/* Key of `uplink_names`: the name of an interface with its NUL, or the beginning of
 * names. The value, a nm_u32, is the number of its uplink. The longest match counts. An
 * interface without a match is in NM_UPLINK_OTHER. */
#define NM_INTERFACE_BYTES 16 /* IFNAMSIZ */
struct nm_uplink_key {
  nm_u32 bits; /* of `name`; in a lookup: all */
  char name[NM_INTERFACE_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_uplink_key) == 4 + NM_INTERFACE_BYTES);

/* The counters of an interface, as in struct rtnl_link_stats64: with layer-2 headers. */
struct nm_interface_counts {
  nm_u64 tx_bytes;
  nm_u64 rx_bytes;
  nm_u64 tx_packets;
  nm_u64 rx_packets;
};
NM_STATIC_ASSERT(sizeof(struct nm_interface_counts) == 4 * 8);

/*
 * Key and value of `interfaces`: one stay of an interface in an uplink. The uplink has
 * what the interface counted between `begin` and `end`, or `begin` and now. A load that
 * moves an interface ends a stay and begins another one. The two overlap by what passes
 * during the load, so that an uplink's interfaces count no less than its series, except
 * for sent packets that were still in a queue of the link.
 * A program that sees an unknown interface adds its first stay, which begins at 0. So an
 * interface that is renamed into another uplink has two stays that have not ended, until
 * the meter is loaded with --restart: what it counted before it was renamed is not known.
 * Two open stays also remain if a load is killed; the next load ends one, and marks both
 * as `interrupted`. To divide what an interface counted, give the earlier stay what both
 * have.
 * An interface that no program has seen has no stay yet, and counts from 0 for the uplink
 * of its name. The stay of an interface that has gone does not end. A load drops some of
 * these in NM_UPLINK_OTHER if there are thousands, but not all.
 */
struct nm_interface_key {
  nm_u32 ifindex;
  nm_u16 uplink; /* number */
  nm_u16 stay;   /* 0: the first of this interface in this uplink */
};
NM_STATIC_ASSERT(sizeof(struct nm_interface_key) == 4 + 2 * 2);
struct nm_interface {
  char name[NM_INTERFACE_BYTES];
  struct nm_interface_counts begin; /* of the interface, when the stay began */
  struct nm_interface_counts end;   /* ... and ended */
  nm_u64 began_ns;                  /* CLOCK_BOOTTIME */
  nm_u64 ended_ns;                  /* ... 0: it has not */
  /* The layer-2 header that the interface counted with each packet, in bytes, if the
     stay has ended. */
  nm_u8 tx_header;
  nm_u8 rx_header;
  /* 1: a load was killed while this stay and one in another uplink were open, and the
     interface counted before the next load: the split of that is not known. */
  nm_u8 interrupted;
  nm_u8 reserved[13];
};
#define NM_HEADER_UNKNOWN 255
NM_STATIC_ASSERT(sizeof(struct nm_interface) ==
                 NM_INTERFACE_BYTES + 2 * 4 * 8 + 2 * 8 + 3 + 13);

/* Key and value of `forwarded_by`: from one interface to another. `forwarded` has the
 * packets for which that was full, by uplinks alone: its key is NM_FORWARDED_INDEX(). For
 * a multicast, which may leave by several interfaces, `in` is 0 and its uplink
 * NM_UPLINK_NONE. Wire bytes, without layer-2 headers. A value for each CPU: add them
 * up. */
#define NM_FORWARDED_INDEX(in, out) ((in) << 4 | (out))
#define NM_FORWARDED_ENTRIES 256
struct nm_forwarded_key {
  nm_u32 in; /* ifindex */
  nm_u32 out;
  nm_u32 uplinks; /* NM_FORWARDED_INDEX() of their numbers */
};
NM_STATIC_ASSERT(sizeof(struct nm_forwarded_key) == 3 * 4);
struct nm_forwarded {
  nm_u64 bytes;
  nm_u64 packets;
};
NM_STATIC_ASSERT(sizeof(struct nm_forwarded) == 2 * 8);

/* Key and value of `clients`: an address behind this host, and an uplink that its packets
 * left or came in by. They are a part of those in `forwarded_by`. A value for each
 * CPU. */
struct nm_client_key {
  nm_u8 address[16]; /* IPv4: ::ffff:10.0.0.1 */
  nm_u32 interface;  /* ifindex, on the side of the address */
  nm_u32 uplink;     /* number, on the other side */
};
NM_STATIC_ASSERT(sizeof(struct nm_client_key) == 16 + 2 * 4);
struct nm_client {
  nm_u64 tx_bytes; /* sent over the uplink */
  nm_u64 rx_bytes;
  nm_u64 tx_packets;
  nm_u64 rx_packets;
};
NM_STATIC_ASSERT(sizeof(struct nm_client) == 4 * 8);

/* Distinguishes a special series from an ordinary one whose key is otherwise equal. */
enum nm_special {
  NM_SPECIAL_NONE = 0,
  NM_SPECIAL_PENDING = 1, /* kind pending */
  NM_SPECIAL_EVICTED = 2, /* kind evicted */
};

/* Key of `series`, for people and for the loader; a reader needs only the cells. */
struct nm_series_key {
  nm_u16 service;
  nm_u16 destination;
  nm_u8 transport;
  nm_u8 path;
  nm_u8 special; /* enum nm_special */
  nm_u8 pad;
};
NM_STATIC_ASSERT(sizeof(struct nm_series_key) == 2 * 2 + 4 * 1);

struct nm_series_value {
  nm_u32 slot;
  nm_u16 kind;
  nm_u16 user; /* for the programs: the user whose quota it uses */
  char service_name[NM_NAME_BYTES];
  char destination_name[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_series_value) ==
                 4 + 2 * 2 + 2 * NM_NAME_BYTES);

#endif /* NETMETER_ABI_H_ */
