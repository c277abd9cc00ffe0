/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The table of series: from (service, destination, transport, path) to a slot, and from a
 * slot to the counters.
 *
 * A slot is a number. It selects one cell per CPU in nm_counters, the shared cell, and
 * one value in nm_tcp. Free slots wait in a queue, as the ids of names do; an idle slot
 * is given back (evict.bpf.h). A cell itself says what it counts. Its first eight bytes
 * (union nm_head) are written by one store when the slot is found, before the first
 * packet is added. Until the slot is given back, only the flags in them change. So a
 * reader needs no key and no lock: the parts of a cell that it sees belong together.
 *
 * If no slot is left, or the user has reached the quota, the packet goes to the reserved
 * series `overflow` of its transport and path. Packets that no process owns go to
 * `unattributed`. Both have slots from the start, so no byte is lost. Reserved series
 * have no uplink. With an uplink, `unattributed` is an ordinary series, and `overflow`
 * does not exist.
 */
#ifndef NETMETER_BPF_SLOT_BPF_H_
#define NETMETER_BPF_SLOT_BPF_H_

#include "bpf/names.bpf.h"
#include "bpf/socket.bpf.h"

/* The first eight bytes of a cell, written in one store. */
union nm_head {
  struct {
    __u16 service;
    __u16 destination;
    __u8 transport;
    __u8 path;
    __u8 kind;
    __u8 flags;
  };
  __u64 word;
};

#define NM_HEAD_FLAGS (0xffULL << 56)

/* This CPU's cell. */
static __always_inline struct nm_cell *cell_of_slot(__u32 slot) {
  return cell_of(slot, bpf_get_smp_processor_id());
}

/* The shared cell, which all CPUs write by atomic adds. */
static __always_inline struct nm_cell *shared_cell(__u32 slot) {
  return cell_of(slot, nm_config.shared_cell);
}

/* Writes the head of a cell, before anything is added to it. Flags that are set stay set.
 * Returns whether the head changed. */
static __always_inline bool write_head(void *cell, __u64 word) {
  word |= *(volatile __u64 *)cell & NM_HEAD_FLAGS;
  if (*(volatile __u64 *)cell == word) return false;
  *(volatile __u64 *)cell = word;
  return true;
}

/* Copies word by word. Otherwise clang would load all words before it stores the first,
 * and has no registers for that. The stack is scarce. */
static __always_inline void copy_name(char *to, __u32 id) {
  struct nm_name *name = name_of_id(id);

  if (!name) return;
#pragma unroll
  for (int i = 0; i < NM_NAME_BYTES; i += 8)
    *(volatile __u64 *)(to + i) = *(__u64 *)(name->bytes + i);
}

/* The key of the series with this head, as one number: the stack is scarce. */
static __always_inline __u64 key_of_head(__u64 word) {
  const union nm_head head = {.word = word};

  return (word & 0xffffffffffffULL) | (__u64)(head.kind == NM_KIND_PENDING)
                                          << 48;
}

/* Puts a new series into the table. Not 0: it exists already, or there is no memory. */
static __always_inline long enter_series(const __u64 *key, __u64 word,
                                         __u32 slot, __u16 user) {
  const union nm_head head = {.word = word};
  /* Aligned for copy_name(), which stores words. */
  struct nm_series_value value __attribute__((aligned(8))) = {};

  value.slot = slot;
  value.kind = head.kind;
  value.user = user;
  copy_name(value.service_name, head.service);
  copy_name(value.destination_name, head.destination);
  return bpf_map_update_elem(&nm_series, key, &value, BPF_NOEXIST);
}

/* The slot of a known series, or 0. As known_name(). */
static __always_inline __u32 known_series(const __u64 *key) {
  struct nm_series_value *known, *again;
  __u32 slot;

  known = bpf_map_lookup_elem(&nm_series, key);
  if (!known) return 0;
  slot = *(volatile __u32 *)&known->slot;
  if (!is_swept()) return slot;
  again = bpf_map_lookup_elem(&nm_series, key);
  if (again == known) return slot;
  return again ? *(volatile __u32 *)&again->slot : 0;
}

/* Publishes the end of the allocated slots, before a slot is used: readers look no
 * further. Slots are allocated in order, except for slots that evict gave back before a
 * resize put new ones behind them. If another CPU does this at the same time, the end is
 * too high, which does no harm. */
static __always_inline void count_allocated(__u32 slot) {
  struct nm_stats *stats = stats_of_meter();
  __u64 allocated;

  if (!stats) return;
  allocated = *(volatile __u64 *)&stats->slots_allocated;
  if (slot < NM_SLOT_FIRST + allocated + 1)
    __sync_fetch_and_add(&stats->slots_allocated, 1);
  else
    __sync_fetch_and_add(&stats->slots_allocated,
                         slot + 1 - NM_SLOT_FIRST - allocated);
}

/* The slot of a series that is not reserved, made if it is new. 0: there is no room, or
 * `user` has reached the quota. */
static __always_inline __u32 ordinary_slot(__u64 word, __u16 user) {
  __u64 key = key_of_head(word);
  struct nm_user *account = NULL;
  struct nm_stats *stats;
  __u32 known, slot;

  known = known_series(&key);
  if (known) return known;
  barrier_var(word);
  if (user) {
    stats = stats_of_meter();
    account = user_of(user);
    if (!stats || !account ||
        is_over_quota(*(volatile __u32 *)&account->series,
                      nm_config.max_user_series, stats->series_used,
                      nm_config.max_series - NM_SLOT_FIRST)) {
      COUNT(series_over_quota, 1);
      return 0;
    }
  }
  if (bpf_map_pop_elem(&nm_free_slots, &slot)) goto full;
  count_allocated(slot);
  if (enter_series(&key, word, slot, user)) {
    /* Another CPU was faster, or there was no memory. */
    bpf_map_push_elem(&nm_free_slots, &slot, BPF_ANY);
    known = known_series(&key);
    if (!known) goto full;
    return known;
  }
  COUNT(series_used, 1);
  if (account) __sync_fetch_and_add(&account->series, 1);
  return slot;

full:
  COUNT(series_full, 1);
  return 0;
}

/* Flags beside the slot in the result of nm_slot_of_series(): properties of the
 * series. */
#define NM_SLOT_MASK 0xffff
#define NM_SLOT_OVERFLOW 0x10000
#define NM_SLOT_PENDING 0x20000

/* The slot of a series, made if it is new. Writes the head of this CPU's cell, of the
 * shared cell, and of the connections. If there is no room, the slot is that of the
 * overflow series. `word` is a union nm_head. */
NM_GLOBAL __u32 nm_slot_of_series(__u64 word, __u32 user) {
  union nm_head head = {.word = word};
  struct nm_cell *cell;
  struct nm_tcp *tcp;
  __u32 slot = 0;

  if (head.kind == NM_KIND_UNATTRIBUTED && !NM_UPLINK_OF(head.path)) {
    slot = NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, head.transport, head.path);
  } else {
    if (head.kind != NM_KIND_OVERFLOW) slot = ordinary_slot(word, user);
    /* Keeps it in one register up to here, and in one from here on, instead of one for
     * each field: the stack is scarce. */
    barrier_var(word);
    head.word = word;
    if (!slot) {
      head.service = NM_NAME_OVERFLOW;
      head.destination = NM_NAME_EMPTY;
      head.kind = NM_KIND_OVERFLOW;
      head.flags = 0;
      head.path = NM_PATH_OF(head.path);
      slot = NM_SLOT_RESERVED(NM_NAME_OVERFLOW, head.transport, head.path);
    }
  }
  word = head.word;
  barrier_var(word);
  head.word = word;
  cell = cell_of_slot(slot);
  if (cell) write_head(cell, word);
  cell = shared_cell(slot);
  if (cell && write_head(cell, word)) {
    order_writes(); /* a reader that sees the number looks for the head once */
    COUNT(heads, 1);
  }
  if (head.transport == NM_TRANSPORT_TCP) {
    tcp = tcp_of_slot(slot);
    if (tcp) write_head(tcp, word);
  }
  if (head.kind == NM_KIND_OVERFLOW) slot |= NM_SLOT_OVERFLOW;
  if (head.kind == NM_KIND_PENDING) slot |= NM_SLOT_PENDING;
  return slot;
}

/* Whether series of this kind have destinations. */
static __always_inline bool has_destinations(__u8 kind) {
  return nm_config.destination_kinds >> (kind & 31) & 1;
}

/* The head of the series of a connection by its owner alone, for its end, when there is
 * no packet that tells more. */
static __always_inline __u64 head_of_owner(struct nm_owner *owner, __u8 path) {
  union nm_attribution attribution = attribution_of(owner);
  union nm_head head = {};

  head.service = attribution.service;
  head.kind = attribution.kind;
  head.flags = attribution.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = path;
  if (has_destinations(attribution.kind))
    head.destination = owner->tag ? owner->tag : owner->wire_destination;
  return head.word;
}

/* The slot of head_of_owner(). */
static __always_inline __u32 slot_of_owner(struct nm_owner *owner, __u8 path) {
  return nm_slot_of_series(head_of_owner(owner, path), owner->user) &
         NM_SLOT_MASK;
}

#endif /* NETMETER_BPF_SLOT_BPF_H_ */
