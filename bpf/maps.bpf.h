/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The configuration, and all maps. Readers map stats, info, and counters, tcp and names
 * with their extents into their memory: arrays that the loader has frozen, so that only
 * the programs write them. The other maps are root's. The loader sets all sizes: a
 * max_entries of 1 here is a placeholder.
 *
 * Each comment says key -> value. The table in README.md says who writes and reads a map,
 * and what happens when it is full. Runs on one CPU share nothing except these maps.
 * There is no scratch memory, because a softirq's run nests in the run of the process
 * that it interrupts.
 */
#ifndef NETMETER_BPF_MAPS_BPF_H_
#define NETMETER_BPF_MAPS_BPF_H_

#include "bpf/internal.h"
#include "bpf/kernel.bpf.h"
#include "bpf/uplink_maps.bpf.h"

/* The loader writes it between open and load. The verifier therefore treats it as
 * constant, and removes code for features that are off. */
const volatile struct nm_config nm_config = {};

/* slot * cells_per_series + CPU -> one CPU's counters of one series. The last cell of
 * each series is the shared cell. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_cell);
} nm_counters SEC(".maps");

/* slot -> the connections of one TCP series. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_tcp);
} nm_tcp SEC(".maps");

/* id -> name. Written before the id is first used, and not changed while the id is in
 * use. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_name);
} nm_names SEC(".maps");

/* Further extents of counters, tcp and names, for growth. Each is as large as all before
 * it together (nm_extent_start()). The load that needs an extent makes it. Until then no
 * kernel object has it, and the verifier removes the code that would read it. */
#define NM_EXTENT(map, of)             \
  struct {                             \
    __uint(type, BPF_MAP_TYPE_ARRAY);  \
    __uint(map_flags, BPF_F_MMAPABLE); \
    __uint(max_entries, 1);            \
    __type(key, __u32);                \
    __type(value, struct of);          \
  } map SEC(".maps")
NM_EXTENT(nm_counters_1, nm_cell);
NM_EXTENT(nm_counters_2, nm_cell);
NM_EXTENT(nm_counters_3, nm_cell);
NM_EXTENT(nm_tcp_1, nm_tcp);
NM_EXTENT(nm_tcp_2, nm_tcp);
NM_EXTENT(nm_tcp_3, nm_tcp);
NM_EXTENT(nm_names_1, nm_name);
NM_EXTENT(nm_names_2, nm_name);
NM_EXTENT(nm_names_3, nm_name);

/* 0 -> losses by reason, and fill levels. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_stats);
} nm_stats SEC(".maps");

/* 0 -> the description of this meter. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_info);
} nm_info SEC(".maps");

/* (service, destination, transport, path) -> slot, with both names for the readers of a
 * dump. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct nm_series_key);
  __type(value, struct nm_series_value);
} nm_series SEC(".maps");

/* Slots that are free. Ids come from queues, because 5.10 has no atomic operation that
 * returns the old value. */
struct {
  __uint(type, BPF_MAP_TYPE_QUEUE);
  __uint(max_entries, 1);
  __type(value, __u32);
} nm_free_slots SEC(".maps");

/* Name ids that are free. */
struct {
  __uint(type, BPF_MAP_TYPE_QUEUE);
  __uint(max_entries, 1);
  __type(value, __u32);
} nm_free_names SEC(".maps");

/* name -> id. Written when a name is first used: when a process with this name opens a
 * socket, by registering, by a tag, or by a name on the wire. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct nm_name_key);
  __type(value, __u32);
} nm_name_ids SEC(".maps");

/* tgid -> the name of the process. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_process);
} nm_processes SEC(".maps");

/* name of an executable -> name of its service. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1024);
  __type(key, char[NM_NAME_BYTES]);
  __type(value, char[NM_NAME_BYTES]);
} nm_binaries SEC(".maps");

/* beginning of a unit's name -> its service. The longest match wins. */
struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1024);
  __type(key, struct nm_unit_key);
  __type(value, struct nm_unit_service);
} nm_units SEC(".maps");

/* name of a service -> who may register it. A name without an entry is open to all. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, char[NM_NAME_BYTES]);
  __type(value, struct nm_registrant);
} nm_registrants SEC(".maps");

/* NM_UPLINK_WORD() of interfaces, by the low bits of the ifindex. A variable needs no map
 * lookup, and each packet reads it. The packet programs write it, or the loader if they
 * cannot read names. An interface replaces another one at the same index. */
volatile __u64 nm_uplinks[NM_UPLINK_WORDS] = {};

/* What the meter decided about a packet, for the programs of flows.bpf.c:
 * decision.bpf.h. */
#define NM_DECISIONS 4 /* a power of two */
struct nm_decision {
  __u32 slot; /* of its series, with NM_SLOT_PENDING; 0: it is not counted */
  __u32 bytes;
  __u32 segments;
  __u32 new_bytes;     /* of payload; received: all payload */
  __u32 retransmitted; /* sent by TCP: as nm_sent */
  __u32 acked;
  __u32 seq; /* as nm_packet, and so on */
  __u16 remote_port;
  __u8 tcp_flags;
  __u8 transport;
  __u8 protocol;
  __u8 pad[3];
};
NM_STATIC_ASSERT(sizeof(struct nm_decision) == 7 * 4 + 2 + 3 * 1 + 3);
struct nm_decisions {
  __u64 skb[NM_DECISIONS];    /* the packet: the address of its buffer */
  __u8 waiting[NM_DECISIONS]; /* followers that have not seen it yet */
  __u32 last;                 /* the number of the one taken last */
  struct nm_decision decisions[NM_DECISIONS];
};
NM_STATIC_ASSERT(sizeof(struct nm_decisions) ==
                 NM_DECISIONS * (8 + 1 + sizeof(struct nm_decision)) + 4);

/* 0 -> decisions of this CPU. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_decisions);
} nm_decisions SEC(".maps");

/* 0: no follower, and packets leave no decisions. The high half: the number of
 * followers that see each packet. The low half also counts those that begin or end.
 * A variable, as nm_uplinks, in a map of its own, to which followers write. */
volatile __u32 nm_followers SEC(".data.followers") = 0;

/* index -> a rule for destinations. The first match wins. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, NM_MAX_RULES);
  __type(key, __u32);
  __type(value, struct nm_rule);
} nm_rules SEC(".maps");

/* The socket table: low bits of the cookie, or those half a table away -> the socket. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_entry);
} nm_sockets SEC(".maps");

/* socket -> its owner, if that is not in the table. BPF_F_CLONE copies it to the sockets
 * that accept(2) returns. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
  __type(key, int);
  __type(value, struct nm_stored_owner);
} nm_owners SEC(".maps");

/* socket -> the state of reading its first bytes. Made when a connection that may name
 * its destination first sends. Deleted when reading has ended. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct nm_naming);
} nm_namings SEC(".maps");

/* service id -> number of names that the service added by what it sent. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} nm_wire_names SEC(".maps");

/* low bits of a uid -> number of names and series that this user's processes added. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, NM_USER_BUCKETS);
  __type(key, __u32);
  __type(value, struct nm_user);
} nm_users SEC(".maps");

/* A packet that several sockets may receive, and the sockets that received it:
 * duplicates.bpf.h. */
#define NM_RECEIVERS 4
#define NM_DUPLICATES_SETS 128 /* a power of two */
#define NM_DUPLICATES_WAYS 4
/* First bytes of a packet: headers, with their checksums and numbers. */
#define NM_IDENTITY_BYTES 64
#define NM_IDENTITY_WORDS ((NM_IDENTITY_BYTES + 16) / 8)
/* The identity of a packet. */
struct nm_identity {
  union {
    struct {
      __u8 bytes[NM_IDENTITY_BYTES]; /* a shorter packet is followed by 0 */
      __u32 length;
      __u32 device;
      __u32 protocol; /* IPv4 or IPv6 */
      __u32 ports;    /* behind IPv6 extensions they are not among the bytes */
    };
    __u64 words[NM_IDENTITY_WORDS];
  };
};
NM_STATIC_ASSERT(sizeof(struct nm_identity) == NM_IDENTITY_BYTES + 4 * 4);

struct nm_receiver {
  __u32 cookie; /* low bits; 0: none */
  __u32 times;  /* how often the socket received these bytes */
};
struct nm_duplicates {
  struct nm_identity packet;
  __u64 seen;      /* when its last duplicate came, in ns; 0: no packet yet */
  __u32 counted;   /* how often these bytes were counted */
  __u32 network;   /* namespace; 0: not known */
  __u32 stranger;  /* cookie of a socket not in receivers; 0: none */
  __u32 strangers; /* deliveries to strangers since the last to a receiver */
  struct nm_receiver receivers[NM_RECEIVERS];
};
NM_STATIC_ASSERT(sizeof(struct nm_duplicates) ==
                 sizeof(struct nm_identity) + 8 + 4 * 4 +
                     NM_RECEIVERS * sizeof(struct nm_receiver));

/* hash of a packet's identity, and a way -> what this CPU remembers of the packet. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, NM_DUPLICATES_SETS *NM_DUPLICATES_WAYS);
  __type(key, __u32);
  __type(value, struct nm_duplicates);
} nm_duplicates SEC(".maps");

/* The address of a listening SCTP socket -> its owner: sctp.bpf.h. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1024);
  __type(key, struct nm_listener_key);
  __type(value, struct nm_listener);
} nm_listeners SEC(".maps");

/* id of a name, or slot -> NM_MARK_*: whether the owner of a socket refers to it. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} nm_marks SEC(".maps");

/* --- Counters of the meter itself ---------------------------------------- */

static __always_inline struct nm_stats *stats_of_meter(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&nm_stats, &zero);
}

/* Whether the meter's stats have this field. The compiler knows that those of 1.0.0 are
 * there, and the verifier knows the others. */
#define NM_HAS_COUNTER(field)                                           \
  (__builtin_offsetof(struct nm_stats, field) < NM_STATS_LEAST_BYTES || \
   __builtin_offsetof(struct nm_stats, field) < nm_config.stats_size)

/* Adds to one field of stats. */
#define COUNT(field, amount)                        \
  do {                                              \
    struct nm_stats *stats_ = stats_of_meter();     \
    if (NM_HAS_COUNTER(field) && stats_)            \
      __sync_fetch_and_add(&stats_->field, amount); \
  } while (0)

/* Other CPUs see what was written before this call before what is written after it. BPF
 * has no barrier, and x86 needs none. An atomic add orders nothing on arm64 if its result
 * is unused, and 5.10 has no other. But all that a CPU does before an unlock comes before
 * what it does after the next lock (tools/memory-model/Documentation/explanation.txt,
 * "Locking"), and each peek into a queue locks and unlocks it. */
static __always_inline void order_writes(void) {
  __u32 id;

  bpf_map_peek_elem(&nm_free_slots, &id);
  bpf_map_peek_elem(&nm_free_slots, &id);
}

/* Before a move and after it: makes nm_stats.moves odd, and even again. */
static __always_inline void count_move(void) {
  order_writes();
  COUNT(moves, 1);
  order_writes();
}

/* --- Extents -------------------------------------------------------------- */

/* The value of `index`, if each slot or id has `per_slot` values. The number of extents
 * and their starts are constants of the programs: with one extent the verifier removes
 * the others. Inlined, because a call costs 8 ns and uses stack, which is scarce.
 *
 * clang makes one call of these, with a variable map, which the kernel does not inline:
 * the code is small. `keep` is NM_APART for the fast path: each map has its own call. */
#define NM_TOGETHER(found, number)
#define NM_APART(found, number) asm volatile("" : "+r"(found) : "i"(number))
#define NM_FURTHER(name, value, map, config, per_slot, keep)    \
  static __always_inline value *name(__u32 slot, __u32 index) { \
    const __u32 first = nm_config.first_##config;               \
    const __u32 extents = nm_config.config##_extents;           \
    value *found;                                               \
                                                                \
    if (extents <= 1 || slot < first) {                         \
      found = bpf_map_lookup_elem(&map, &index);                \
      keep(found, 0);                                           \
    } else if (extents == 2 || slot < first << 1) {             \
      index -= first * per_slot;                                \
      found = bpf_map_lookup_elem(&map##_1, &index);            \
      keep(found, 1);                                           \
    } else if (extents == 3 || slot < first << 2) {             \
      index -= (first << 1) * per_slot;                         \
      found = bpf_map_lookup_elem(&map##_2, &index);            \
      keep(found, 2);                                           \
    } else {                                                    \
      index -= (first << 2) * per_slot;                         \
      found = bpf_map_lookup_elem(&map##_3, &index);            \
      keep(found, 3);                                           \
    }                                                           \
    return found;                                               \
  }
NM_FURTHER(cell_at, struct nm_cell, nm_counters, series,
           nm_config.cells_per_series, NM_TOGETHER)
NM_FURTHER(plain_cell_at, struct nm_cell, nm_counters, series,
           nm_config.cells_per_series, NM_APART)
NM_FURTHER(tcp_at, struct nm_tcp, nm_tcp, series, 1, NM_TOGETHER)
NM_FURTHER(name_at, struct nm_name, nm_names, names, 1, NM_TOGETHER)

static __always_inline struct nm_cell *cell_of(__u32 slot, __u32 number) {
  return cell_at(slot, slot * nm_config.cells_per_series + number);
}

static __always_inline struct nm_tcp *tcp_of_slot(__u32 slot) {
  return tcp_at(slot, slot);
}

static __always_inline struct nm_name *name_of_id(__u32 id) {
  return name_at(id, id);
}

#endif /* NETMETER_BPF_MAPS_BPF_H_ */
