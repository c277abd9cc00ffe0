/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Names, each stored once. A name gets an id on its first use, and everything else refers
 * to it by that id. nm_name_ids maps a name to its id; nm_names maps an id to the bytes,
 * which readers see. An id that is no longer used anywhere is given to another name:
 * evict.bpf.h. So an id that is kept for long, such as a process's, is compared with the
 * name before it is used.
 *
 * Ids wait in a queue, nm_free_names, because 5.10 has no atomic operation that returns
 * the old value. If two CPUs meet the same new name at once, both take an id; the hash
 * map decides, and the loser puts its id back.
 *
 * Any user who can run a program can make up names, by executing, registering or sending.
 * So each user except root has a quota in the table, and all of them together leave a
 * part of it to root. If a name finds no room, it is not made: the caller gets 0, and
 * decides what to do.
 */
#ifndef NETMETER_BPF_NAMES_BPF_H_
#define NETMETER_BPF_NAMES_BPF_H_

#include "bpf/maps.bpf.h"

/* Whether the loader is deleting keys. */
static __always_inline bool is_swept(void) {
  struct nm_stats *stats = stats_of_meter();

  return stats && *(volatile __u64 *)&stats->sweeping;
}

/* The id of a known name, or 0. The loader may delete the entry after the first lookup,
 * and another key may take it. The second lookup detects that: within one run no key is
 * deleted twice (evict.bpf.h). */
static __always_inline __u32 known_name(struct nm_name_key *key) {
  __u32 *known, *again, id;

  known = bpf_map_lookup_elem(&nm_name_ids, key);
  if (!known) return 0;
  id = *(volatile __u32 *)known;
  if (!is_swept()) return id;
  again = bpf_map_lookup_elem(&nm_name_ids, key);
  if (again == known) return id;
  return again ? *(volatile __u32 *)again : 0;
}

/* The kind of a name's owner. Global: its callers have no stack left. */
NM_GLOBAL __u32 nm_kind_of_name(__u32 id) {
  struct nm_name *name = name_of_id(id);

  return name ? name->kind : NM_KIND_NONE;
}

/* Set if name_id() made the name. */
#define NM_NAME_IS_NEW (1U << 16)

/* The id of a name. A new name is made for `user`. 0: no room. */
static __noinline __u32 name_id(struct nm_name_key *key, __u16 user) {
  struct nm_name *name;
  __u32 known, id;

  if (!key) return 0;
  known = known_name(key);
  if (known) return known;
  if (bpf_map_pop_elem(&nm_free_names, &id)) {
    COUNT(names_full, 1);
    return 0;
  }
  name = name_of_id(id);
  if (!name) return 0;
  name->kind = key->kind;
  name->encoding = key->encoding;
  name->user = user;
  __builtin_memcpy(name->bytes, key->bytes, NM_NAME_BYTES);
  name->length = key->length;
  if (bpf_map_update_elem(&nm_name_ids, key, &id, BPF_NOEXIST)) {
    /* Another CPU was faster, or there was no memory. */
    name->length = 0;
    bpf_map_push_elem(&nm_free_names, &id, BPF_ANY);
    known = known_name(key);
    if (known) return known;
    COUNT(names_full, 1);
    return 0;
  }
  COUNT(names_used, 1);
  return id | NM_NAME_IS_NEW;
}

static __always_inline __u16 current_user(void) {
  return nm_user_of_uid((__u32)bpf_get_current_uid_gid());
}

/* Whether the current process may be the service of this name. Its real ids decide,
 * because a setuid program acts for its caller. */
static __always_inline bool may_be_service(const void *name) {
  struct nm_registrant *registrant;
  __u64 ids;

  if (!nm_config.registrants) return true;
  registrant = bpf_map_lookup_elem(&nm_registrants, name);
  if (!registrant) return true;
  ids = bpf_get_current_uid_gid();
  if (!(__u32)ids) return true;
  if (registrant->kind == NM_REGISTRANT_GID) ids >>= 32;
  return (__u32)ids == registrant->id;
}

static __always_inline struct nm_user *user_of(__u16 user) {
  __u32 bucket = (user - 1) & (NM_USER_BUCKETS - 1);

  return bpf_map_lookup_elem(&nm_users, &bucket);
}

/* Whether one more would exceed the user's quota, or take what is left for root. */
static __always_inline bool is_over_quota(__u32 used_by_user, __u32 quota,
                                          __u64 used, __u32 size) {
  return used_by_user >= quota || used + quota >= size;
}

/* name_id() within the quota of `user`; also 0 if the quota is used up. A name that
 * exists already counts against no quota. */
static __noinline __u32 name_id_for_user(struct nm_name_key *key, __u16 user) {
  struct nm_stats *stats = stats_of_meter();
  struct nm_user *account;
  __u32 known, id;

  if (!key || !stats) return 0;
  known = known_name(key);
  if (known) return known;
  if (!user) return name_id(key, 0) & 0xffff;
  account = user_of(user);
  if (!account || is_over_quota(*(volatile __u32 *)&account->names,
                                nm_config.max_user_names, stats->names_used,
                                nm_config.max_names - NM_NAME_FIRST)) {
    COUNT(names_over_quota, 1);
    return 0;
  }
  __sync_fetch_and_add(&account->names, 1);
  id = name_id(key, user);
  /* Another CPU may have made it first. */
  if (!(id & NM_NAME_IS_NEW)) __sync_fetch_and_add(&account->names, -1);
  return id & 0xffff;
}

/* The length up to the first NUL. Without branches, because the verifier would continue
 * from each length separately. */
static __always_inline __u16 text_length(const char *bytes) {
  __u32 length = 0, more = 1;

  for (int i = 0; i < NM_NAME_BYTES; i++) {
    more &= ((__u8)bytes[i] + 255u) >> 8; /* 0 for a NUL, else 1 */
    length += more;
  }
  return length;
}

#endif /* NETMETER_BPF_NAMES_BPF_H_ */
