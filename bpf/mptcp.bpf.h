/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * MPTCP (RFC 8684). What a process opens with IPPROTO_MPTCP is one socket to
 * it, and sends no packet of its own. Its subflows do: TCP connections that the
 * kernel makes for it, which no process owns and no call of a process reaches.
 * So a subflow takes what is known of the process's socket, which
 * bpf_skc_to_mptcp_sock() finds (Linux 5.19 and newer):
 *
 *   connect, listen,   sockops: the subflow gets an owner, before its first
 *   accept, join       packet
 *   a packet it sends  the owner is compared, so that a tag, or another
 *                      service, holds from the next packet on
 *   a packet that a    the same: what the listener hands on to connections
 *   listener receives  without MPTCP is copied from the listening subflow
 *
 * A subflow has no entry in the table: it goes the long way with each packet,
 * since nobody who names the process's socket could find the entry. A
 * connection that an MPTCP listener accepts from a peer without MPTCP is a plain
 * TCP socket, with an entry and all.
 *
 * The helper follows two pointers of the kernel. Both stay where they are while
 * the subflow's lock is held, as it is in sockops and where TCP sends; and of a
 * listener, which the ingress hook sees without its lock, for as long as a
 * program runs, since RCU frees them.
 */
#ifndef NETMETER_BPF_MPTCP_BPF_H_
#define NETMETER_BPF_MPTCP_BPF_H_

#include "bpf/socket.bpf.h"

/* What is known of the process's socket whose subflow this is; NULL: it is
 * none, or nothing is known. Raw sockets may have the protocol of TCP, but not
 * the fields that the helper reads. */
static __always_inline struct nm_owner *owner_of_mptcp(struct bpf_sock *sk) {
  void *process_socket;

  if (sk->type != SOCK_STREAM || sk->protocol != IPPROTO_TCP) return NULL;
  process_socket = bpf_skc_to_mptcp_sock(sk);
  if (!process_socket) return NULL;
  return bpf_sk_storage_get(&nm_owners, process_socket, 0, 0);
}

/* Makes a subflow's owner what that of the process's socket is now. The name
 * that the first subflow sent is the destination of those that join. */
static __always_inline void follow(struct nm_owner *owner,
                                   struct nm_owner *whole) {
  union nm_attribution attribution = attribution_of(whole);
  __u16 named = owner->flags & NM_OWNER_RULED ? 0 : owner->wire_destination;

  if (!(owner->flags & NM_OWNER_SUBFLOW)) owner->flags |= NM_OWNER_SUBFLOW;
  if (!whole->wire_destination && named) whole->wire_destination = named;
  if (owner->attribution.word == attribution.word && owner->tag == whole->tag &&
      (named || !whole->wire_destination))
    return;
  owner->tgid = whole->tgid;
  owner->user = whole->user;
  owner->tag = whole->tag;
  if (whole->wire_destination) {
    owner->wire_destination = whole->wire_destination;
    owner->flags &= ~NM_OWNER_RULED;
  }
  *(volatile __u32 *)&owner->attribution.word = attribution.word;
  owner->socket.word = NM_WORD_COOKIE(owner->socket.word);
}

/* Whether a TCP socket is a subflow, or may be one whose owner was not found
 * yet: it looks like what has none. */
static __always_inline bool may_be_subflow(const struct nm_owner *owner) {
  return nm_config.mptcp && ((owner->flags & NM_OWNER_SUBFLOW) ||
                             owner->attribution.kind == NM_KIND_UNATTRIBUTED);
}

/* For a packet of a TCP socket whose lock is held, or of a listener. A global
 * function is verified whether it is called or not, so it asks itself whether the
 * kernel has the helper. */
NM_GLOBAL int nm_follow_mptcp(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner, *whole;

  if (!nm_config.mptcp || !sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->protocol != IPPROTO_TCP) return 0;
  owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  if (!owner) return 0;
  whole = owner_of_mptcp(sk);
  if (whole)
    follow(owner, whole);
  else if (owner->flags & NM_OWNER_SUBFLOW)
    owner->flags &= ~NM_OWNER_SUBFLOW; /* accepted from a peer without MPTCP */
  return 0;
}

/* The owner of a TCP socket of which sockops tells; that of a new subflow is
 * made. `whole`, unless NULL: it is a subflow of this one's. */
static __always_inline struct nm_owner *owner_of_connection(
    struct bpf_sock *sk, struct nm_owner **whole) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  *whole = NULL;
  if (!nm_config.mptcp || (owner && !(owner->flags & NM_OWNER_SUBFLOW) &&
                           owner->attribution.kind != NM_KIND_UNATTRIBUTED))
    return owner;
  *whole = owner_of_mptcp(sk);
  if (owner || !*whole) return owner;
  owner = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!owner) COUNT(storage_failed_sockets, 1);
  return owner;
}

#endif /* NETMETER_BPF_MPTCP_BPF_H_ */
