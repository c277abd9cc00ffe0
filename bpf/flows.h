/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Shared by the programs of flows.bpf.c and `netmeter flows`: the table of flows, the
 * records in the ring buffer, and the counts that are in no record.
 */
#ifndef NETMETER_BPF_FLOWS_H_
#define NETMETER_BPF_FLOWS_H_

#include <linux/bpf.h> /* struct bpf_spin_lock */

#include "bpf/owner.h"

enum nm_flow_kind {
  NM_FLOW_CONNECTION = 1, /* a TCP socket, by its cookie */
  NM_FLOW_HANDSHAKE = 2,  /* a listener and one peer, before the connection */
  NM_FLOW_PEER = 3,       /* another socket, such as UDP's, with one peer */
  NM_FLOW_FORWARDED = 4, /* no socket: a client behind this host and its peer */
};

/* Key of `nm_flows`. Fields not listed for a kind are 0. */
struct nm_flow_key {
  nm_u64 cookie;      /* connection, peer; forwarded: NM_FLOW_INTERFACES() */
  nm_u32 local[4];    /* forwarded; IPv4 as ::ffff:a.b.c.d */
  nm_u32 remote[4];   /* all but connections; as local */
  nm_u16 remote_port; /* all but connections; host byte order */
  nm_u16 local_port;  /* handshake, forwarded */
  nm_u32 network;     /* handshake: nm_owner.network of the listener */
  nm_u8 kind;         /* enum nm_flow_kind */
  nm_u8 protocol;     /* IPPROTO_* */
  nm_u8 uplinks; /* forwarded: NM_FORWARDED_INDEX() of the local and the remote
                    end's */
  nm_u8 pad[5];
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_key) ==
                 8 + 8 * 4 + 2 * 2 + 4 + 3 * 1 + 5);

/* The interfaces of a forwarded flow: at its local end, where the client is, and at its
 * remote end. */
#define NM_FLOW_INTERFACES(local, remote) ((nm_u64)(local) << 32 | (remote))

/* The slot of a forwarded flow, which has no series: this, and its uplinks. */
#define NM_SLOT_FORWARDED 0x100000

/* As the counters of nm_cell, plus what the peer retransmitted. */
struct nm_flow_counts {
  nm_u64 tx_bytes;
  nm_u64 rx_bytes;
  nm_u64 tx_packets;
  nm_u64 rx_packets;
  nm_u64 tx_payload_bytes;
  nm_u64 rx_payload_bytes;
  nm_u64 tx_retransmit_bytes;
  nm_u64 rx_retransmit_bytes;
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_counts) == 8 * 8);

/* The network device of a packet. */
struct nm_flow_device {
  nm_u32 ifindex;
  nm_u32 network;                /* inode of its namespace */
  char name[NM_INTERFACE_BYTES]; /* as network */
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_device) == 2 * 4 + NM_INTERFACE_BYTES);

/* Bits of nm_flow_state.flags. */
#define NM_FLOW_MADE 1        /* the rest of the value is set */
#define NM_FLOW_GONE 2        /* its record is written: nothing more is added */
#define NM_FLOW_PARTIAL 4     /* it is older than the programs that follow it */
#define NM_FLOW_OPENED 8      /* by this host */
#define NM_FLOW_ACCEPTED 0x10 /* by this host */
#define NM_FLOW_ESTABLISHED 0x20
#define NM_FLOW_FIN_SENT 0x40
#define NM_FLOW_FIN_RECEIVED 0x80
#define NM_FLOW_FIN_OURS_FIRST 0x100
#define NM_FLOW_RST_SENT 0x200
#define NM_FLOW_RST_RECEIVED 0x400
#define NM_FLOW_PENDING 0x800 /* its bytes are in the pending series */
#define NM_FLOW_CLOSED 0x1000 /* the socket has ended; a RST may still follow */
#define NM_FLOW_TOLD 0x2000   /* a hook tells when the connection ends */
#define NM_FLOW_RX_NUMBERS 0x4000 /* rx_end is set */
#define NM_FLOW_STRANGER 0x8000   /* it began with a packet sent to us */
/* Forwarded: the client is at the remote end. Neither interface tells where it is, so it
 * is the end that sent first. */
#define NM_FLOW_SWAPPED 0x10000
#define NM_FLOW_MAC 0x20000 /* forwarded: the client has sent a packet */

struct nm_flow_state {
  /* First what each packet reads or writes, so that it takes few cache lines. */
  nm_u64 id; /* of its key: shows whether the value is another flow's by now */
  nm_u64 last_ns;     /* of the last packet; all times: CLOCK_MONOTONIC */
  nm_u32 slot;        /* of its series; 0: it had no packet yet */
  nm_u32 flags;       /* NM_FLOW_* */
  nm_u8 tx_tcp_flags; /* all flags of TCP in these packets */
  nm_u8 rx_tcp_flags;
  nm_u8 first_bytes; /* forwarded: packets left that may name the destination */
  nm_u8 pad[5];
  struct nm_flow_counts counts;
  nm_u64 start_ns;
  nm_u64 established_ns;
  nm_u64 closed_ns;
  nm_u32 local[4]; /* as nm_flow_key.remote */
  nm_u32 remote[4];
  nm_u16 local_port;
  nm_u16 remote_port;
  nm_u32 tgid;  /* of the process that made the socket */
  nm_u32 start; /* ... and when it started: NM_START(), or 0 */
  nm_u32 part;  /* number of its earlier records */
  union {
    struct nm_flow_device device; /* of the last packet */
    struct {                      /* forwarded */
      nm_u8 mac[6];               /* of the client's frames; 0: no Ethernet */
      nm_u16 destination;         /* by a rule: index in names */
      nm_u64 born_ns;   /* of the first packet; start_ns is of this record */
      nm_u32 first_seq; /* TCP: of the first SYN, or 0 */
      nm_u8 yields;     /* not 0: to a name that the connection sends */
      nm_u8 pad_too[3];
    };
  };
  nm_u32 rx_end; /* highest end sequence that was received */
  nm_u32 srtt_us;
  nm_u32 min_rtt_us;
  nm_u32 retransmits; /* retransmitted segments */
  nm_u32 error;       /* of the socket, when it was closed: errno */
  nm_u32 last_state;  /* before it was closed: TCP_ESTABLISHED and so on */
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_state) ==
                 2 * 8 + 2 * 4 + 8 * 1 + sizeof(struct nm_flow_counts) + 3 * 8 +
                     8 * 4 + 2 * 2 + 3 * 4 + sizeof(struct nm_flow_device) +
                     6 * 4);

/* Whether both ends of a forwarded connection have closed it, or one has reset it. */
static inline int nm_flow_is_over(nm_u32 flags) {
  const nm_u32 both = NM_FLOW_FIN_SENT | NM_FLOW_FIN_RECEIVED;

  return (flags & both) == both ||
         (flags & (NM_FLOW_RST_SENT | NM_FLOW_RST_RECEIVED));
}

/* Value of `nm_flows`. */
struct nm_flow {
  struct bpf_spin_lock lock;
  nm_u32 pad;
  struct nm_flow_state state;
};

/* The reason for a record. */
enum nm_flow_end {
  /* The TCP socket was closed: flags, error and last_state tell how. */
  NM_END_CLOSED = 1,
  NM_END_IDLE = 2,      /* no packet for the time-out */
  NM_END_RELEASED = 3,  /* a socket other than TCP's was closed */
  NM_END_MOVED = 4,     /* goes on, in another series */
  NM_END_HANDSHAKE = 5, /* it did not become a connection */
  NM_END_OPEN = 6,      /* it was still open when its follower ended */
  NM_END_ACTIVE = 7,    /* goes on: what it has counted since its last record */
};

enum nm_flow_event_type {
  NM_EVENT_RECORD = 1,
  /* A socket that had several peers was closed: its cookie. */
  NM_EVENT_SOCKET = 2,
  NM_EVENT_BYTES = 3, /* struct nm_flow_bytes */
};

/* An event in the ring buffer. NM_EVENT_SOCKET has the first part only. */
struct nm_flow_event {
  nm_u32 type; /* enum nm_flow_event_type */
  nm_u32 end;  /* enum nm_flow_end */
  nm_u64 cookie;
  nm_u64 now_ns;
  nm_u8 kind;     /* enum nm_flow_kind */
  nm_u8 protocol; /* IPPROTO_* */
  nm_u8 pad[6];
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_event) == 2 * 4 + 2 * 8 + 8);

struct nm_flow_record {
  struct nm_flow_event event;
  struct nm_flow_state state;
};

/* Payload at the beginning of a forwarded connection, from which user space reads the
 * name of the destination. */
#define NM_FLOW_BYTES 2048
struct nm_flow_bytes {
  struct nm_flow_event event; /* cookie: nm_flow_state.id */
  nm_u64 born_ns;   /* as nm_flow_state: with the id, of one flow alone */
  nm_u32 first_seq; /* as nm_flow_state */
  nm_u32 seq;       /* of the first byte */
  nm_u16 length;
  nm_u16 port; /* of the destination */
  nm_u8 pad[4];
  nm_u8 bytes[NM_FLOW_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_bytes) == sizeof(struct nm_flow_event) +
                                                     8 + 2 * 4 + 2 * 2 + 4 +
                                                     NM_FLOW_BYTES);

/* Counts that are in no record, and why. */
enum nm_unrecorded_reason {
  NM_UNRECORDED_NO_FLOW = 1, /* without a socket, or TCP of a raw socket */
  NM_UNRECORDED_LATE = 2,    /* the connection's record was already written */
  NM_UNRECORDED_FULL = 3,    /* the table of flows was full */
  NM_UNRECORDED_LOST = 4,    /* records for which the ring buffer had no room */
  NM_UNRECORDED_UPLINK =
      5, /* by another uplink, before the connection had a name */
};

/* Key and value of `nm_unrecorded`. */
struct nm_unrecorded_key {
  nm_u32 slot;
  nm_u32 reason; /* enum nm_unrecorded_reason */
  /* nm_stats.moves, even: later the slot may be of another series. Forwarded:
     NM_FLOW_INTERFACES(). */
  nm_u64 moves;
};
NM_STATIC_ASSERT(sizeof(struct nm_unrecorded_key) == 2 * 4 + 8);
struct nm_unrecorded {
  nm_u64 records; /* NM_UNRECORDED_LOST */
  struct nm_flow_counts counts;
};

/* Value of `nm_flow_stats`. All are counters, except strangers. */
struct nm_flow_stats {
  nm_u64 records; /* written into the ring buffer */
  nm_u64 lost;    /* records for which the ring buffer had no room */
  nm_u64 full;    /* attempts to add a flow that found no room, or no memory */
  /* Packets and lost records that are in no entry of `nm_unrecorded`. */
  nm_u64 unrecorded_full;
  nm_u64 strangers; /* number of flows with NM_FLOW_STRANGER */
};

/* Bits of nm_flow_filters: which records are not written. */
#define NM_FILTER_PORTS 1     /* without a port of nm_flow_ports */
#define NM_FILTER_ADDRESSES 2 /* without an address of nm_flow_prefixes */
#define NM_FILTER_SERIES 4    /* of a series in nm_flow_refused */

/* Key of nm_flow_prefixes. */
struct nm_flow_prefix {
  nm_u32 bits;
  nm_u32 address[4]; /* as nm_flow_key.remote */
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_prefix) == 4 + 4 * 4);

/* A packet for nm_flow_end through BPF_PROG_TEST_RUN. It ends a flow, unless the flow had
 * a packet after last_ns. */
struct nm_flow_command {
  nm_u8 ethernet[14];
  nm_u16 end; /* enum nm_flow_end */
  nm_u64 last_ns;
  struct nm_flow_key key;
};
NM_STATIC_ASSERT(sizeof(struct nm_flow_command) ==
                 14 + 2 + 8 + sizeof(struct nm_flow_key));

#endif /* NETMETER_BPF_FLOWS_H_ */
