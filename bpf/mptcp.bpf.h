/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * MPTCP (RFC 8684). A socket that a process opens with IPPROTO_MPTCP sends no packet of
 * its own. Its subflows do: TCP connections that the kernel makes for it. No process owns
 * a subflow, and no call of a process reaches it. So a subflow copies the owner of the
 * process's socket, which bpf_skc_to_mptcp_sock() finds (Linux 5.19 and newer):
 *
 *   connect, listen,   sockops: the subflow gets an owner, before its first
 *   accept, join       packet
 *   a packet it sends  the owner is compared, so that a new tag or service applies
 *                      from the next packet on
 *   a packet that a    the owner is compared, too: connections without MPTCP copy
 *   listener receives  their owner from the listening subflow
 *
 * A subflow has no entry in the table, because a program that renames the process's
 * socket could not find it. So all packets of a subflow take the full path. A connection
 * that an MPTCP listener accepts from a peer without MPTCP is a plain TCP socket, with an
 * entry.
 *
 * The helper follows two pointers of the kernel. Both are stable while the subflow's lock
 * is held, as it is in sockops and when TCP sends. The ingress hook sees a listener
 * without its lock. A listener's pointers are stable while a program runs, because RCU
 * frees them.
 */
#ifndef NETMETER_BPF_MPTCP_BPF_H_
#define NETMETER_BPF_MPTCP_BPF_H_

#include "bpf/socket.bpf.h"

/* The owner of the process's socket whose subflow this is. NULL: it is no subflow, or
 * nothing is known. Raw sockets may have the protocol of TCP, but not the fields that the
 * helper reads. */
static __always_inline struct nm_stored_owner *owner_of_mptcp(
    struct bpf_sock *sk) {
  void *process_socket;

  if (sk->type != SOCK_STREAM || sk->protocol != IPPROTO_TCP) return NULL;
  process_socket = bpf_skc_to_mptcp_sock(sk);
  if (!process_socket) return NULL;
  return stored_owner(process_socket);
}

/* Copies the current owner of the process's socket to a subflow. The name that the first
 * subflow sent is the destination of subflows that join. */
static __always_inline void follow(struct nm_stored_owner *stored,
                                   struct nm_stored_owner *process) {
  struct nm_owner *owner = &stored->owner, *whole = &process->owner;
  union nm_attribution attribution = attribution_of(whole);
  __u16 named = owner->flags & NM_OWNER_RULED ? 0 : owner->wire_destination;

  if (!(owner->flags & NM_OWNER_SUBFLOW)) owner->flags |= NM_OWNER_SUBFLOW;
  if (!whole->wire_destination && named) whole->wire_destination = named;
  if (owner->attribution.word == attribution.word && owner->tag == whole->tag &&
      (named || !whole->wire_destination))
    return;
  owner->tgid = whole->tgid;
  stored->start = process->start;
  owner->user = whole->user;
  owner->tag = whole->tag;
  if (whole->wire_destination) {
    owner->wire_destination = whole->wire_destination;
    owner->flags &= ~NM_OWNER_RULED;
  }
  *(volatile __u32 *)&owner->attribution.word = attribution.word;
  stored->socket.word = NM_WORD_COOKIE(stored->socket.word);
}

/* Whether a TCP socket is a subflow, or may be one whose owner was not found yet: such a
 * subflow looks like a socket without an owner. */
static __always_inline bool may_be_subflow(
    const struct nm_stored_owner *stored) {
  return nm_config.mptcp && stored &&
         ((stored->owner.flags & NM_OWNER_SUBFLOW) ||
          stored->owner.attribution.kind == NM_KIND_UNATTRIBUTED);
}

/* For a packet of a TCP socket whose lock is held, or of a listener. A global function is
 * verified whether it is called or not, so this one checks for itself whether the kernel
 * has the helper. */
NM_GLOBAL int nm_follow_mptcp(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored, *whole;

  if (!nm_config.mptcp || !sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->protocol != IPPROTO_TCP) return 0;
  stored = stored_owner(sk);
  if (!stored) return 0;
  whole = owner_of_mptcp(sk);
  if (whole)
    follow(stored, whole);
  else if (stored->owner.flags & NM_OWNER_SUBFLOW)
    stored->owner.flags &=
        ~NM_OWNER_SUBFLOW; /* accepted from a peer without MPTCP */
  return 0;
}

/* The owner of a TCP socket that sockops reports and that has none in the table. It is
 * made for a new subflow. `whole`, unless NULL: the owner of the socket whose subflow it
 * is. */
static __always_inline struct nm_stored_owner *owner_of_connection(
    struct bpf_sock *sk, struct nm_stored_owner **whole) {
  struct nm_stored_owner *stored = stored_owner(sk);

  *whole = NULL;
  if (!nm_config.mptcp || (stored && !may_be_subflow(stored))) return stored;
  *whole = owner_of_mptcp(sk);
  if (stored || !*whole) return stored;
  stored = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!stored) COUNT(storage_failed_sockets, 1);
  return stored;
}

#endif /* NETMETER_BPF_MPTCP_BPF_H_ */
