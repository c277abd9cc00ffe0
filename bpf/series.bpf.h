/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The series of a packet. It is looked up for a socket's first packet. The slot is then
 * kept with the socket, and the next packets take it from there.
 *
 *   service      of the socket's owner
 *   destination  by tag, by rule, or by the connection's first bytes; the kind is pending
 *                while that may still come. The configuration says which kinds have
 *                destinations
 *   transport    of the packet, and
 *   path         of the packet: a raw socket sends more than one
 *
 * The slot is not kept if the next packet may belong elsewhere. A socket that is not one
 * connection has many remote ends, and rules may distinguish them; a full table may have
 * grown by then. But most rules name a port, and few packets have it. So packets that no
 * rule can match use the kept slot, and packets that one might match ignore it
 * (rules_may_match()).
 *
 * Egress holds the socket's lock, ingress does not. So egress does the work that is due
 * once per connection when its series becomes known: settling its pending amounts, and
 * counting it as opened or accepted. Ingress keeps no slot that would hide from egress
 * that this work is still due. If a name changes while a packet looks up the old one,
 * this is noticed after the store of the slot, and the slot is dropped again.
 *
 * The pending amounts of a connection belong to one uplink, that of its first packet.
 * Packets by another uplink before the connection is named count there without a
 * destination. So all packets that an uplink carried are in its series.
 *
 * Packets of a TCP socket may look like something else at the hook, if IPsec or SRv6 has
 * already wrapped them. Such a packet is `hidden`: its series is that of the connection,
 * except for the transport.
 */
#ifndef NETMETER_BPF_SERIES_BPF_H_
#define NETMETER_BPF_SERIES_BPF_H_

#include "bpf/destination.bpf.h"
#include "bpf/mptcp.bpf.h"
#include "bpf/pending.bpf.h"
#include "bpf/tcp.bpf.h"

/* The results of looking up a packet's series. */
struct nm_search {
  union nm_traits traits;
  __u8 keep;    /* its slot is that of all packets of the socket */
  __u8 settles; /* the series of the pending amounts is known now */
  __u16 tag;    /* of the socket, when it was looked at */
  union nm_attribution attribution; /* of the socket, at the same time */
};

/* Puts the destination into *head, or marks it as pending. */
static __always_inline void find_destination(struct __sk_buff *skb,
                                             struct nm_owner *owner,
                                             struct nm_search *search,
                                             struct nm_socket *socket,
                                             const enum nm_direction direction,
                                             union nm_head *head) {
  const union nm_traits *traits = &search->traits;
  __u32 rule = 0;

  head->destination = search->tag;
  if (!search->tag && nm_config.rules_count) {
    rule = nm_match_rules(skb, direction, remote_port(traits, direction),
                          traits->hidden ? IPPROTO_TCP : traits->protocol);
    if (!(rule & NM_RULE_YIELDS)) head->destination = rule;
    search->keep = !traits->ruled;
  }
  if (!head->destination && !(owner->flags & NM_OWNER_RULED))
    head->destination = owner->wire_destination;
  if (direction == NM_EGRESS && socket) {
    if (!head->destination) {
      socket->wire_protocol = socket->life & NM_LIFE_OWNED
                                  ? NM_WIRE_NONE /* no memory to store it */
                                  : wire_protocol_of(owner, traits);
      /* The destination of the pending amounts if the connection gives no name. */
      if (socket->wire_protocol && rule) {
        owner->wire_destination = rule;
        owner->flags |= NM_OWNER_RULED;
      }
    } else if (socket->wire_protocol) { /* tagged meanwhile */
      socket->wire_protocol = NM_WIRE_NONE;
      owner->flags |= NM_OWNER_NAMED;
      search->settles = true;
    }
  }
  if (!head->destination && !(socket && socket->wire_protocol))
    head->destination = rule;
  if (!head->destination && socket && socket->wire_protocol) {
    if (!owner->pending_service) {
      owner->pending_service = head->service;
      owner->pending_path = traits->path;
    }
    if (nm_config.uplinks && traits->path != owner->pending_path) {
      search->keep = false;
      return;
    }
    head->kind = NM_KIND_PENDING;
    head->service = owner->pending_service;
    /* An upgrade may have removed the uplinks. */
    head->path = owner->pending_path;
    /* Egress may name the connection at the same time, on another CPU. */
    search->keep = direction == NM_EGRESS;
  }
}

/* Whether the slot kept with a socket is that of the packet. */
static __always_inline bool is_slot_of(const struct nm_cell *cell,
                                       union nm_traits traits) {
  return cell->service && cell->transport == traits.transport &&
         cell->path == traits.path;
}

/* The head of the series of a packet without an owner. */
static __always_inline union nm_head head_of_unattributed(
    union nm_traits traits) {
  union nm_head head = {};

  head.transport = traits.transport;
  head.path = traits.path;
  head.service = NM_NAME_UNATTRIBUTED;
  head.kind = NM_KIND_UNATTRIBUTED;
  return head;
}

/* The head of the series of a packet whose owner is known. */
static __always_inline union nm_head head_of_packet(
    struct __sk_buff *skb, struct nm_owner *owner, struct nm_search *search,
    struct nm_socket *socket, const enum nm_direction direction) {
  union nm_head head = {};

  search->keep = true;
  search->tag = *(volatile __u16 *)&owner->tag;
  search->attribution = attribution_of(owner);
  head.transport = search->traits.transport;
  head.path = search->traits.path;
  head.service = search->attribution.service;
  head.kind = search->attribution.kind;
  head.flags = search->attribution.flags;
  if (has_destinations(head.kind))
    find_destination(skb, owner, search, socket, direction, &head);
  return head;
}

/* Keeps a slot, as nm_slot_of_series() returned it, with the socket if all packets of the
 * socket belong to it. */
static __always_inline void keep_slot(
    struct __sk_buff *skb, struct nm_owner *owner, struct nm_search *search,
    struct nm_socket *socket, const enum nm_direction direction, __u32 slot) {
  /* The table may grow and have room for the next packet. */
  if ((slot & NM_SLOT_OVERFLOW) && search->attribution.kind != NM_KIND_OVERFLOW)
    search->keep = false;
  if (direction == NM_EGRESS && !(slot & NM_SLOT_PENDING) &&
      !(nm_config.uplinks && socket && socket->wire_protocol))
    count_established(owner, slot & NM_SLOT_MASK);
  if (!search->keep || !socket) return;
  /* Egress must not find a slot before it has done the work that is due once. */
  if (direction == NM_INGRESS &&
      (socket->wire_protocol ||
       ((owner->flags & NM_OWNER_ESTABLISHED) && !owner->counted)))
    return;
  nm_store_slot(skb, slot & NM_SLOT_MASK);
  /* The name changed meanwhile, so the slot is that of the old one: look it up again. */
  if (*(volatile __u16 *)&owner->tag != search->tag ||
      attribution_of(owner).word != search->attribution.word)
    nm_store_slot(skb, 0);
}

/* Flags beside the slot in the result of find_series(): the packet is a raw socket's; or
 * the caller has to settle the pending amounts, because the stack would otherwise get too
 * deep. */
#define NM_OF_RAW_SOCKET 0x10000
#define NM_SETTLES 0x20000

/* Makes the owner of a packet's socket, if there is none, and brings it up to date. */
NM_GLOBAL int nm_renew_owner(struct __sk_buff *skb, __u64 word,
                             __u32 direction) {
  const union nm_traits traits = {.word = word};
  const __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_stored_owner *stored;
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner;
  bool listens;

  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  listens = sk->state == TCP_LISTEN;
  owner = make_owner(sk, cookie, &stored);
  if (!owner || traits.transport != NM_TRANSPORT_TCP) return 0;
  if (may_be_subflow(stored) && (direction == NM_EGRESS || listens))
    return nm_follow_mptcp(skb);
  /* Pending amounts are in storage. A connection that is accepted before the listener's
   * LISTEN_CB needs it, too. */
  if (!stored && (listens || (direction == NM_EGRESS && !owner->tag &&
                              has_destinations(owner->attribution.kind) &&
                              wire_protocol_of(owner, &traits))))
    store_owner(sk, cookie);
  return 0;
}

/* Finds the series of a packet. That is `slot`, if the socket keeps it and its series has
 * the packet's transport and path. Otherwise the socket keeps the slot that this function
 * finds, if that is allowed. It looks up the socket: its caller cannot pass a pointer. */
static __always_inline __u32 find_series(struct __sk_buff *skb, __u64 traits,
                                         __u32 slot,
                                         const enum nm_direction direction) {
  const union nm_traits wanted = {.word = traits};
  struct nm_search search = {};
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored = NULL;
  struct nm_owner *owner = NULL;
  struct nm_socket *socket;
  union nm_head head;
  struct nm_cell *cell = slot ? cell_of_slot(slot) : NULL;
  __u32 flags = 0;

  if (cell && is_slot_of(cell, wanted)) return slot;
  /* Keeps it in one register from here on, instead of one for each field: the stack is
   * scarce. */
  barrier_var(traits);
  search.traits.word = traits;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (sk) {
    nm_renew_owner(skb, traits, direction);
    owner = owner_of(sk, cookie, &stored);
  }
  if (!sk || !owner) {
    head = head_of_unattributed(search.traits);
    slot = nm_slot_of_series(head.word, 0) & NM_SLOT_MASK;
    return sk && sk->type == SOCK_RAW ? slot | NM_OF_RAW_SOCKET : slot;
  }
  socket = state_of_socket(stored, cookie);
  head = head_of_packet(skb, owner, &search, socket, direction);
  /* Multicast routing hands packets to its raw socket from setsockopt(2), too. No slot is
   * kept, so all packets of a raw socket come here. */
  if (sk->type == SOCK_RAW) {
    flags = NM_OF_RAW_SOCKET;
    search.keep = false;
  }
  slot = nm_slot_of_series(head.word, owner->user);
  keep_slot(skb, owner, &search, socket, direction, slot);
  if (search.settles) flags |= NM_SETTLES;
  return (slot & NM_SLOT_MASK) | flags;
}

NM_GLOBAL __u32 nm_find_sent(struct __sk_buff *skb, __u64 traits, __u32 slot) {
  return find_series(skb, traits, slot, NM_EGRESS);
}

NM_GLOBAL __u32 nm_find_received(struct __sk_buff *skb, __u64 traits,
                                 __u32 slot) {
  return find_series(skb, traits, slot, NM_INGRESS);
}

#endif /* NETMETER_BPF_SERIES_BPF_H_ */
