/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Shared by the BPF programs and the loader only, which test/style holds: the values of
 * the maps that only they see, and the loader's commands.
 */
#ifndef NETMETER_BPF_INTERNAL_H_
#define NETMETER_BPF_INTERNAL_H_

#include "bpf/config.h"
#include "bpf/naming.h"
#include "bpf/owner.h"
#include "netmeter/abi.h"

#define NM_MAX_RULES 64

/* Limits on destination names learned from sent bytes: per service, and per program,
 * unit or container that is not a service, of which there are many more. */
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

/* Entries of nm_interfaces, nm_forwarded_by and nm_clients. */
#define NM_MAX_INTERFACES 4096
#define NM_FORWARDED_PAIRS 4096
#define NM_MAX_CLIENTS 16384

/* The uplink of an interface. The index is the low bits of the ifindex. The word has the
 * ifindex, and below it the uplink bits of nm_cell.path for packets of that interface. */
#define NM_UPLINK_WORDS 1024 /* a power of two */
#define NM_UPLINK_WORD(ifindex, number) \
  ((nm_u64)(ifindex) << 32 | (nm_u64)(number) << NM_UPLINK_SHIFT)

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
