/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The table of series: from (service, destination, transport, path) to a slot,
 * and from a slot to the counters.
 *
 * A slot is a number. It selects one cell per CPU in nm_counters, and the spare
 * one, and one value in nm_tcp. Slots wait in a queue, as the ids of names do; one
 * that is idle is given back (retire.bpf.h). A cell says itself what it counts: its
 * first eight bytes (union nm_head) are written by one store when the slot is
 * found, before the first packet is added to it, and only the flags in them change
 * until it is given back. So a reader needs no key and no lock: what it sees of a
 * cell belongs together.
 *
 * Where no slot is left, or the user has his share of them, the packet goes to
 * the reserved series `overflow` of its transport and path. What no process
 * owns goes to `unattributed`. Both have slots from the start, so no byte is
 * lost. These are of no uplink: `unattributed` of an uplink is a series as others
 * are, `overflow` of one there is not.
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

/* The cell that all CPUs write, by atomic adds. */
static __always_inline struct nm_cell *spare_cell(__u32 slot) {
  return cell_of(slot, nm_config.spare_cell);
}

/* Writes what a cell counts, before anything is added to it. Its flags stay
 * set. Returns whether it was another one. */
static __always_inline bool write_head(void *cell, __u64 word) {
  word |= *(volatile __u64 *)cell & NM_HEAD_FLAGS;
  if (*(volatile __u64 *)cell == word) return false;
  *(volatile __u64 *)cell = word;
  return true;
}

/* Word by word: clang would load them all before it stores the first, and has no
 * registers for that. The stack is scarce. */
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

/* Puts a new series into the table. Not 0: it is there already, or there is no
 * memory. */
static __always_inline long enter_series(const __u64 *key, __u64 word,
                                         __u32 slot, __u16 user) {
  const union nm_head head = {.word = word};
  /* For copy_name(), which stores words. */
  struct nm_series_value value __attribute__((aligned(8))) = {};

  value.slot = slot;
  value.kind = head.kind;
  value.user = user;
  copy_name(value.service_name, head.service);
  copy_name(value.destination_name, head.destination);
  return bpf_map_update_elem(&nm_series, key, &value, BPF_NOEXIST);
}

/* The slot of a series that has one; 0: it has none. As known_name(). */
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

/* Says up to where slots have been handed out, before one is used: readers look no
 * further. That is in order, but for those that retire gave back before a growth put new
 * ones behind them. Another CPU may do the same: it is too much then, which does no
 * harm. */
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

/* The slot of a series that is not a reserved one, made if it is new. 0: there
 * is no room, or `user` has his share. */
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
        is_capped(*(volatile __u32 *)&account->series,
                  nm_config.max_user_series, stats->series_used,
                  nm_config.max_series - NM_SLOT_FIRST)) {
      COUNT(series_capped, 1);
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

/* What nm_slot_of_series() returns beside the slot: what the series is. */
#define NM_SLOT_MASK 0xffff
#define NM_SLOT_OVERFLOW 0x10000
#define NM_SLOT_PENDING 0x20000

/* The slot of a series, made if it is new; writes the head of this CPU's cell, of the
 * spare one, and of the connections'. Where there is no room for it, the slot is that
 * of the overflow series. `word` is a union nm_head. */
NM_GLOBAL __u32 nm_slot_of_series(__u64 word, __u32 user) {
  union nm_head head = {.word = word};
  struct nm_cell *cell;
  struct nm_tcp *tcp;
  __u32 slot = 0;

  if (head.kind == NM_KIND_UNATTRIBUTED && !NM_UPLINK_OF(head.path)) {
    slot = NM_SLOT_RESERVED(NM_NAME_UNATTRIBUTED, head.transport, head.path);
  } else {
    if (head.kind != NM_KIND_OVERFLOW) slot = ordinary_slot(word, user);
    /* One register up to here, and one from there on, and not one for each of its
     * fields: the stack is scarce. */
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
  cell = spare_cell(slot);
  if (cell && write_head(cell, word)) COUNT(heads, 1);
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

/* The slot of a connection by its owner alone: at its end, where no packet
 * tells more. */
static __always_inline __u32 slot_of_owner(struct nm_owner *owner, __u8 path) {
  union nm_attribution attribution = attribution_of(owner);
  union nm_head head = {};

  head.service = attribution.service;
  head.kind = attribution.kind;
  head.flags = attribution.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = path;
  if (has_destinations(attribution.kind))
    head.destination = owner->tag ? owner->tag : owner->wire_destination;
  return nm_slot_of_series(head.word, owner->user) & NM_SLOT_MASK;
}

#endif /* NETMETER_BPF_SLOT_BPF_H_ */
