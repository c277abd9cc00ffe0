/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Reuse of idle slots and names. The loader finds them, and removes their keys from
 * nm_series and nm_name_ids, so that no program finds them any more
 * (lib/evict/evict.h). These programs write the frozen maps and read the socket storage
 * for it:
 *
 *   fold    adds the totals of an unused slot to the series `evicted` of its kind,
 *           clears its cells and gives it back. The first folded slot of a kind becomes
 *           this series itself, so that the series takes no extra room
 *   forget  gives back the id of a name that nothing refers to
 *   scan    marks what the owners of sockets refer to: nm_scan, for each of them
 *
 * One run folds one slot, or forgets one name, and a program runs to its end even if the
 * loader dies. So no total is ever lost or counted twice. A run makes nm_stats.moves odd
 * at its beginning and even at its end (count_move()). A reader that overlaps sees that,
 * and reads again.
 *
 * Only the loader deletes keys from nm_series and nm_name_ids, and only between its waits
 * for all running programs. The kernel may give the entry of a deleted key to the next
 * key at once. So while nm_stats.sweeping is set, a program looks up each key twice:
 * known_series(), known_name().
 */
#ifndef NETMETER_BPF_EVICT_BPF_H_
#define NETMETER_BPF_EVICT_BPF_H_

#include "bpf/slot.bpf.h"

/* Clears one cell of a slot that is given back, and moves its counts to the shared cell
 * of the slot `to`. */
NM_GLOBAL int nm_fold_cell(__u32 slot, __u32 number, __u32 to) {
  volatile __u64 *from = (__u64 *)cell_of(slot, number);
  __u64 *target = (__u64 *)shared_cell(to);

  if (!from || !target) return 0;
  for (__u32 i = 1; i < sizeof(struct nm_cell) / sizeof(*target); i++) {
    __sync_fetch_and_add(&target[i], from[i]);
    from[i] = 0;
  }
  from[0] = 0;
  return 0;
}

NM_GLOBAL int nm_fold_tcp(__u32 slot, __u32 to) {
  volatile __u64 *from = (__u64 *)tcp_of_slot(slot);
  __u64 *target = (__u64 *)tcp_of_slot(to);

  if (!from || !target) return 0;
  for (__u32 i = 1; i < sizeof(struct nm_tcp) / sizeof(*target); i++) {
    __sync_fetch_and_add(&target[i], from[i]);
    from[i] = 0;
  }
  from[0] = 0;
  return 0;
}

/* Turns a slot into another series, keeping its counts. */
NM_GLOBAL int nm_rename_slot(__u32 slot, __u64 word) {
  const union nm_head head = {.word = word};
  volatile __u64 *value;

  for (__u32 i = 0; i < NM_MAX_CELLS; i++) {
    if (i >= nm_config.cells_per_series) break;
    value = (__u64 *)cell_of(slot, i);
    if (value) *value = word;
  }
  value = (__u64 *)tcp_of_slot(slot);
  if (value && head.transport == NM_TRANSPORT_TCP) *value = word;
  return 0;
}

/* A pending series has the kind of its name. */
static __always_inline __u16 evicted_kind(const union nm_head *head) {
  return head->kind == NM_KIND_PENDING ? nm_kind_of_name(head->service)
                                       : head->kind;
}

/* The slot of the series `evicted` for a series with this head. If there is none, `slot`
 * becomes it. 0: no memory. */
NM_GLOBAL __u32 nm_evicted_slot(__u64 word, __u32 slot) {
  union nm_head head = {.word = word};
  struct nm_series_value value = {
      .slot = slot, .kind = NM_KIND_EVICTED, .service_name = "evicted"};
  struct nm_series_key key = {};
  struct nm_series_value *known;

  head.destination = evicted_kind(&head);
  head.service = NM_NAME_UNATTRIBUTED; /* not 0: in use */
  head.kind = NM_KIND_EVICTED;
  head.flags = 0;
  key.service = head.service;
  key.destination = head.destination;
  key.transport = head.transport;
  key.path = head.path;
  key.special = NM_SPECIAL_EVICTED;
  known = bpf_map_lookup_elem(&nm_series, &key);
  if (known) return known->slot;
  if (bpf_map_update_elem(&nm_series, &key, &value, BPF_NOEXIST)) return 0;
  nm_rename_slot(slot, head.word);
  return slot;
}

/* Gives back a part of a user's quota. The account may have been reset since. */
static __always_inline void give_back(__u32 *quota) {
  if ((__s32) * (volatile __u32 *)quota > 0) __sync_fetch_and_add(quota, -1);
}

/* Folds one slot. Not 0: refused. */
NM_GLOBAL int nm_fold_slot(__u32 slot, __u32 user) {
  struct nm_cell *shared = shared_cell(slot);
  union nm_head head = {};
  struct nm_user *account;
  __u32 to;

  if (!shared || slot < NM_SLOT_FIRST) return -1;
  head.word = *(volatile __u64 *)shared;
  if (!head.service || head.kind == NM_KIND_UNATTRIBUTED ||
      head.kind == NM_KIND_OVERFLOW || head.kind == NM_KIND_EVICTED)
    return -1;
  count_move();
  to = nm_evicted_slot(head.word, slot);
  if (to && to != slot) {
    for (__u32 i = 0; i < NM_MAX_CELLS; i++) {
      if (i >= nm_config.cells_per_series) break;
      nm_fold_cell(slot, i, to);
    }
    nm_fold_tcp(slot, to);
  }
  count_move();
  if (!to) return -1;
  COUNT(series_evicted, 1);
  account = user ? user_of(user) : NULL;
  if (account) give_back(&account->series);
  if (to == slot) return 0;
  COUNT(series_used, -1);
  return bpf_map_push_elem(&nm_free_slots, &slot, BPF_ANY) ? -1 : 0;
}

/* Forgets one name. Not 0: refused. */
NM_GLOBAL int nm_forget_name(__u32 id) {
  struct nm_name *name = name_of_id(id);
  struct nm_user *account;
  __u32 *wire_names;

  if (!name || id < NM_NAME_FIRST || !name->length) return -1;
  account = name->user ? user_of(name->user) : NULL;
  if (account) give_back(&account->names);
  wire_names = bpf_map_lookup_elem(&nm_wire_names, &id);
  if (wire_names) *wire_names = 0;
  count_move();
  *(volatile __u16 *)&name->length = 0;
  count_move();
  COUNT(names_used, -1);
  COUNT(names_evicted, 1);
  return bpf_map_push_elem(&nm_free_names, &id, BPF_ANY) ? -1 : 0;
}

/* One call runs this once for each element of its list (`repeat` of BPF_PROG_TEST_RUN):
 * the n-th run handles the n-th. skb->mark counts the runs, because all runs of a call
 * have the same packet. */
static __always_inline int evict_next(struct __sk_buff *skb, bool names) {
  struct nm_idle idle = {};
  __u32 at = sizeof(struct nm_command) + skb->mark * sizeof(idle);

  skb->mark++;
  if (bpf_skb_load_bytes(skb, at, &idle, sizeof(idle))) return -1;
  return names ? nm_forget_name(idle.id) : nm_fold_slot(idle.id, idle.user);
}

/* --- What sockets refer to ----------------------------------------------- */

struct bpf_iter__bpf_sk_storage_map {
  struct bpf_iter_meta *meta;
  struct bpf_map *map;
  struct sock *sk;
  struct nm_stored_owner *value;
};

static __always_inline void mark(__u32 index, __u32 bit) {
  __u32 *marks = bpf_map_lookup_elem(&nm_marks, &index);

  if (marks) *marks |= bit;
}

static __always_inline void mark_what_is_held(
    const struct nm_stored_owner *stored) {
  const struct nm_owner *owner = &stored->owner;

  mark(owner->attribution.service, NM_MARK_NAME);
  mark(owner->tag, NM_MARK_NAME);
  mark(owner->wire_destination, NM_MARK_NAME);
  mark(owner->pending_service, NM_MARK_NAME);
  mark(owner->counted, NM_MARK_SLOT);
  mark(NM_WORD_SLOT(stored->socket.word), NM_MARK_SLOT);
}

#endif /* NETMETER_BPF_EVICT_BPF_H_ */
