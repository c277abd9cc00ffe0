/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The owner of a socket and the state of its connection: the values of `sockets` and
 * `owners`, which evict and root's tools look up, too. It may change with each version.
 */
#ifndef NETMETER_BPF_OWNER_H_
#define NETMETER_BPF_OWNER_H_

#include <linux/bpf.h>

#include "netmeter/abi.h"

/*
 * One word holds both, so an entry never combines one socket's cookie with another's
 * slot. Slot 0: not resolved yet.
 */
#define NM_COOKIE(cookie) ((cookie) << 16)
#define NM_WORD_COOKIE(word) ((word) & ~0xffffULL)
#define NM_WORD_SLOT(word) ((nm_u32)((word)&0xffff))

/* The state of a socket between two packets. */
struct nm_socket {
  nm_u64 word;       /* low 48 bits of the cookie, then the slot; see above */
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
  nm_u8 life;           /* NM_LIFE_*, in an entry of the table */
  /* Its namespace, if there are uplinks: the inode, or the low bits of the cookie if
   * devices cannot be read. 0: not looked up yet; ~0: unknown. */
  nm_u32 network;
};
NM_STATIC_ASSERT(sizeof(struct nm_socket) == 8 + 3 * 4 + 7 * 1 + 1 + 4);

/* Bits of nm_socket.life. */
#define NM_LIFE_OWNED 1 /* the owner is in the entry, not in socket storage */
#define NM_LIFE_RELEASED 2 /* its last descriptor was closed */
#define NM_LIFE_ENDED 4    /* TCP has ended */
/* Another socket may have the entry. Until then a late RST may read it. */
#define NM_LIFE_OVER (NM_LIFE_RELEASED | NM_LIFE_ENDED)

/* tx_valid and rx_valid when both numbers are known. */
#define NM_SOCKET_NUMBERS 0x0101
NM_STATIC_ASSERT(__builtin_offsetof(struct nm_socket, tx_valid) % 2 == 0);

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

/* Bits of nm_owner.flags. */
/* A hook will tell when this socket ends. Without it an entry ends with close(2), and an
 * owner in storage claims none. */
#define NM_OWNER_END_IS_TOLD 1
#define NM_OWNER_CLOSED 2 /* ended; if stored, without an entry from then on */
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

/* The owner of a socket: the part that all connections need. */
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
};
NM_STATIC_ASSERT(sizeof(struct nm_owner) == 4 + 4 + 2 + 2 * 1 + 4 * 2 + 4);

/* Value of `sockets`, the socket table: a cache line, so that CPUs share none. The lock
 * is taken to claim and to free an entry, and to change its word or its life. */
struct nm_entry {
  struct bpf_spin_lock lock;
  nm_u32 start; /* as nm_stored_owner.start, with NM_LIFE_OWNED */
  struct nm_socket socket;
  struct nm_owner owner; /* with NM_LIFE_OWNED */
};
NM_STATIC_ASSERT(sizeof(struct nm_entry) == 64);

/* Value of `owners`, the socket storage: an owner that is not in the table. */
struct nm_stored_owner {
  struct nm_owner owner;
  nm_u64 cookie; /* of the socket that wrote this; a clone differs */
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
NM_STATIC_ASSERT(sizeof(struct nm_stored_owner) ==
                 sizeof(struct nm_owner) + 8 + 4 * 4 +
                     sizeof(struct nm_socket) + sizeof(struct nm_pending));

#endif /* NETMETER_BPF_OWNER_H_ */
