/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The state of a socket between two packets, and where it is kept.
 *
 * A socket has two records. Its owner (struct nm_owner) has the process that made it, and
 * its later names. The owner lives in socket storage, which BPF_F_CLONE copies to the
 * sockets that accept(2) returns. Its state (struct nm_socket) has the slot of its series
 * and the TCP sequence numbers, which every packet needs.
 *
 * A lookup in socket storage costs more than all other work for a packet. So the state
 * lives in the socket table, an array: the low bits of the socket's cookie are the index,
 * and the entry holds the low 48 bits. A packet computes the index and compares one word,
 * which is the cookie and the slot together. If another socket has that entry, the entry
 * half a table away may be free: cookies are given in sequence, so the neighbours of a
 * taken entry are taken, too. So it never sees one socket's cookie with
 * another socket's slot. The first packet claims the entry, under a spin lock because
 * 5.10 has no compare-and-exchange. The end of the socket frees the entry, and moves the
 * state to the owner, where a late RST still finds it.
 *
 * If other sockets have both entries, the state is kept with the owner. Such a socket is
 * counted just as exactly, on the full path. A socket whose end no hook would report (it
 * was open before the load) is treated alike, because its entry would never be freed.
 *
 * A cookie is never used twice. So neither a late packet nor a missed end can confuse two
 * sockets.
 */
#ifndef NETMETER_BPF_SOCKET_BPF_H_
#define NETMETER_BPF_SOCKET_BPF_H_

#include "bpf/process.bpf.h"

/* --- The socket table ---------------------------------------------------- */

/* One of the two entries that a socket may have: 0 or 1. */
static __always_inline struct nm_entry *entry_at(__u64 cookie, __u32 which) {
  __u32 index =
      (cookie ^ which * nm_config.socket_half) & nm_config.socket_mask;

  return bpf_map_lookup_elem(&nm_sockets, &index);
}

static __always_inline bool has_entry(const struct nm_entry *entry,
                                      __u64 cookie) {
  return entry && NM_WORD_COOKIE(*(volatile __u64 *)&entry->socket.word) ==
                      NM_COOKIE(cookie);
}

/* The entry of a socket; NULL: it has none. */
static __always_inline struct nm_entry *entry_of_cookie(__u64 cookie) {
  struct nm_entry *entry = entry_at(cookie, 0);

  if (has_entry(entry, cookie)) return entry;
  entry = entry_at(cookie, 1);
  return has_entry(entry, cookie) ? entry : NULL;
}

/* Takes a socket's entry out of the table, and copies its state to *keep. Two CPUs may
 * have claimed both entries for one UDP socket. */
static __noinline int free_entry(__u64 cookie, struct nm_socket *keep) {
  if (!keep) return 0;
  for (__u32 which = 0; which < 2; which++) {
    struct nm_entry *entry = entry_at(cookie, which);
    bool freed = false;

    if (!entry || !has_entry(entry, cookie)) continue;
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie)) {
      *keep = entry->socket;
      __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
      freed = true;
    }
    bpf_spin_unlock(&entry->lock);
    if (freed) COUNT(sockets_freed, 1);
  }
  return 0;
}

/* Claims an entry of the table for a socket; NULL if other sockets have both. */
static __always_inline struct nm_socket *claim_entry(__u64 cookie) {
  for (__u32 which = 0; which < 2; which++) {
    struct nm_entry *entry = entry_at(cookie, which);
    bool claimed = false;

    if (!entry) return NULL;
    bpf_spin_lock(&entry->lock);
    if (!entry->socket.word) {
      __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
      entry->socket.word = NM_COOKIE(cookie);
      claimed = true;
    }
    bpf_spin_unlock(&entry->lock);
    if (claimed) COUNT(sockets_claimed, 1);
    if (has_entry(entry, cookie)) return &entry->socket;
  }
  COUNT(socket_collisions, 1);
  return NULL;
}

/* --- Owner and state of a socket ----------------------------------------- */

/* The owner of a socket. A socket without one was made by the kernel, or before the meter
 * was loaded. NULL: no memory. */
static __always_inline struct nm_owner *owner_of_socket(struct bpf_sock *sk,
                                                        __u64 cookie) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  if (owner) return owner;
  owner = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!owner) {
    COUNT(storage_failed_packets, 1);
    return NULL;
  }
  owner->attribution.service = NM_NAME_UNATTRIBUTED;
  owner->attribution.kind = NM_KIND_UNATTRIBUTED;
  owner->preexisting = (__u32)cookie;
  COUNT(unowned_sockets, 1);
  return owner;
}

/* The state of a socket, in the table or with its owner. NULL: it has none. */
static __always_inline struct nm_socket *state_of_socket(struct nm_owner *owner,
                                                         __u64 cookie) {
  struct nm_entry *entry = entry_of_cookie(cookie);

  if (entry) return &entry->socket;
  if (owner && NM_WORD_COOKIE(owner->socket.word) == NM_COOKIE(cookie))
    return &owner->socket;
  return NULL;
}

/* The state of a socket that is not in the table. Makes it on the socket's first packet.
 * A TCP connection may do so on egress only, where its lock is held: two states of one
 * connection would count sequences twice. */
static __always_inline struct nm_socket *find_socket(struct nm_owner *owner,
                                                     __u64 cookie,
                                                     bool may_claim) {
  struct nm_socket *socket;

  if (!owner) return NULL;
  if (NM_WORD_COOKIE(owner->socket.word) == NM_COOKIE(cookie))
    return &owner->socket;
  if (!may_claim) return NULL;
  owner->cookie = cookie;
  if ((owner->flags & (NM_OWNER_END_IS_TOLD | NM_OWNER_CLOSED |
                       NM_OWNER_SUBFLOW)) == NM_OWNER_END_IS_TOLD) {
    socket = claim_entry(cookie);
    if (socket && !(*(volatile __u8 *)&owner->flags & NM_OWNER_CLOSED))
      return socket;
    /* The socket closed on another CPU meanwhile, which found no entry to free. */
    if (socket) {
      free_entry(cookie, &owner->socket);
      return &owner->socket;
    }
  }
  __builtin_memset(&owner->socket, 0, sizeof(owner->socket));
  owner->socket.word = NM_COOKIE(cookie);
  return &owner->socket;
}

/* Whether a socket is older than the meter. */
static __always_inline bool is_preexisting(const struct nm_owner *owner,
                                           __u64 cookie) {
  return owner && owner->preexisting == (__u32)cookie;
}

/* One load, so that no packet sees half of a change. */
static __always_inline union nm_attribution attribution_of(
    struct nm_owner *owner) {
  union nm_attribution attribution = {
      .word = *(volatile __u32 *)&owner->attribution.word};

  return attribution;
}

/* Makes the next packet look up its series again, because its owner's name changed. */
static __always_inline void forget_slot(struct nm_owner *owner) {
  if (!owner->cookie) return;
  for (__u32 which = 0; which < 2; which++) { /* as free_entry() */
    struct nm_entry *entry = entry_at(owner->cookie, which);

    if (!entry || !has_entry(entry, owner->cookie)) continue;
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(owner->cookie))
      entry->socket.word = NM_COOKIE(owner->cookie);
    bpf_spin_unlock(&entry->lock);
  }
  owner->socket.word = NM_WORD_COOKIE(owner->socket.word);
}

/* Keeps a slot with the state of the packet's socket. 0: none. Takes the lock of the
 * table's entry, because ingress has no lock of the socket. The socket may have closed on
 * another CPU, and another socket may have the entry by now. */
NM_GLOBAL int nm_store_slot(struct __sk_buff *skb, __u32 slot) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_entry *entry = entry_of_cookie(cookie);
  const __u64 word = NM_COOKIE(cookie) | (slot & 0xffff);
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner;

  if (entry) {
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie))
      entry->socket.word = word;
    bpf_spin_unlock(&entry->lock);
  }
  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  if (owner && NM_WORD_COOKIE(owner->socket.word) == NM_COOKIE(cookie))
    *(volatile __u64 *)&owner->socket.word = word;
  return 0;
}

/* --- Life of a socket ---------------------------------------------------- */

/* A process made a socket. The socket keeps the process's current name. */
static __always_inline void socket_created(struct bpf_sock *sk) {
  __u32 tgid = bpf_get_current_pid_tgid() >> 32, execs;
  struct nm_process *process, made = {};
  struct nm_owner *owner =
      bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

  if (!owner) {
    COUNT(storage_failed_sockets, 1);
    return;
  }
  owner->tgid = tgid;
  owner->start = NM_START(process_start_ns(&execs) / NM_TICK_NS);
  owner->user = current_user();
  owner->network = bpf_get_netns_cookie(sk);
  owner->attribution.service = NM_NAME_UNATTRIBUTED;
  owner->attribution.kind = NM_KIND_UNATTRIBUTED;
  /* TCP sockets may outlive their process: sockops tells when they end. */
  if (sk->protocol != IPPROTO_TCP) owner->flags = NM_OWNER_END_IS_TOLD;

  process = process_of_new_socket(tgid, &made);
  if (!process) return;
  owner->attribution.kind = process->kind;
  owner->attribution.service = process->name;
  owner->attribution.flags = process->flags & NM_FLAG_REGISTERED;
  if (!process->name) {
    owner->attribution.kind = NM_KIND_OVERFLOW;
    owner->attribution.service = NM_NAME_OVERFLOW;
  }
}

/* The last descriptor of a socket was closed. TCP goes on after that, up to
 * STATE_CB: connection.bpf.h. */
static __always_inline void socket_released(struct bpf_sock *sk) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  if (!owner || sk->protocol == IPPROTO_TCP) return;
  owner->flags |= NM_OWNER_CLOSED;
  /* By its own cookie: a packet on another CPU may just be setting the owner's. */
  free_entry(bpf_get_socket_cookie(sk), &owner->socket);
}

#endif /* NETMETER_BPF_SOCKET_BPF_H_ */
