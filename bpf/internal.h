/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Shared by the BPF programs and the loader only: the configuration, the values of the
 * maps that only root sees, and the loader's commands.
 */
#ifndef NETMETER_BPF_INTERNAL_H_
#define NETMETER_BPF_INTERNAL_H_

#include "netmeter/abi.h"

#define NM_MAX_PROXY_PORTS 8
#define NM_MAX_RULES 64
#define NM_MAX_SNI_PORTS 16
#define NM_MAX_HTTP_PORTS 16

/* Limits on destination names learned from sent bytes: per service, and per program,
 * unit or container that is not a service. There are many more of the latter. */
#define NM_MAX_WIRE_NAMES 256
#define NM_MAX_WIRE_NAMES_OF_OTHERS 64

/* Each user other than root may add one NM_USER_PART-th of the names and of the series.
 * All of them together leave the same part to root. The least is NM_USER_LEAST. */
#define NM_USER_PART 8
#define NM_USER_LEAST 16
/* The low bits of the uid tell users apart. A power of two. */
#define NM_USER_BUCKETS 1024

/* The value of nm_owner.user for a uid. */
static inline nm_u16 nm_user_of_uid(nm_u32 uid) {
  return uid ? (nm_u16)(1 + (uid & (NM_USER_BUCKETS - 1))) : 0;
}

/* After this much payload, a connection no longer waits for its name. */
#define NM_MAX_PENDING_BYTES 16384

/* How programs other than tracing programs may look at the current task. */
enum nm_task_access {
  NM_TASK_NONE = 0,  /* 5.10 with lockdown=confidentiality */
  NM_TASK_BTF = 1,   /* bpf_get_current_task_btf(), 5.11 and newer */
  NM_TASK_PROBE = 2, /* bpf_get_current_task() and bpf_probe_read_kernel() */
};

/* How a packet program may find the network namespace of a socket. */
enum nm_network_access {
  NM_NETWORK_NONE = 0,   /* lockdown=confidentiality before Linux 6.17 */
  NM_NETWORK_COOKIE = 1, /* bpf_get_netns_cookie(), 6.17 and newer */
  NM_NETWORK_PROBE = 2,  /* bpf_probe_read_kernel() of the socket */
};

/* How a program adds to the cell of its own CPU: add.bpf.h. */
enum nm_adds {
  /* Atomically: always possible. */
  NM_ADDS_ATOMIC = 0,
  /* Plainly, if no task can preempt another one in a program: kernels without
   * preemption, and kernels in which migrate_disable() disables it (up to 5.10). */
  NM_ADDS_PLAIN = 1,
  /* Plainly, after an exchange (5.12 and newer) has shown that no other run is adding:
   * one atomic operation instead of one for each add. */
  NM_ADDS_CLAIMED = 2,
};

/* Which paths packets may take: the full path (count.bpf.h) or the fast path
 * (fast_path.bpf.h). */
enum nm_ways {
  NM_WAYS_BOTH = 0,
  NM_WAYS_FULL = 1, /* tests: all packets take the full path */
  NM_WAYS_FAST = 2, /* tests: only packets on the fast path are counted */
};

/* What may name an unregistered process, ahead of its executable. */
enum nm_source {
  NM_SOURCE_COMMAND_LINE = 0,
  NM_SOURCE_SERVICE_LIST = 1, /* executables, and units of the configuration */
  NM_SOURCE_UNIT = 2,
  NM_SOURCE_CONTAINER = 3,
  NM_SOURCE_USER = 4,
  NM_SOURCES = 5,
};

/* The bit of a port in nm_config.proxy_port_bits: not the same for 443 and 8443. */
#define NM_PORT_BIT(port) ((port) >> 1 & 63)

/* Set between open and load. The verifier then removes unused code. */
struct nm_config {
  nm_u32 cells_per_series;
  nm_u32 shared_cell;    /* number of the shared cell, which is the last */
  nm_u32 series_extents; /* of counters and tcp; 0: one */
  nm_u32 first_series;   /* slots of the first one */
  nm_u32 names_extents;
  nm_u32 first_names;
  nm_u32 ingress_adds; /* enum nm_adds: atomic, or not */
  nm_u32 egress_adds;  /* the same for nm_egress; its variants use the others */
  nm_u32 max_series;
  nm_u32 max_names;
  nm_u32 max_user_names; /* quota of one user; root has none */
  nm_u32 max_user_series;
  nm_u32 socket_mask; /* entries of the socket table - 1: a power of two - 1 */
  nm_u32
      socket_half; /* half of them: from a socket's first entry to its second */
  nm_u32 destination_kinds; /* that have destinations: bits 1 << enum nm_kind */
  nm_u32 registrants;       /* not 0: some services are restricted */
  nm_u32 rules_count;
  /* The ports of the rules that may match a packet other than TCP's: the first port, and
   * the number of ports from it on. 0: no such rule. */
  nm_u32 rules_port_first;
  nm_u32 rules_ports;
  nm_u32 task_access;   /* enum nm_task_access */
  nm_u32 tgid_helper;   /* bpf_get_current_pid_tgid() works in setsockopt */
  nm_u32 untracked;     /* no tracing program sees exec, fork and exit */
  nm_u32 mptcp;         /* bpf_skc_to_mptcp_sock() exists */
  nm_u32 reads_errors;  /* sk_err of a TCP socket can be read */
  nm_u32 reads_kernel;  /* tracing programs may call bpf_probe_read_kernel() */
  nm_u32 reads_cgroups; /* cgroups are looked at, for units and containers */
  nm_u32 ranks[NM_SOURCES]; /* lower if earlier in names_from; 0: off */
  nm_u32 ways;              /* enum nm_ways */
  nm_u32 proxy_ports_count;
  nm_u16 proxy_ports[NM_MAX_PROXY_PORTS]; /* host byte order */
  nm_u64 proxy_port_bits; /* 1 << NM_PORT_BIT(port) of each: has_proxy_port() */
  nm_u32 sni_ports_count;
  nm_u16 sni_ports[NM_MAX_SNI_PORTS]; /* host byte order */
  nm_u32 http_ports_count;
  nm_u16 http_ports[NM_MAX_HTTP_PORTS]; /* host byte order */
  nm_u32 uplinks;       /* not 0: packets count by uplink: uplink.bpf.h */
  nm_u32 reads_devices; /* the kernel's data of a packet can be read */
  nm_u32 network; /* the namespace that has the uplinks: nm_socket.network */
  nm_u32 network_access; /* enum nm_network_access */
};

/* Key of `name_ids`. */
struct nm_name_key {
  nm_u8 kind;     /* enum nm_kind */
  nm_u8 encoding; /* NM_ENCODING_* */
  nm_u16 length;
  nm_u32 pad;
  char bytes[NM_NAME_BYTES]; /* 0 after length */
};
NM_STATIC_ASSERT(sizeof(struct nm_name_key) == 8 + NM_NAME_BYTES);

/* Bit of nm_process.flags that no series has: the process executed a script through
 * env(1), and env(1) then executes the interpreter. */
#define NM_PROCESS_BY_ENV 128

/* Value of `processes`: the name of a process. Key: tgid. */
struct nm_process {
  nm_u16 name;  /* index in names; 0: none yet, because it has no socket */
  nm_u8 kind;   /* enum nm_kind */
  nm_u8 flags;  /* NM_FLAG_*, NM_PROCESS_* */
  nm_u32 stamp; /* if untracked: process_stamp(); else 0 */
  char bytes[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_process) == 2 + 2 * 1 + 4 + NM_NAME_BYTES);

/* Key of `nm_units`: the beginning of a unit's name. */
struct nm_unit_key {
  nm_u32 bits; /* of `unit`; in a lookup: all */
  char unit[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_unit_key) == 4 + NM_NAME_BYTES);

struct nm_unit_service {
  nm_u32 rest;      /* 1: the service is the text between this and ".service" */
  nm_u32 rest_from; /* offset of the text that '*' matches; also 0 if none */
  char name[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_unit_service) == 2 * 4 + NM_NAME_BYTES);

/* Value of `nm_registrants`: who may register this service name, besides root. */
enum nm_registrant_kind {
  NM_REGISTRANT_UID = 1,
  NM_REGISTRANT_GID = 2,
};
struct nm_registrant {
  nm_u32 kind; /* enum nm_registrant_kind */
  nm_u32 id;
};
NM_STATIC_ASSERT(sizeof(struct nm_registrant) == 2 * 4);

/* The state of a socket between two packets. */
struct nm_socket {
  nm_u64 word;       /* low 48 bits of the cookie, then the slot; see below */
  nm_u32 tx_end;     /* TCP: highest end sequence handed to the egress hook */
  nm_u32 rx_ack;     /* TCP: highest acknowledgement number that we sent */
  nm_u32 rx_fin;     /* TCP: end sequence of the peer's FIN */
  nm_u8 tx_valid;    /* tx_end is set */
  nm_u8 rx_valid;    /* rx_ack is set */
  nm_u8 rx_fin_seen; /* rx_fin is set; written by ingress only */
  nm_u8 rx_fin_counted; /* rx_ack is past the FIN */
  nm_u8 wire_protocol;  /* enum nm_wire_protocol; not NONE: counts as pending */
  nm_u8 rx_rst_seen;    /* the peer has sent a RST; written by ingress only */
  nm_u8 proxied;        /* although its ports do not tell: is_noted() */
  nm_u8 pad;
  /* Its namespace, if there are uplinks: the inode, or the low bits of the cookie if
   * devices cannot be read. 0: not looked up yet; ~0: unknown. */
  nm_u32 network;
};
NM_STATIC_ASSERT(sizeof(struct nm_socket) == 8 + 3 * 4 + 7 * 1 + 1 + 4);

/* tx_valid and rx_valid when both numbers are known. */
#define NM_SOCKET_NUMBERS 0x0101
NM_STATIC_ASSERT(__builtin_offsetof(struct nm_socket, tx_valid) % 2 == 0);

/* Entries of nm_interfaces, nm_forwarded_by and nm_clients. */
#define NM_MAX_INTERFACES 4096
#define NM_FORWARDED_PAIRS 4096
#define NM_MAX_CLIENTS 16384

/* The uplink of an interface. The index is the low bits of the ifindex. The word has the
 * ifindex, and below it the uplink bits of nm_cell.path for packets of that interface. */
#define NM_UPLINK_WORDS 1024 /* a power of two */
#define NM_UPLINK_WORD(ifindex, number) \
  ((nm_u64)(ifindex) << 32 | (nm_u64)(number) << NM_UPLINK_SHIFT)

/* The protocol whose first bytes will name a connection's destination. */
enum nm_wire_protocol {
  NM_WIRE_NONE = 0, /* none: the connection has its name, or never gets one */
  NM_WIRE_H2 = 1,   /* HTTP/2: :authority of the first request */
  NM_WIRE_TLS = 2,  /* TLS: server_name of the ClientHello */
  NM_WIRE_HTTP = 3, /* HTTP/1: host of the first request */
};

/* The result of reading a connection's first bytes. */
enum nm_naming_result {
  NM_NAMING_MORE = 0,   /* nothing yet: more bytes are needed */
  NM_NAMING_FOUND = 1,  /* a name */
  NM_NAMING_FAILED = 2, /* no name here, and none will follow */
};

/* The state of reading a connection's first bytes: wire_name.bpf.h. */
struct nm_naming {
  nm_u32 remaining; /* bytes of the frame, or of the record */
  nm_u32 position;  /* within the current item */
  nm_u32 saved;     /* ... when the frame ended in the middle of it; TLS:
                       bytes left of the hello */
  nm_u32 value;     /* a number, or the length of a string */
  nm_u32 skip;
  nm_u32 extensions; /* bytes left of all TLS extensions, then of the name */
  nm_u32 record_length;
  nm_u32 total;   /* bytes seen */
  nm_u8 protocol; /* enum nm_wire_protocol */
  nm_u8 state;    /* enum nm_naming_state */
  nm_u8 resume;   /* ... after this frame header */
  nm_u8 result;   /* enum nm_naming_result */
  nm_u8 frame_type;
  nm_u8 frame_flags;
  nm_u8 in_block;
  nm_u8 padding;
  nm_u8 field;
  nm_u8 string;
  nm_u8 authority;
  nm_u8 huffman;
  nm_u8 shift;
  nm_u8 record; /* bytes of the TLS record header seen */
  nm_u8 encoding;
  nm_u8 name_length;
  nm_u8 name[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_naming) == 8 * 4 + 16 * 1 + NM_NAME_BYTES);

/* The counts that a connection has in the pending series: pending.bpf.h. */
struct nm_pending {
  nm_u64 tx_bytes;
  nm_u64 rx_bytes;
  nm_u64 tx_packets;
  nm_u64 rx_packets;
  nm_u64 tx_payload_bytes;
  nm_u64 rx_payload_bytes;
  nm_u64 tx_retransmit_bytes;
};
NM_STATIC_ASSERT(sizeof(struct nm_pending) == 7 * 8);

/*
 * A word is compared and replaced as a whole, so an entry never combines one socket's
 * cookie with another socket's slot. Slot 0: not resolved yet.
 */
#define NM_COOKIE(cookie) ((cookie) << 16)
#define NM_WORD_COOKIE(word) ((word) & ~0xffffULL)
#define NM_WORD_SLOT(word) ((nm_u32)((word)&0xffff))

/* Bits of nm_owner.flags. */
/* A hook will tell when this socket ends, so it may have an entry of the table. */
#define NM_OWNER_END_IS_TOLD 1
#define NM_OWNER_CLOSED 2    /* it has ended and has no entry any more */
#define NM_OWNER_CONNECTED 4 /* a TCP connection that this host opened */
#define NM_OWNER_NAMED 8 /* nothing more will be learned of its destination */
#define NM_OWNER_ESTABLISHED 16 /* a TCP connection whose handshake is done */
#define NM_OWNER_SUBFLOW 32     /* of a process's MPTCP socket */
#define NM_OWNER_RULED 64  /* wire_destination is from a rule that yields */
#define NM_OWNER_RESET 128 /* a TCP connection that has sent a RST */

/* The owner of a socket. It is written and read as one word, so that no packet sees half
 * of a change. */
union nm_attribution {
  struct {
    nm_u16 service;
    nm_u8 kind;
    nm_u8 flags; /* NM_FLAG_* of the series */
  };
  nm_u32 word;
};
NM_STATIC_ASSERT(sizeof(union nm_attribution) == 2 + 2 * 1);

/* When a process started, in clock ticks after boot, as in /proc/PID/stat. Low bits, plus
 * 1. 0: unknown. The kernel hands out a process id again, but not with this. */
#define NM_TICK_NS 10000000 /* USER_HZ is 100 on x86 and arm64 */
#define NM_START(ticks) ((nm_u32)(ticks) + 1)

/* Key and value of `listeners`: an SCTP listener, and what it gives to the sockets that
 * it accepts (bpf/sctp.bpf.h). */
struct nm_listener_key {
  nm_u64 cgroup;
  nm_u32 address[4]; /* IPv4: the first word */
  nm_u32 network;    /* namespace; 0: unknown */
  nm_u16 port;
  nm_u16 protocol; /* of the address: htons(ETH_P_IP) or of IPv6 */
};
NM_STATIC_ASSERT(sizeof(struct nm_listener_key) == 8 + 5 * 4 + 2 * 2);
struct nm_listener {
  nm_u32 tgid;
  nm_u32 start;
  union nm_attribution attribution;
  nm_u32 network;
  nm_u16 tag;
  nm_u16 user;
};
NM_STATIC_ASSERT(sizeof(struct nm_listener) == 4 * 4 + 2 * 2);

/* Value of `owners`, the socket storage: the owner of a socket. */
struct nm_owner {
  nm_u32 tgid; /* of the process that created it */
  union nm_attribution attribution;
  nm_u16 tag;             /* destination by NM_TAG; 0: none */
  nm_u8 flags;            /* NM_OWNER_* */
  nm_u8 pending_path;     /* nm_cell.path of the pending counts */
  nm_u16 pending_service; /* ... and their service; 0: never had any */
  /* The name that the connection sent; before that, the name of a rule; 0: none. */
  nm_u16 wire_destination;
  nm_u16 user;    /* of the creator, or of its last namer: nm_user_of_uid() */
  nm_u16 counted; /* slot in which the connection is counted; 0: none */
  nm_u32 network; /* low bits of its namespace's cookie; 0: unknown */
  nm_u64 cookie;  /* of the socket that wrote this; a clone differs */
  nm_u32
      preexisting; /* low bits of the socket's cookie, if older than the meter */
  nm_u32
      start; /* NM_START() of the process; 0 also before this field existed */
  /* As in nm_tcp: kept here while there is no series to count them in. */
  nm_u32 timeouts;
  nm_u32 retransmitted_segments;
  struct nm_socket socket; /* used when the table's entry is not */
  struct nm_pending pending;
};
NM_STATIC_ASSERT(sizeof(struct nm_owner) ==
                 4 + 4 + 2 + 2 * 1 + 4 * 2 + 4 + 8 + 4 * 4 +
                     sizeof(struct nm_socket) + sizeof(struct nm_pending));

/* Value of `users`. */
struct nm_user {
  nm_u32 names;
  nm_u32 series;
};
NM_STATIC_ASSERT(sizeof(struct nm_user) == 2 * 4);

/* Value of `rules`: the first match names the destination. */
struct nm_rule {
  nm_u32 address[4]; /* network byte order; IPv4 as ::ffff:a.b.c.d */
  nm_u32 mask[4];
  nm_u16 port_first; /* host byte order, of the remote end */
  nm_u16 port_last;
  nm_u8 protocol;     /* IPPROTO_*, 0: any */
  nm_u8 yields;       /* 1: to a name that the connection gives itself */
  nm_u16 destination; /* index in names */
};
NM_STATIC_ASSERT(sizeof(struct nm_rule) == 8 * 4 + 2 * 2 + 2 * 1 + 2);

/*
 * A command of the loader: a packet for nm_command through BPF_PROG_TEST_RUN, because
 * user space cannot write frozen maps. An Ethernet header comes first, then this.
 */
enum nm_command_code {
  NM_COMMAND_INFO = 1,   /* replaces info, except `closed` */
  NM_COMMAND_CLOSE = 2,  /* sets info.closed */
  NM_COMMAND_NAME = 3,   /* returns the id of a name; see nm_new_name */
  NM_COMMAND_FREE = 5,   /* puts one more id into its queue; see nm_free */
  NM_COMMAND_SWEEP = 6,  /* says whether the loader sweeps: nm_u32 */
  NM_COMMAND_FOLD = 7,   /* takes back an idle slot; see nm_idle */
  NM_COMMAND_FORGET = 8, /* takes back the id of an unused name; see nm_idle */
};

/* Makes the id if the name is new. The result is 0 if the table is full, or if that user
 * has reached the quota. */
struct nm_new_name {
  struct nm_name_key key;
  nm_u32 user; /* nm_user_of_uid(); 0: root */
};
NM_STATIC_ASSERT(sizeof(struct nm_new_name) ==
                 sizeof(struct nm_name_key) + sizeof(nm_u32));

/* One call runs this repeatedly (`repeat` of BPF_PROG_TEST_RUN). Each run puts the next
 * id below `end` into the queue and notes that in nm_stats. A program is not killed
 * between the two, so no id is put in twice. */
struct nm_free {
  nm_u32 names; /* 0: into nm_free_slots; 1: into nm_free_names */
  nm_u32 end;
};

/* A command has up to NM_MOST_IDLE of these in a row; the n-th run of one call takes the
 * n-th. The packet of BPF_PROG_TEST_RUN has one page. */
#define NM_MOST_IDLE 512
struct nm_idle {
  nm_u16 id;   /* of a slot or a name */
  nm_u16 user; /* of a slot: whose quota it counts against; 0: root */
};
NM_STATIC_ASSERT(sizeof(struct nm_idle) == 2 * 2);

/* More cells than any series has: a bound for loops. */
#define NM_MAX_CELLS 4096

/* Bits of nm_marks: what nm_scan found in use by a socket. */
#define NM_MARK_NAME 1
#define NM_MARK_SLOT 2

struct nm_command {
  nm_u8 ethernet[14];
  nm_u16 code;   /* enum nm_command_code */
  nm_u32 pad[4]; /* 32 bytes in all; info or another payload follows */
};
NM_STATIC_ASSERT(sizeof(struct nm_command) == 14 + 2 + 4 * 4);

#endif /* NETMETER_BPF_INTERNAL_H_ */
