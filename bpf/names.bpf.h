/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/* Names, processes and series: everything that is resolved once. */
#ifndef NETMETER_BPF_NAMES_BPF_H_
#define NETMETER_BPF_NAMES_BPF_H_

#include "bpf/maps.bpf.h"

static __always_inline struct nm_stats *stats_of_meter(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&nm_stats, &zero);
}

/* Adds to one field of stats. */
#define COUNT(field, amount)                                  \
  do {                                                        \
    struct nm_stats *stats_ = stats_of_meter();               \
    if (stats_) __sync_fetch_and_add(&stats_->field, amount); \
  } while (0)

/* The id of a name, which is made if it is new; 0 if there is no room. */
static __noinline __u32 name_id(struct nm_name_key *key) {
  struct nm_name *name;
  __u32 *known, id;

  if (!key) return 0;
  known = bpf_map_lookup_elem(&nm_name_ids, key);
  if (known) return *known;
  if (bpf_map_pop_elem(&nm_free_names, &id)) {
    COUNT(names_full, 1);
    return 0;
  }
  name = bpf_map_lookup_elem(&nm_names, &id);
  if (!name) return 0;
  name->kind = key->kind;
  name->encoding = key->encoding;
  __builtin_memcpy(name->bytes, key->bytes, NM_NAME_BYTES);
  name->length = key->length;
  if (bpf_map_update_elem(&nm_name_ids, key, &id, BPF_NOEXIST)) {
    /* Another CPU was faster, or there was no memory. */
    name->length = 0;
    bpf_map_push_elem(&nm_free_names, &id, BPF_ANY);
    known = bpf_map_lookup_elem(&nm_name_ids, key);
    if (known) return *known;
    COUNT(names_full, 1);
    return 0;
  }
  COUNT(names_used, 1);
  return id;
}

static __always_inline __u16 current_user(void) {
  return nm_user_of_uid((__u32)bpf_get_current_uid_gid());
}

static __always_inline struct nm_user *user_of(__u16 user) {
  __u32 bucket = (user - 1) & (NM_USER_BUCKETS - 1);

  return bpf_map_lookup_elem(&nm_users, &bucket);
}

/* Whether one more is beyond a user's share, or of what is left for root. */
static __always_inline bool is_capped(__u32 used_by_user, __u32 share,
                                      __u64 used, __u32 size) {
  return used_by_user >= share || used + share >= size;
}

/* name_id() for what a user makes up, himself or by what he executes or sends:
 * nobody but root can take all names from the others. */
static __noinline __u32 name_id_for_user(struct nm_name_key *key, __u16 user) {
  struct nm_stats *stats = stats_of_meter();
  struct nm_user *account;
  __u32 *known, id;

  if (!key || !stats) return 0;
  known = bpf_map_lookup_elem(&nm_name_ids, key);
  if (known) return *known;
  if (!user) return name_id(key);
  account = user_of(user);
  if (!account || is_capped(*(volatile __u32 *)&account->names,
                            nm_config.max_user_names, stats->names_used,
                            nm_config.max_names - NM_NAME_FIRST)) {
    COUNT(names_capped, 1);
    return 0;
  }
  __sync_fetch_and_add(&account->names, 1);
  id = name_id(key);
  if (!id) __sync_fetch_and_add(&account->names, -1);
  return id;
}

static __always_inline __u16 text_length(const __u8 *bytes) {
  __u16 length = 0;

  for (int i = 0; i < NM_NAME_BYTES; i++) {
    if (!bytes[i]) break;
    length = i + 1;
  }
  return length;
}

/* Gives a process its name's id; NM_NAME_OVERFLOW if there is no room. */
static __always_inline void name_process(struct nm_process *process) {
  struct nm_name_key key = {};
  __u32 id;

  if (process->name) return;
  key.kind = process->kind;
  __builtin_memcpy(key.bytes, process->bytes, NM_NAME_BYTES);
  key.length = text_length(key.bytes);
  id = name_id_for_user(&key, current_user());
  if (id) process->name = id;
}

/* Names a process by its executable, or by the service that this is. */
static __always_inline void classify(struct nm_process *process) {
  __u8(*service)[NM_NAME_BYTES] =
      bpf_map_lookup_elem(&nm_binaries, process->bytes);

  process->kind = NM_KIND_BINARY;
  if (!service) return;
  process->kind = NM_KIND_SERVICE;
  __builtin_memcpy(process->bytes, *service, NM_NAME_BYTES);
}

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

static __always_inline struct nm_cell *cell_of_slot(__u32 slot) {
  __u32 index =
      slot * nm_config.num_cpus + bpf_get_smp_processor_id();

  return bpf_map_lookup_elem(&nm_counters, &index);
}

static __always_inline struct nm_tcp *tcp_of_slot(__u32 slot) {
  return bpf_map_lookup_elem(&nm_tcp, &slot);
}

/* The slot of a series, which is made if it is new; writes the head of this
 * CPU's cell. Full, or beyond the user's share: the overflow slot of the same
 * transport and path. */
static __noinline __u32 slot_of_series(union nm_head *head, __u16 user) {
  struct nm_series_key key = {};
  struct nm_series_value *known, value = {};
  struct nm_name *name;
  struct nm_cell *cell;
  struct nm_user *account = NULL;
  struct nm_stats *stats;
  struct nm_tcp *tcp;
  __u32 slot, id;

  if (!head) return 0;
  if (head->kind == NM_KIND_UNATTRIBUTED || head->kind == NM_KIND_OVERFLOW) {
    slot = NM_SLOT_RESERVED(head->kind == NM_KIND_OVERFLOW
                                ? NM_NAME_OVERFLOW
                                : NM_NAME_UNATTRIBUTED,
                            head->transport, head->path);
    goto found;
  }
  key.service = head->service;
  key.destination = head->destination;
  key.transport = head->transport;
  key.path = head->path;
  key.pending = head->kind == NM_KIND_PENDING;
  known = bpf_map_lookup_elem(&nm_series, &key);
  if (known) {
    slot = known->slot;
    goto found;
  }
  if (user) {
    stats = stats_of_meter();
    account = user_of(user);
    if (!stats || !account ||
        is_capped(*(volatile __u32 *)&account->series,
                  nm_config.max_user_series, stats->series_used,
                  nm_config.max_series - NM_SLOT_FIRST)) {
      COUNT(series_capped, 1);
      goto overflow;
    }
  }
  if (bpf_map_pop_elem(&nm_free_slots, &slot)) goto full;
  COUNT(slots_taken, 1);
  value.slot = slot;
  value.kind = head->kind;
  id = head->service;
  name = bpf_map_lookup_elem(&nm_names, &id);
  if (name) __builtin_memcpy(value.service_name, name->bytes, NM_NAME_BYTES);
  id = head->destination;
  name = bpf_map_lookup_elem(&nm_names, &id);
  if (name)
    __builtin_memcpy(value.destination_name, name->bytes, NM_NAME_BYTES);
  if (bpf_map_update_elem(&nm_series, &key, &value, BPF_NOEXIST)) {
    bpf_map_push_elem(&nm_free_slots, &slot, BPF_ANY);
    known = bpf_map_lookup_elem(&nm_series, &key);
    if (!known) goto full;
    slot = known->slot;
    goto found;
  }
  COUNT(series_used, 1);
  if (account) __sync_fetch_and_add(&account->series, 1);
  goto found;

full:
  COUNT(series_full, 1);
overflow:
  head->service = NM_NAME_OVERFLOW;
  head->destination = NM_NAME_EMPTY;
  head->kind = NM_KIND_OVERFLOW;
  head->flags = 0;
  slot = NM_SLOT_RESERVED(NM_NAME_OVERFLOW, head->transport, head->path);

found:
  cell = cell_of_slot(slot);
  if (cell) {
    head->flags |= cell->flags;
    if (*(volatile __u64 *)cell != head->word)
      *(volatile __u64 *)cell = head->word;
  }
  if (head->transport == NM_TRANSPORT_TCP) {
    tcp = tcp_of_slot(slot);
    if (tcp && *(volatile __u64 *)tcp != head->word)
      *(volatile __u64 *)tcp = head->word;
  }
  return slot;
}

#endif /* NETMETER_BPF_NAMES_BPF_H_ */
