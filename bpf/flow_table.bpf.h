/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The table of flows, and how a flow becomes a record.
 *
 * Several CPUs add to a flow. One of them ends it, or the program that user space runs.
 * All of them hold its lock for that. The program that ends a flow marks it as gone and
 * copies the counters in one step under the lock. A program that comes later sees the
 * mark and counts elsewhere. So each packet is in one record, or among the unrecorded
 * packets (struct nm_unrecorded).
 *
 * The kernel may give the memory of a deleted flow to the next one while a program on
 * another CPU still has the pointer. nm_flow_state.id detects that.
 *
 * A record for which the ring buffer has no room is counted, and its bytes are added to
 * nm_unrecorded for its series. So the sum stays exact.
 *
 * A remote sender can make flows without a real source: a SYN or a datagram may have any
 * source address. Flows that begin in this way have a part of the table. Established
 * connections, and flows that this host begins, may use all of it.
 */
#ifndef NETMETER_BPF_FLOW_TABLE_BPF_H_
#define NETMETER_BPF_FLOW_TABLE_BPF_H_

#include "bpf/flows.h"
#include "bpf/slot.bpf.h"

/* key -> flow. `netmeter flows` sets the size. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 262144);
  __type(key, struct nm_flow_key);
  __type(value, struct nm_flow);
} nm_flows SEC(".maps");

/* 0 -> zeros, the initial value of a flow. The stack is scarce. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u8[sizeof(struct nm_flow)]);
} nm_flow_zero SEC(".maps");

/* Socket other than TCP's -> the flow that it began last, and the number of flows that it
 * began. */
struct nm_flow_socket {
  struct nm_flow_key key;
  __u64 flows;
};
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct nm_flow_socket);
} nm_flow_sockets SEC(".maps");

/* series (while its slot is its own) and reason -> counts that are in no record. Full:
 * unrecorded_full. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 65536);
  __type(key, struct nm_unrecorded_key);
  __type(value, struct nm_unrecorded);
} nm_unrecorded SEC(".maps");

/* The maximum number of flows of strangers. `netmeter flows` sets it. */
const volatile __u32 nm_most_strangers = 131072;

/* 0 -> counters of the programs themselves. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_flow_stats);
} nm_flow_stats SEC(".maps");

/* What the reader wants. `netmeter flows` sets them before the load. */
const volatile __u32 nm_flow_wakeup_bytes;
const volatile __u32 nm_flow_filters;     /* NM_FILTER_* */
const volatile __u64 nm_flow_ports[1024]; /* a bit for each port */

/* Prefixes of addresses -> any value. `netmeter flows` fills it. */
struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct nm_flow_prefix);
  __type(value, __u8);
} nm_flow_prefixes SEC(".maps");

/* slot -> nm_stats.moves + 1 of the time at which `netmeter flows` refused the series. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} nm_flow_refused SEC(".maps");

/* The ring buffer of records. `netmeter flows` sets the size. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 8388608);
} nm_flow_events SEC(".maps");

#define COUNT_FLOWS(field, amount)                            \
  do {                                                        \
    __u32 zero_ = 0;                                          \
    struct nm_flow_stats *stats_ =                            \
        bpf_map_lookup_elem(&nm_flow_stats, &zero_);          \
    if (stats_) __sync_fetch_and_add(&stats_->field, amount); \
  } while (0)

/* Several CPUs may find room for the last one, so the maximum is approximate. */
static __always_inline bool has_room_for_strangers(void) {
  __u32 zero = 0;
  struct nm_flow_stats *stats = bpf_map_lookup_elem(&nm_flow_stats, &zero);

  return stats && *(volatile __u64 *)&stats->strangers < nm_most_strangers;
}

static __always_inline void count_gone(__u32 flags) {
  if (flags & NM_FLOW_STRANGER) COUNT_FLOWS(strangers, -1);
}

/* Never 0. */
static __always_inline __u64 id_of_key(const struct nm_flow_key *key) {
  const __u64 *words = (const __u64 *)key;
  __u64 id = 1;

#pragma unroll
  for (__u32 i = 0; i < sizeof(*key) / sizeof(id); i++) {
    id = (id ^ words[i]) * 0x9e3779b97f4a7c15ULL;
    id ^= id >> 32;
  }
  return id | 1;
}

/* --- Counts that are in no record ----------------------------------------- */

/* `interfaces`: of a forwarded flow. */
static __noinline int add_rest(__u32 slot, __u64 interfaces, __u32 reason,
                               __u64 records,
                               const struct nm_flow_counts *counts) {
  struct nm_unrecorded_key key = {.slot = slot, .reason = reason};
  struct nm_stats *stats = stats_of_meter();
  struct nm_unrecorded *rest;
  __u32 zero = 0;
  void *zeros;

  if (!counts) return 0;
  /* A slot is not reused before all programs that have it have ended. */
  if (slot & NM_SLOT_FORWARDED)
    key.moves = interfaces;
  else if (stats)
    key.moves = (*(volatile __u64 *)&stats->moves + 1) & ~1ULL;
  rest = bpf_map_lookup_elem(&nm_unrecorded, &key);
  if (!rest) {
    zeros = bpf_map_lookup_elem(&nm_flow_zero, &zero);
    if (zeros) bpf_map_update_elem(&nm_unrecorded, &key, zeros, BPF_NOEXIST);
    rest = bpf_map_lookup_elem(&nm_unrecorded, &key);
  }
  if (!rest) {
    COUNT_FLOWS(unrecorded_full, 1);
    return 0;
  }
  __sync_fetch_and_add(&rest->records, records);
  __sync_fetch_and_add(&rest->counts.tx_bytes, counts->tx_bytes);
  __sync_fetch_and_add(&rest->counts.rx_bytes, counts->rx_bytes);
  __sync_fetch_and_add(&rest->counts.tx_packets, counts->tx_packets);
  __sync_fetch_and_add(&rest->counts.rx_packets, counts->rx_packets);
  __sync_fetch_and_add(&rest->counts.tx_payload_bytes,
                       counts->tx_payload_bytes);
  __sync_fetch_and_add(&rest->counts.rx_payload_bytes,
                       counts->rx_payload_bytes);
  __sync_fetch_and_add(&rest->counts.tx_retransmit_bytes,
                       counts->tx_retransmit_bytes);
  __sync_fetch_and_add(&rest->counts.rx_retransmit_bytes,
                       counts->rx_retransmit_bytes);
  return 0;
}

/* --- The filter ------------------------------------------------------------ */

static __always_inline bool is_wanted_port(__u16 port) {
  return nm_flow_ports[port / 64] >> (port % 64) & 1;
}

static __always_inline bool is_wanted_address(const __u32 address[4]) {
  struct nm_flow_prefix key = {.bits = 128};

  __builtin_memcpy(key.address, address, sizeof(key.address));
  return bpf_map_lookup_elem(&nm_flow_prefixes, &key);
}

/* Whether the reader may want a record of this flow, if its series has this slot. The
 * reader compares again. */
static __always_inline bool is_wanted(const struct nm_flow_state *state,
                                      __u32 slot) {
  struct nm_stats *stats;
  __u64 *refused;

  if ((nm_flow_filters & NM_FILTER_PORTS) &&
      !is_wanted_port(state->local_port) && !is_wanted_port(state->remote_port))
    return false;
  if ((nm_flow_filters & NM_FILTER_ADDRESSES) &&
      !is_wanted_address(state->local) && !is_wanted_address(state->remote))
    return false;
  if (!(nm_flow_filters & NM_FILTER_SERIES)) return true;
  stats = stats_of_meter();
  refused = bpf_map_lookup_elem(&nm_flow_refused, &slot);
  /* While slots move, nm_stats.moves is odd, and all marks are, too. */
  return !stats || !refused ||
         *(volatile __u64 *)refused != *(volatile __u64 *)&stats->moves + 1;
}

/* --- A record -------------------------------------------------------------- */

/* For bpf_ringbuf_submit(). To wake the reader costs the sender of a packet more than the
 * record does. The reader looks by itself four times a second. It is only woken if
 * nm_flow_wakeup_bytes wait for it. */
static __always_inline __u64 wakeup_of_reader(void) {
  return bpf_ringbuf_query(&nm_flow_events, BPF_RB_AVAIL_DATA) <
                 nm_flow_wakeup_bytes
             ? BPF_RB_NO_WAKEUP
             : BPF_RB_FORCE_WAKEUP;
}

/* How a flow is ended. */
struct nm_ending {
  __u64 now_ns;
  __u64 last_ns; /* not 0: only if it had no packet after that */
  __u32 end;     /* enum nm_flow_end */
  __u32 slot;    /* NM_END_MOVED: of the next part */
};

/* Whether the flow goes on after this record, in its next part. */
static __always_inline bool goes_on(const struct nm_ending *ending) {
  return ending->end == NM_END_MOVED || ending->end == NM_END_ACTIVE;
}

/* Whether the flow is a TCP connection that is not established yet. */
static __always_inline bool connects(const struct nm_flow_key *key,
                                     const struct nm_flow_state *state) {
  return (key->kind == NM_FLOW_HANDSHAKE || key->kind == NM_FLOW_FORWARDED ||
          (state->flags & NM_FLOW_OPENED)) &&
         !(state->flags & NM_FLOW_ESTABLISHED);
}

/* Under its lock: whether the flow is to be ended. If so, marks it, or begins its next
 * part. The next part of a handshake keeps the beginning and the flags of TCP, so that
 * the connection has its first SYN. */
static __always_inline bool end_state(struct nm_flow_state *state,
                                      const struct nm_flow_key *key, __u64 id,
                                      const struct nm_ending *ending) {
  if (state->id != id || (state->flags & NM_FLOW_GONE)) return false;
  if (ending->last_ns && state->last_ns != ending->last_ns) return false;
  if (!goes_on(ending)) {
    state->flags |= NM_FLOW_GONE;
    return true;
  }
  if (ending->end == NM_END_MOVED) {
    if (state->slot == ending->slot) return false;
    state->slot = ending->slot;
  } else if (state->flags & NM_FLOW_PENDING) {
    return false; /* its bytes may still move to another series */
  }
  state->part++;
  __builtin_memset(&state->counts, 0, sizeof(state->counts));
  if (connects(key, state)) return true;
  state->start_ns = ending->now_ns;
  state->tx_tcp_flags = state->rx_tcp_flags = 0;
  return true;
}

/* Ends a flow without a record: it is counted as lost. */
static __noinline int lose_flow(const struct nm_flow_key *key,
                                const struct nm_ending *ending) {
  struct nm_flow_counts counts;
  __u32 slot, flags;
  struct nm_flow *flow;
  bool ends;
  __u64 id;

  if (!key || !ending) return 0;
  id = id_of_key(key);
  flow = bpf_map_lookup_elem(&nm_flows, key);
  if (!flow) return 0;
  bpf_spin_lock(&flow->lock);
  counts = flow->state.counts;
  slot = flow->state.slot;
  flags = flow->state.flags;
  ends = end_state(&flow->state, key, id, ending);
  bpf_spin_unlock(&flow->lock);
  if (!ends) return 0;
  if (slot) {
    COUNT_FLOWS(lost, 1);
    add_rest(slot, key->cookie, NM_UNRECORDED_LOST, 1, &counts);
  }
  if (!goes_on(ending)) count_gone(flags);
  return 1;
}

/* Ends a flow whose record the reader does not want. Returns 0 if it may want it. */
static __noinline int end_unwanted(const struct nm_flow_key *key,
                                   const struct nm_ending *ending) {
  struct nm_flow *flow;
  __u32 slot, flags;
  bool ends;
  __u64 id;

  if (!key || !ending) return 0;
  id = id_of_key(key);
  flow = bpf_map_lookup_elem(&nm_flows, key);
  if (!flow) return 0;
  slot = *(volatile __u32 *)&flow->state.slot;
  if (is_wanted(&flow->state, slot)) return 0;
  bpf_spin_lock(&flow->lock);
  flags = flow->state.flags;
  ends = flow->state.slot == slot && end_state(&flow->state, key, id, ending);
  bpf_spin_unlock(&flow->lock);
  if (!ends || goes_on(ending)) return ends;
  count_gone(flags);
  bpf_map_delete_elem(&nm_flows, key);
  return 1;
}

/* Ends a flow: writes its record, and deletes the flow or begins its next part. A flow
 * without a packet has no record: it is over loopback. */
static __noinline int end_flow(const struct nm_flow_key *key,
                               const struct nm_ending *ending) {
  struct nm_flow_record *record;
  struct nm_flow *flow;
  bool ends;
  __u64 id;

  if (!key || !ending) return 0;
  if (nm_flow_filters && end_unwanted(key, ending)) return 1;
  id = id_of_key(key);
  flow = bpf_map_lookup_elem(&nm_flows, key);
  if (!flow) return 0;
  record = bpf_ringbuf_reserve(&nm_flow_events, sizeof(*record), 0);
  if (!record) {
    ends = lose_flow(key, ending);
  } else {
    record->event.type = NM_EVENT_RECORD;
    record->event.end = ending->end;
    record->event.cookie = key->cookie;
    record->event.now_ns = ending->now_ns;
    record->event.kind = key->kind;
    record->event.protocol = key->protocol;
    bpf_spin_lock(&flow->lock);
    __builtin_memcpy(&record->state, &flow->state, sizeof(flow->state));
    ends = end_state(&flow->state, key, id, ending);
    bpf_spin_unlock(&flow->lock);
    if (ends && !goes_on(ending)) count_gone(record->state.flags);
    if (ends && record->state.slot) {
      bpf_ringbuf_submit(record, wakeup_of_reader());
      COUNT_FLOWS(records, 1);
    } else {
      bpf_ringbuf_discard(record, wakeup_of_reader());
    }
  }
  if (ends && !goes_on(ending)) bpf_map_delete_elem(&nm_flows, key);
  return ends;
}

/* --- A flow ----------------------------------------------------------------- */

/* The slot of a series that the meter has made. Only reads. As nm_slot_of_series(). */
static __always_inline __u32 slot_by_head(__u64 word) {
  const union nm_head head = {.word = word};
  __u64 key = key_of_head(word);
  __u32 slot = 0;

  if (head.kind == NM_KIND_UNATTRIBUTED && !NM_UPLINK_OF(head.path))
    return NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, head.transport, head.path);
  if (head.kind != NM_KIND_OVERFLOW) slot = known_series(&key);
  if (slot) return slot | (head.kind == NM_KIND_PENDING ? NM_SLOT_PENDING : 0);
  return NM_SLOT_RESERVED(NM_NAME_OVERFLOW, head.transport,
                          NM_PATH_OF(head.path));
}

/* The slot that got the pending amounts of a connection. */
static __always_inline __u32 settled_slot(struct nm_owner *owner) {
  return slot_by_head(head_of_owner(owner, owner->pending_path)) & NM_SLOT_MASK;
}

/* The two ends of a socket. */
struct nm_ends {
  __u32 local[4]; /* as nm_flow_key.remote */
  __u32 remote[4];
  __u16 local_port;
  __u16 remote_port;
};

/* The initial fields of a flow. */
struct nm_beginning {
  __u64 now_ns;
  struct nm_ends ends;
  __u32 tgid;
  __u32 start; /* of that process */
  __u32 flags; /* NM_FLOW_* */
  /* Forwarded: as in nm_flow_state. */
  __u32 first_seq;
  __u16 destination;
  __u8 yields;
  __u8 first_bytes;
};

/* Fills in the process that made a socket. */
static __always_inline void process_of_owner(struct nm_owner *owner,
                                             struct nm_stored_owner *stored,
                                             __u64 cookie,
                                             struct nm_beginning *beginning) {
  struct nm_entry *entry;

  if (!owner) return;
  beginning->tgid = owner->tgid;
  if (stored) {
    beginning->start = stored->start;
    return;
  }
  entry = entry_of_cookie(cookie);
  if (entry) beginning->start = entry->start;
}

enum nm_begun { NM_NO_ROOM, NM_BEGUN, NM_WAS_THERE };

/* Makes the flow of a key, unless there is one. */
static __noinline int begin_flow(const struct nm_flow_key *key,
                                 const struct nm_beginning *beginning) {
  struct nm_flow_state *state;
  struct nm_flow *flow = NULL;
  enum nm_begun begun = NM_WAS_THERE;
  __u32 zero = 0;
  void *zeros;
  __u64 id;

  if (!key || !beginning) return NM_NO_ROOM;
  id = id_of_key(key);
  zeros = bpf_map_lookup_elem(&nm_flow_zero, &zero);
  if (!zeros) return NM_NO_ROOM;
  if (!(beginning->flags & NM_FLOW_STRANGER) || has_room_for_strangers()) {
    bpf_map_update_elem(&nm_flows, key, zeros, BPF_NOEXIST);
    flow = bpf_map_lookup_elem(&nm_flows, key);
  }
  if (!flow) {
    COUNT_FLOWS(full, 1);
    return NM_NO_ROOM;
  }
  bpf_spin_lock(&flow->lock);
  state = &flow->state;
  if (!(state->flags & NM_FLOW_MADE)) {
    state->id = id;
    state->start_ns = beginning->now_ns;
    state->last_ns = beginning->now_ns;
    __builtin_memcpy(state->local, beginning->ends.local, sizeof(state->local));
    __builtin_memcpy(state->remote, beginning->ends.remote,
                     sizeof(state->remote));
    state->local_port = beginning->ends.local_port;
    state->remote_port = beginning->ends.remote_port;
    state->tgid = beginning->tgid;
    state->start = beginning->start;
    if (key->kind == NM_FLOW_FORWARDED) {
      state->destination = beginning->destination;
      state->yields = beginning->yields;
      state->first_bytes = beginning->first_bytes;
      state->first_seq = beginning->first_seq;
      state->born_ns = beginning->now_ns;
    }
    state->flags = beginning->flags | NM_FLOW_MADE;
    begun = NM_BEGUN;
  }
  bpf_spin_unlock(&flow->lock);
  if (begun == NM_BEGUN && (beginning->flags & NM_FLOW_STRANGER))
    COUNT_FLOWS(strangers, 1);
  return begun;
}

static __always_inline void ends_of_socket(struct bpf_sock *sk,
                                           struct nm_ends *ends) {
  ends->local[0] = SOCKET_WORD(sk, src_ip6[0]);
  ends->local[1] = SOCKET_WORD(sk, src_ip6[1]);
  ends->local[2] = SOCKET_WORD(sk, src_ip6[2]);
  ends->local[3] = SOCKET_WORD(sk, src_ip6[3]);
  ends->remote[0] = SOCKET_WORD(sk, dst_ip6[0]);
  ends->remote[1] = SOCKET_WORD(sk, dst_ip6[1]);
  ends->remote[2] = SOCKET_WORD(sk, dst_ip6[2]);
  ends->remote[3] = SOCKET_WORD(sk, dst_ip6[3]);
  if (SOCKET_WORD(sk, family) == AF_INET) {
    ends->local[0] = ends->local[1] = 0;
    ends->remote[0] = ends->remote[1] = 0;
    ends->local[2] = ends->remote[2] = bpf_htonl(0xffff);
    ends->local[3] = SOCKET_WORD(sk, src_ip4);
    ends->remote[3] = SOCKET_WORD(sk, dst_ip4);
  }
  ends->local_port = SOCKET_WORD(sk, src_port);
  ends->remote_port = bpf_ntohs(SOCKET_WORD(sk, dst_port));
}

#endif /* NETMETER_BPF_FLOW_TABLE_BPF_H_ */
