/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Which series a packet belongs to. It is asked for a socket's first packet;
 * the answer is kept with the socket, and its next packets take the slot from
 * there.
 *
 *   service      of the socket's owner
 *   destination  for services only: by tag, rule, or what the connection sends
 *                first; as long as that may still come, the kind is pending
 *   transport    of the packet, and
 *   path         of the packet: a raw socket sends more than one
 *
 * The slot is not kept where the next packet may belong elsewhere: a socket
 * that is not one connection has many other ends, which rules may tell apart; a
 * full table may have grown by then.
 *
 * Egress holds the socket's lock, ingress does not. So what has to be done once
 * per connection when its series becomes known is left to egress (to settle
 * what is pending, to count it as opened or accepted), and ingress keeps no
 * slot that would hide from egress that this is still to be done. A name that
 * changes while a packet looks up the old one is noticed behind the store of
 * the slot, and the slot is dropped again.
 *
 * What a TCP socket sends may look like something else at the hook: IPsec and
 * SRv6 have wrapped it already. Such a packet is `hidden`: its series is that of
 * the connection, but for the transport.
 */
#ifndef NETMETER_BPF_SERIES_BPF_H_
#define NETMETER_BPF_SERIES_BPF_H_

#include "bpf/destination.bpf.h"
#include "bpf/pending.bpf.h"
#include "bpf/tcp.bpf.h"

/* Puts a service's destination into *head, or that it is pending. */
static __always_inline void find_destination(struct __sk_buff *skb,
                                             struct nm_owner *owner,
                                             struct nm_packet *packet,
                                             struct nm_socket *socket,
                                             enum nm_direction direction,
                                             union nm_head *head) {
  head->destination = packet->tag;
  if (!packet->tag && nm_config.rules_count) {
    head->destination =
        nm_match_rules(skb, packet->hidden ? NM_OF_SOCKET : direction,
                       direction == NM_EGRESS ? packet->dport : packet->sport,
                       packet->hidden ? IPPROTO_TCP : packet->protocol);
    /* Only a TCP connection has one other end for all its life. */
    packet->keep = packet->transport == NM_TRANSPORT_TCP && skb->sk &&
                   skb->sk->state != TCP_LISTEN;
  }
  if (!head->destination) head->destination = owner->name;
  if (!socket) return;
  if (direction == NM_EGRESS) {
    if (!head->destination) {
      socket->wire_protocol = wire_protocol_of(owner, packet);
    } else if (socket->wire_protocol) { /* tagged meanwhile */
      socket->wire_protocol = NM_WIRE_NONE;
      owner->flags |= NM_OWNER_NAMED;
      packet->settles = true;
    }
  }
  if (!head->destination && socket->wire_protocol) {
    if (!owner->pending_service) {
      owner->pending_service = head->service;
      owner->pending_path = packet->path;
    }
    head->kind = NM_KIND_PENDING;
    head->service = owner->pending_service;
    /* Egress may name the connection meanwhile, on another CPU. */
    packet->keep = direction == NM_EGRESS;
  }
}

/* The head of the series that a packet belongs to: a union nm_head. */
static __noinline __u64 series_of_packet(struct __sk_buff *skb,
                                         struct nm_owner *owner,
                                         struct nm_packet *packet,
                                         struct nm_socket *socket,
                                         enum nm_direction direction) {
  union nm_head head = {};

  if (!packet) return 0;
  head.transport = packet->transport;
  head.path = packet->path;
  packet->keep = true;
  if (!owner) {
    head.service = NM_NAME_UNATTRIBUTED;
    head.kind = NM_KIND_UNATTRIBUTED;
    return head.word;
  }
  packet->tag = *(volatile __u16 *)&owner->tag;
  packet->attribution = attribution_of(owner);
  head.service = packet->attribution.service;
  head.kind = packet->attribution.kind;
  head.flags = packet->attribution.flags;
  if (head.kind == NM_KIND_SERVICE)
    find_destination(skb, owner, packet, socket, direction, &head);
  return head.word;
}

/* Keeps a slot, as nm_slot_of_series() returned it, in *socket where all packets
 * of the socket belong there. */
static __noinline int keep_slot(struct nm_owner *owner,
                                struct nm_packet *packet,
                                struct nm_socket *socket,
                                enum nm_direction direction, __u32 slot) {
  if (!packet || !owner) return 0;
  /* The table may have room for the next packet: it may grow. */
  if ((slot & NM_SLOT_OVERFLOW) && packet->attribution.kind != NM_KIND_OVERFLOW)
    packet->keep = false;
  if (direction == NM_EGRESS && !(slot & NM_SLOT_PENDING))
    count_established(owner, slot & NM_SLOT_MASK);
  if (!packet->keep || !socket) return 0;
  /* What is to be done once, egress does: it is not to find a slot before. */
  if (direction == NM_INGRESS &&
      (socket->wire_protocol ||
       ((owner->flags & NM_OWNER_ESTABLISHED) && !owner->counted)))
    return 0;
  *(volatile __u64 *)&socket->word =
      NM_WORD_COOKIE(socket->word) | (slot & NM_SLOT_MASK);
  /* A name that came meanwhile found the old slot: once more, then. */
  if (*(volatile __u16 *)&owner->tag != packet->tag ||
      attribution_of(owner).word != packet->attribution.word)
    *(volatile __u64 *)&socket->word = NM_WORD_COOKIE(socket->word);
  return 0;
}

#endif /* NETMETER_BPF_SERIES_BPF_H_ */
