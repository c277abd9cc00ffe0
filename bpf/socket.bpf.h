/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The state of a socket between two packets, and where it is kept.
 *
 * A socket has two records. Its owner (struct nm_owner) has the process that made it, and
 * its later names. Its state (struct nm_socket) has the slot of its series and the TCP
 * sequence numbers, which every packet needs.
 *
 * Socket storage is slow: a lookup costs more than all other work for a packet, and an
 * allocation costs as much as a third of a short connection. So both records live in the
 * socket table, an array. The index is the low bits of the socket's cookie. A packet
 * compares one word, which has 48 bits of the cookie and the slot. One word holds both,
 * so a packet never combines one socket's cookie with another's slot. If another socket
 * has that entry, the entry half a table away may be free. The neighbours of a taken
 * entry are taken, too, because cookies are given in sequence. An entry is claimed under
 * a spin lock, because 5.10 has no compare-and-exchange.
 *
 *   TCP, made by    sock_create claims the entry for the owner and the state. The entry
 *   a process       is free again when the last descriptor is closed and TCP has ended.
 *                   It stays readable: a late RST finds it, and so does connect(2) on a
 *                   closed socket
 *   ... if it needs the owner moves to socket storage, and never back: to listen, because
 *   more            accept(2) copies storage (BPF_F_CLONE); while its destination is
 *                   pending; if it retransmits before it has a series; if a RST may
 *                   follow close(2). Its entry is then as that of an accepted socket
 *   accepted, UDP   the owner is in socket storage. The first packet claims an entry for
 *   and others      the state, or accept(2), if the series is known then. The end frees
 *                   it, and moves the state to the owner, where a late RST finds it
 *   all others      both are in socket storage: sockets that are older than the meter,
 *                   whose end no hook may report; those of MPTCP; and if other sockets
 *                   have both entries. They count as exactly, on the full path
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

/* Whether the owner of an entry's socket is in the entry. */
static __always_inline bool is_owned(const struct nm_entry *entry) {
  return entry && *(volatile __u8 *)&entry->socket.life & NM_LIFE_OWNED;
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

/* Claims an entry of the table for a socket, with this slot. If `life` has NM_LIFE_OWNED,
 * the caller writes the owner. NULL if other sockets have both. */
static __always_inline struct nm_entry *claim_entry(__u64 cookie, __u32 slot,
                                                    __u8 life) {
  for (__u32 which = 0; which < 2; which++) {
    struct nm_entry *entry = entry_at(cookie, which);
    bool claimed = false;

    if (!entry) return NULL;
    bpf_spin_lock(&entry->lock);
    if (!entry->socket.word ||
        (entry->socket.life & NM_LIFE_OVER) == NM_LIFE_OVER) {
      __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
      entry->socket.life = life;
      entry->socket.word = NM_COOKIE(cookie) | slot;
      claimed = true;
    }
    bpf_spin_unlock(&entry->lock);
    if (claimed) COUNT(sockets_claimed, 1);
    if (has_entry(entry, cookie)) return entry;
  }
  COUNT(socket_collisions, 1);
  return NULL;
}

/* Notes that a socket is released, or that TCP has ended: NM_LIFE_*. With both, another
 * socket may have its entry. */
static __always_inline void end_life(struct nm_entry *entry, __u64 cookie,
                                     __u8 life) {
  __u8 before = NM_LIFE_OVER, after = 0;

  bpf_spin_lock(&entry->lock);
  if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie)) {
    before = entry->socket.life;
    after = before | life;
    entry->socket.life = after;
  }
  bpf_spin_unlock(&entry->lock);
  if ((before & NM_LIFE_OVER) != NM_LIFE_OVER &&
      (after & NM_LIFE_OVER) == NM_LIFE_OVER)
    COUNT(sockets_freed, 1);
}

/* --- Owner and state of a socket ----------------------------------------- */

static __always_inline struct nm_stored_owner *stored_owner(void *sk) {
  return bpf_sk_storage_get(&nm_owners, sk, 0, 0);
}

/* The owner of a socket. *stored: the storage that has it; NULL: the table has it. */
static __always_inline struct nm_owner *owner_of(
    struct bpf_sock *sk, __u64 cookie, struct nm_stored_owner **stored) {
  struct nm_entry *entry = entry_of_cookie(cookie);

  *stored = NULL;
  if (is_owned(entry)) return &entry->owner;
  *stored = stored_owner(sk);
  return *stored ? &(*stored)->owner : NULL;
}

/* Moves a socket's owner from its entry to socket storage. NULL: no memory, and the owner
 * stays. The socket's lock is held, except for a listener and in sock_release. */
static __noinline struct nm_stored_owner *store_owner(struct bpf_sock *sk,
                                                      __u64 cookie) {
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_stored_owner *stored;

  if (!entry || !sk) return NULL;
  stored = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!stored) {
    COUNT(storage_failed_sockets, 1);
    return NULL;
  }
  if (!is_owned(entry)) return stored;
  stored->owner = entry->owner;
  stored->start = entry->start;
  stored->cookie = cookie;
  bpf_spin_lock(&entry->lock);
  if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie))
    entry->socket.life &= ~NM_LIFE_OWNED;
  bpf_spin_unlock(&entry->lock);
  return stored;
}

/* As owner_of(). A socket without an owner was made by the kernel, or before the meter
 * was loaded, and gets one. NULL: no memory. */
static __always_inline struct nm_owner *make_owner(
    struct bpf_sock *sk, __u64 cookie, struct nm_stored_owner **stored) {
  struct nm_owner *owner = owner_of(sk, cookie, stored);

  if (owner) return owner;
  *stored = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!*stored) {
    COUNT(storage_failed_packets, 1);
    return NULL;
  }
  owner = &(*stored)->owner;
  owner->attribution.service = NM_NAME_UNATTRIBUTED;
  owner->attribution.kind = NM_KIND_UNATTRIBUTED;
  (*stored)->preexisting = (__u32)cookie;
  COUNT(unowned_sockets, 1);
  return owner;
}

/* The state of a socket, in the table or with its stored owner. NULL: it has none. */
static __always_inline struct nm_socket *state_of_socket(
    struct nm_stored_owner *stored, __u64 cookie) {
  struct nm_entry *entry = entry_of_cookie(cookie);

  if (entry) return &entry->socket;
  if (stored && NM_WORD_COOKIE(stored->socket.word) == NM_COOKIE(cookie))
    return &stored->socket;
  return NULL;
}

/* The state of a socket that is not in the table. Makes it on the socket's first packet.
 * A TCP connection may do so on egress only, where its lock is held: two states of one
 * connection would count sequences twice. */
static __always_inline struct nm_socket *find_socket(
    struct nm_stored_owner *stored, __u64 cookie, bool may_claim) {
  struct nm_entry *entry;

  if (!stored) return NULL;
  if (NM_WORD_COOKIE(stored->socket.word) == NM_COOKIE(cookie))
    return &stored->socket;
  if (!may_claim) return NULL;
  stored->cookie = cookie;
  if ((stored->owner.flags & (NM_OWNER_END_IS_TOLD | NM_OWNER_CLOSED |
                              NM_OWNER_SUBFLOW)) == NM_OWNER_END_IS_TOLD) {
    entry = claim_entry(cookie, 0, 0);
    if (entry && !(*(volatile __u8 *)&stored->owner.flags & NM_OWNER_CLOSED))
      return &entry->socket;
    /* The socket closed on another CPU meanwhile, which found no entry to free. */
    if (entry) {
      free_entry(cookie, &stored->socket);
      return &stored->socket;
    }
  }
  __builtin_memset(&stored->socket, 0, sizeof(stored->socket));
  stored->socket.word = NM_COOKIE(cookie);
  return &stored->socket;
}

/* Whether a socket is older than the meter. */
static __always_inline bool is_preexisting(const struct nm_stored_owner *stored,
                                           __u64 cookie) {
  return stored && stored->preexisting == (__u32)cookie;
}

/* One load, so that no packet sees half of a change. */
static __always_inline union nm_attribution attribution_of(
    struct nm_owner *owner) {
  union nm_attribution attribution = {
      .word = *(volatile __u32 *)&owner->attribution.word};

  return attribution;
}

/* Makes the next packet look up its series again, because its owner's name changed. */
static __always_inline void forget_slot(struct nm_stored_owner *stored,
                                        __u64 cookie) {
  for (__u32 which = 0; which < 2; which++) { /* as free_entry() */
    struct nm_entry *entry = entry_at(cookie, which);

    if (!entry || !has_entry(entry, cookie)) continue;
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie))
      entry->socket.word = NM_COOKIE(cookie);
    bpf_spin_unlock(&entry->lock);
  }
  if (stored) stored->socket.word = NM_WORD_COOKIE(stored->socket.word);
}

/* Keeps a slot with the state of the packet's socket. 0: none. Takes the lock of the
 * table's entry, because ingress has no lock of the socket. The socket may have closed on
 * another CPU, and another socket may have the entry by now. */
NM_GLOBAL int nm_store_slot(struct __sk_buff *skb, __u32 slot) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_entry *entry = entry_of_cookie(cookie);
  const __u64 word = NM_COOKIE(cookie) | (slot & 0xffff);
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored;

  if (entry) {
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie))
      entry->socket.word = word;
    bpf_spin_unlock(&entry->lock);
    if (is_owned(entry)) return 0;
  }
  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  stored = stored_owner(sk);
  if (stored && NM_WORD_COOKIE(stored->socket.word) == NM_COOKIE(cookie))
    *(volatile __u64 *)&stored->socket.word = word;
  return 0;
}

/* --- Life of a socket ---------------------------------------------------- */

/* Linux 6.2 and newer. Programs of sock_create may call bpf_get_retval() since 6.1. */
enum bpf_func_id___6_2 { BPF_FUNC_cgrp_storage_get___6_2 = 210 };

/* Whether another program has refused the socket, whose end no hook tells then. */
static __always_inline bool is_refused(void) {
  return bpf_core_enum_value_exists(enum bpf_func_id___6_2,
                                    BPF_FUNC_cgrp_storage_get___6_2) &&
         bpf_get_retval();
}

/* A process made a socket. The socket keeps the process's current name. */
static __always_inline void socket_created(struct bpf_sock *sk) {
  __u32 tgid = bpf_get_current_pid_tgid() >> 32, execs, start;
  struct nm_process *process, made = {};
  struct nm_stored_owner *stored;
  struct nm_entry *entry = NULL;
  struct nm_owner owner = {};

  start = NM_START(process_start_ns(&execs) / NM_TICK_NS);
  owner.tgid = tgid;
  owner.user = current_user();
  owner.network = bpf_get_netns_cookie(sk);
  owner.attribution.service = NM_NAME_UNATTRIBUTED;
  owner.attribution.kind = NM_KIND_UNATTRIBUTED;
  /* TCP sockets may outlive their process: sockops tells when they end. */
  if (sk->protocol != IPPROTO_TCP) owner.flags = NM_OWNER_END_IS_TOLD;

  process = process_of_new_socket(tgid, &made);
  if (process) {
    owner.attribution.kind = process->kind;
    owner.attribution.service = process->name;
    owner.attribution.flags = process->flags & NM_FLAG_REGISTERED;
    if (!process->name) {
      owner.attribution.kind = NM_KIND_OVERFLOW;
      owner.attribution.service = NM_NAME_OVERFLOW;
    }
  }
  if (is_refused()) return;
  if (sk->type == SOCK_STREAM && sk->protocol == IPPROTO_TCP)
    entry = claim_entry(bpf_get_socket_cookie(sk), 0, NM_LIFE_OWNED);
  if (entry) {
    entry->start = start;
    entry->owner = owner;
    return;
  }
  stored = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!stored) {
    COUNT(storage_failed_sockets, 1);
    return;
  }
  stored->start = start;
  stored->owner = owner;
}

/* The end of a socket whose owner is in its entry, as far as close(2) is it. */
static __always_inline void entry_released(struct bpf_sock *sk,
                                           struct nm_entry *entry,
                                           __u64 cookie) {
  struct nm_stored_owner *stored;

  if (entry->owner.flags & NM_OWNER_END_IS_TOLD) {
    /* After shutdown(2), close(2) may send a RST in states that may also be a normal end:
     * may_send_reset(). STATE_CB may run on another CPU meanwhile: so release is noted,
     * too. */
    if (sk->state == TCP_FIN_WAIT1 || sk->state == TCP_FIN_WAIT2 ||
        sk->state == TCP_CLOSING || sk->state == TCP_LAST_ACK)
      store_owner(sk, cookie);
    end_life(entry, cookie,
             sk->state == TCP_CLOSE ? NM_LIFE_OVER : NM_LIFE_RELEASED);
  } else if (!entry->socket.tx_valid) {
    end_life(entry, cookie, NM_LIFE_OVER); /* nothing of it has counted */
  } else {
    stored = store_owner(sk, cookie);
    if (!stored) return;
    if (entry->socket.proxied) COUNT(connections_redirected, -1);
    free_entry(cookie, &stored->socket);
  }
}

/* The last descriptor of a socket was closed. TCP goes on after that, up to STATE_CB:
 * connection.bpf.h. The socket's lock is not held, so STATE_CB may run at this time. */
static __always_inline void socket_released(struct bpf_sock *sk) {
  const __u64 cookie = bpf_get_socket_cookie(sk);
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_stored_owner *stored;

  if (is_owned(entry)) return entry_released(sk, entry, cookie);
  if (sk->protocol == IPPROTO_TCP && sk->state != TCP_LISTEN &&
      sk->state != TCP_CLOSE)
    return;
  stored = stored_owner(sk);
  if (!stored) return;
  stored->owner.flags |= NM_OWNER_CLOSED;
  /* By its own cookie: a packet on another CPU may just be setting the owner's. */
  free_entry(cookie, &stored->socket);
}

#endif /* NETMETER_BPF_SOCKET_BPF_H_ */
