/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The way of any packet, the same for both directions; usual.bpf.h is a short
 * cut for those where all is known:
 *
 *   1. not ours? Loopback counts to and from proxy ports only.
 *   2. what it weighs                                    packet.bpf.h
 *   3. its socket's state, by the cookie                 socket.bpf.h
 *      received: not a copy of what counts elsewhere     copies.bpf.h
 *   4. its cell: by the slot that is kept there, or by
 *      finding its series                                series.bpf.h
 *   5. adds to the cell; on egress the TCP numbers say   add.bpf.h
 *      which part of the payload is new, and the caller  tcp.bpf.h
 *      adds, as it knows how
 *   6. where the cell is of kind pending: the note of
 *      it, and the name in the payload                   pending, destination
 *
 * Whatever happens, the packet passes.
 */
#ifndef NETMETER_BPF_COUNT_BPF_H_
#define NETMETER_BPF_COUNT_BPF_H_

#include "bpf/add.bpf.h"
#include "bpf/copies.bpf.h"
#include "bpf/mptcp.bpf.h"
#include "bpf/series.bpf.h"

/* A packet, and what was found out about it. Not every packet asks for all. */
struct nm_context {
  struct __sk_buff *skb;
  struct nm_packet packet;
  __u64 cookie;
  __u32 slot;             /* of its series */
  struct bpf_sock *sk;    /* the full socket, or NULL: not looked up, or none */
  struct nm_owner *owner; /* the same */
  struct nm_socket *socket; /* NULL: it has no state */
  bool adopted;             /* the socket is older than the meter */
  bool
      exposed; /* what it receives, it may receive with bottom halves enabled */
};

/* Reads the packet, and says whether it is to be counted. */
static __always_inline bool is_counted(struct __sk_buff *skb,
                                       const enum nm_direction direction,
                                       struct nm_packet *packet) {
  if (skb->ifindex == LOOPBACK_IFINDEX && !nm_config.proxy_ports_count)
    return false;
  if (direction == NM_INGRESS && skb->pkt_type == PACKET_LOOPBACK) return false;
  if (parse_packet(skb, packet)) COUNT(header_errors, 1);
  if (skb->ifindex == LOOPBACK_IFINDEX) {
    if (!nm_is_proxy_port(packet->sport) && !nm_is_proxy_port(packet->dport))
      return false;
    packet->path = NM_PATH_PROXY;
  }
  return true;
}

/* A subflow of MPTCP whose owner was not found yet looks like what has none. */
static __always_inline void find_owner(struct nm_context *c,
                                       const enum nm_direction direction) {
  if (c->skb->sk) c->sk = bpf_sk_fullsock(c->skb->sk);
  if (!c->sk) return;
  c->owner = owner_of_socket(c->sk, c->cookie);
  if (nm_config.mptcp && c->owner && c->packet.transport == NM_TRANSPORT_TCP &&
      ((c->owner->flags & NM_OWNER_SUBFLOW) ||
       c->owner->attribution.kind == NM_KIND_UNATTRIBUTED) &&
      (direction == NM_EGRESS || c->sk->state == TCP_LISTEN))
    follow_mptcp(c->sk, c->owner);
}

/* Finds the socket's state, in the table or with its owner. False: there is no
 * table. */
static __always_inline bool find_state(struct nm_context *c,
                                       const enum nm_direction direction) {
  struct __sk_buff *skb = c->skb;
  struct nm_entry *entry;

  c->cookie = bpf_get_socket_cookie(skb);
  entry = entry_of_cookie(c->cookie);
  if (!entry) return false;
  if (NM_WORD_COOKIE(*(volatile __u64 *)&entry->socket.word) ==
      NM_COOKIE(c->cookie)) {
    c->socket = &entry->socket;
    return true;
  }
  find_owner(c, direction);
  c->socket = find_socket(c->owner, c->cookie,
                          direction == NM_EGRESS ||
                              c->packet.transport != NM_TRANSPORT_TCP ||
                              (skb->sk && skb->sk->state == TCP_LISTEN));
  if (c->owner) c->adopted = c->owner->adopted == c->cookie;
  return true;
}

/* The cell of the packet's series on this CPU. */
static __always_inline struct nm_cell *cell_of_packet(
    struct nm_context *c, const enum nm_direction direction) {
  struct nm_cell *cell;
  __u32 slot = 0;
  __u64 head;

  if (c->socket) slot = NM_WORD_SLOT(*(volatile __u64 *)&c->socket->word);
  c->slot = slot;
  cell = slot ? cell_of_slot(slot) : NULL;
  if (cell && cell->service && cell->transport == c->packet.transport &&
      cell->path == c->packet.path)
    return cell;
  if (!c->owner) find_owner(c, direction);
  head = series_of_packet(c->skb, c->owner, &c->packet, c->socket, direction);
  /* Multicast routing hands packets to its raw socket from setsockopt(2), too.
   * Without a slot that is kept, all packets of a raw socket come here. */
  if (c->sk && c->sk->type == SOCK_RAW) {
    c->exposed = true;
    c->packet.keep = false;
  }
  /* Not from within series_of_packet(): the stack would get too deep. */
  if (c->packet.settles) settle_pending(c->owner);
  slot = nm_slot_of_series(head, c->owner ? c->owner->user : 0);
  keep_slot(c->owner, &c->packet, c->socket, direction, slot);
  c->slot = slot & NM_SLOT_MASK;
  return cell_of_slot(c->slot);
}

/* Whether the packet's TCP numbers are its socket's: raw sockets write headers
 * of their own making, and what a listener sends is a SYN-ACK for a socket that
 * does not exist yet. */
static __always_inline bool has_sequence(struct nm_context *c) {
  return c->packet.transport == NM_TRANSPORT_TCP && c->socket && c->skb->sk &&
         c->skb->sk->state != TCP_LISTEN;
}

/* Whether a received packet counts for another socket than this one, or for
 * none of ours. What has a slot is one that is TCP's, or UDP's: raw sockets keep
 * none. */
static __always_inline bool is_copy(struct nm_context *c) {
  const struct nm_packet *packet = &c->packet;
  const bool transport = packet->transport == NM_TRANSPORT_TCP ||
                         packet->transport == NM_TRANSPORT_UDP ||
                         packet->transport == NM_TRANSPORT_SCTP;
  const bool many =
      packet->transport != NM_TRANSPORT_TCP && is_for_many(c->skb);

  if (transport && !many && c->socket &&
      NM_WORD_SLOT(*(volatile __u64 *)&c->socket->word))
    return false;
  if (!c->owner) find_owner(c, NM_INGRESS);
  if (transport) {
    if (c->sk && c->sk->type == SOCK_RAW) {
      if (packet->transport == NM_TRANSPORT_SCTP ||
          nm_has_receiver(c->skb, packet->protocol, packet->sport,
                          packet->dport))
        return true;
    } else if (!many) {
      return false;
    }
  }
  return nm_is_counted_copy(c->skb, c->cookie,
                            c->owner ? c->owner->network : 0);
}

/* Whether a TCP socket sends the packet, and it does not look like TCP any
 * more: IPsec, or a route that encapsulates (SRv6), comes before the hook. Then
 * what TCP's header would have told is taken from the socket, and the packet is
 * treated as TCP's; its own transport is returned, and NM_TRANSPORT_TCP for any
 * other packet. */
static __always_inline __u8 unhide(struct nm_context *c) {
  struct nm_packet *packet = &c->packet;
  const __u8 transport = packet->transport;
  struct bpf_tcp_sock *tcp;

  if (transport == NM_TRANSPORT_TCP || !c->skb->sk) return NM_TRANSPORT_TCP;
  if (!c->owner) find_owner(c, NM_EGRESS);
  if (!c->sk || c->sk->type != SOCK_STREAM || c->sk->protocol != IPPROTO_TCP ||
      c->sk->state == TCP_LISTEN)
    return NM_TRANSPORT_TCP;
  tcp = bpf_tcp_sock(c->sk);
  if (!tcp) return NM_TRANSPORT_TCP;
  packet->hidden = true;
  packet->transport = NM_TRANSPORT_TCP;
  packet->dport = bpf_ntohs(*(volatile __u32 *)&c->sk->dst_port);
  packet->ack = tcp->rcv_nxt;
  return transport;
}

/* Counts a packet that hides TCP: its bytes in the series of its own transport,
 * and what it acknowledges in the connection's, of which `cell` is. */
static __noinline __u64 count_hidden(struct nm_context *c, struct nm_cell *cell,
                                     struct nm_sent *sent, __u8 transport) {
  union nm_head head;
  __u32 acked;

  if (!c || !cell || !sent) return 0;
  head.word = *(volatile __u64 *)cell;
  if (c->socket && c->skb->sk && c->skb->sk->state != TCP_SYN_SENT) {
    acked = acked_payload(c->skb, c->sk, c->socket, &c->packet, c->adopted);
    if (acked)
      nm_add_sent(NM_PAIR(c->slot, 0), NM_PAIR(0, acked), NM_PAIR(0, 0));
  }
  sent->bytes = c->packet.bytes;
  sent->new_bytes = c->packet.payload;
  head.transport = transport;
  if (head.kind == NM_KIND_PENDING) head.kind = NM_KIND_SERVICE;
  return NM_PAIR(nm_slot_of_series(head.word, c->owner ? c->owner->user : 0) &
                     NM_SLOT_MASK,
                 c->packet.segments);
}

static __always_inline void count_received(struct nm_context *c,
                                           struct nm_cell *cell) {
  struct nm_packet *packet = &c->packet;
  struct nm_owner *owner;

  add_received(c->slot, cell,
               c->exposed || packet->transport == NM_TRANSPORT_OTHER,
               packet->bytes, packet->segments,
               packet->transport == NM_TRANSPORT_TCP ? 0 : packet->payload);
  if (has_sequence(c) && (packet->tcp_flags & TCP_FLAG_FIN)) {
    c->socket->rx_fin = packet->seq + packet->payload + 1;
    c->socket->rx_fin_seen = 1;
  }
  if (cell->kind != NM_KIND_PENDING) return;
  owner = pending_owner(c->skb, c->owner, c->cookie);
  if (owner) add_pending_received(&owner->pending, packet);
}

/* The new payload of a sent packet; *acked: the received payload that it
 * acknowledges. */
static __always_inline __u32 split_payload(struct nm_context *c, __u32 *acked) {
  struct nm_packet *packet = &c->packet;
  struct nm_socket *socket = c->socket;
  __u32 new_bytes;

  if (!has_sequence(c)) return packet->payload;
  if (!socket->tx_valid || !socket->rx_valid) {
    if (c->skb->sk && !c->sk) c->sk = bpf_sk_fullsock(c->skb->sk);
    if (c->sk && c->sk->type == SOCK_RAW) return packet->payload;
  }
  new_bytes = new_payload(c->sk, socket, packet, c->adopted);
  if (packet->tcp_flags & TCP_FLAG_ACK)
    *acked = acked_payload(c->skb, c->sk, socket, packet, c->adopted);
  return new_bytes;
}

/* Leaves to the caller what is to be added: the slot and the segments are
 * returned as a pair, since the stack has no room for more in *sent; 0: nothing.
 * But what is pending is added before it is noted as such: here, and to the
 * spare cell. */
static __always_inline __u64 count_sent(struct nm_context *c,
                                        struct nm_cell *cell,
                                        struct nm_sent *sent) {
  struct nm_packet *packet = &c->packet;
  struct nm_owner *owner;
  __u32 new_bytes, acked = 0;

  new_bytes = split_payload(c, &acked);
  sent->bytes = packet->bytes;
  sent->new_bytes = new_bytes;
  sent->again = packet->payload - new_bytes;
  sent->acked = acked;
  if (cell->kind != NM_KIND_PENDING) return NM_PAIR(c->slot, packet->segments);
  cell = spare_cell(c->slot);
  if (cell) add_sent_to_cell(cell, sent, packet->segments, true);
  owner = pending_owner(c->skb, c->owner, c->cookie);
  if (!owner) return 0;
  add_pending_sent(&owner->pending, packet, new_bytes, acked);
  if (new_bytes && c->socket && c->socket->wire_protocol &&
      read_destination(c->skb, owner, c->socket, packet, new_bytes))
    settle_pending(owner);
  return 0;
}

/* `sent` and what is returned are for egress: count_sent(). */
static __always_inline __u64 count_any(struct __sk_buff *skb,
                                       const enum nm_direction direction,
                                       struct nm_sent *sent) {
  struct nm_context context = {.skb = skb};
  __u8 transport = NM_TRANSPORT_TCP;
  struct nm_cell *cell;

  if (!is_counted(skb, direction, &context.packet)) return 0;
  if (!find_state(&context, direction)) return 0;
  if (direction == NM_INGRESS && is_copy(&context)) return 0;
  if (direction == NM_EGRESS) transport = unhide(&context);
  cell = cell_of_packet(&context, direction);
  if (!cell) return 0;
  if (transport != NM_TRANSPORT_TCP)
    return count_hidden(&context, cell, sent, transport);
  if (direction == NM_EGRESS) return count_sent(&context, cell, sent);
  count_received(&context, cell);
  return 0;
}

#endif /* NETMETER_BPF_COUNT_BPF_H_ */
