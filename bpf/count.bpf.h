/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The full path, which any packet may take, in either direction. fast_path.bpf.h is
 * for packets about which everything is known.
 *
 *   1. ours? Over loopback, only packets to and from proxies are.
 *   2. count its bytes and segments                      packet.bpf.h
 *   3. find its socket's state, by the cookie            socket.bpf.h
 *      find its uplink, if there are any                 uplink.bpf.h
 *      received: skip a duplicate of a counted packet    duplicates.bpf.h
 *   4. find its cell: by the slot kept in the state, or
 *      by looking up the series                          series.bpf.h
 *   5. add to the cell; on egress the TCP numbers say    add.bpf.h
 *      which part of the payload is new, and the caller  tcp.bpf.h
 *      adds, because it knows how
 *   6. if the cell is of kind pending: note the amount,
 *      and read the name in the payload                  pending, destination
 *
 * The packet passes in every case.
 */
#ifndef NETMETER_BPF_COUNT_BPF_H_
#define NETMETER_BPF_COUNT_BPF_H_

#include "bpf/add.bpf.h"
#include "bpf/decision.bpf.h"
#include "bpf/duplicates.bpf.h"
#include "bpf/sctp.bpf.h"
#include "bpf/series.bpf.h"
#include "bpf/uplink.bpf.h"

/* A packet, and what is known about it. Global functions handle the rare cases: the
 * verifier follows each of them once, not once for each branch that leads there. They
 * take no pointers, so they look up the socket themselves. */
struct nm_context {
  struct __sk_buff *skb;
  struct nm_packet packet;
  struct nm_socket *socket; /* NULL: it has no state */
  __u32 slot;               /* of its series */
  bool exposed; /* ingress may run for this socket with bottom halves enabled */
};

/* --- The socket's state --------------------------------------------------- */

/* Where nm_make_state() made or found the state. */
enum nm_place_of_state { NM_STATE_NONE, NM_STATE_ENTRY, NM_STATE_OWNER };

/* Makes the state of a socket, and its owner, if there are none. */
NM_GLOBAL int nm_make_state(struct __sk_buff *skb, __u32 transport,
                            __u32 direction) {
  const bool tcp = transport == NM_TRANSPORT_TCP;
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored;
  struct nm_socket *socket;
  bool alone;

  if (transport == NM_TRANSPORT_SCTP && nm_follow_sctp(skb, direction))
    return NM_STATE_NONE;
  if (!sk) return NM_STATE_NONE;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return NM_STATE_NONE;
  if (!make_owner(sk, cookie, &stored)) return NM_STATE_NONE;
  if (!stored) return NM_STATE_ENTRY;
  alone = direction == NM_EGRESS || sk->state == TCP_LISTEN;
  if (tcp && alone && may_be_subflow(stored)) nm_follow_mptcp(skb);
  socket = find_socket(stored, cookie, !tcp || alone);
  if (!socket) return NM_STATE_NONE;
  return socket == &stored->socket ? NM_STATE_OWNER : NM_STATE_ENTRY;
}

/* --- Loopback ------------------------------------------------------------- */

/* Whether netfilter redirects a connection to a proxy. The first SYN shows it: it has the
 * port of the proxy, and the socket has not. The entry of the table notes it, so a
 * connection without an entry counts as one without a proxy. A closed socket has lost its
 * port, and may send a RST: on_closed() has noted whether it is a proxy's. */
static __always_inline bool is_noted(struct __sk_buff *skb,
                                     struct bpf_sock *sk) {
  struct nm_stored_owner *stored = NULL;
  struct nm_stats *stats = stats_of_meter();
  struct nm_entry *entry;

  if (sk->state == TCP_CLOSE) {
    entry = entry_of_cookie(bpf_get_socket_cookie(skb));
    if (entry) return entry->socket.proxied;
    sk = bpf_sk_fullsock(sk);
    if (sk) stored = stored_owner(sk);
    return stored && stored->socket.proxied;
  }
  /* While none is redirected, the table stays out of the CPU's cache. */
  if (!stats || !stats->connections_redirected) return false;
  entry = entry_of_cookie(bpf_get_socket_cookie(skb));
  return entry && entry->socket.proxied;
}

/* Notes that a connection is redirected. 0: it has no entry. */
NM_GLOBAL int nm_redirect(struct __sk_buff *skb) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_entry *entry = entry_of_cookie(cookie);

  if (!entry) {
    nm_make_state(skb, NM_TRANSPORT_TCP, NM_EGRESS);
    entry = entry_of_cookie(cookie);
  }
  if (!entry) return 0;
  COUNT(connections_redirected, 1);
  entry->socket.proxied = 1;
  return 1;
}

/* Whether a packet over loopback is to or from a proxy. The ports of its socket tell, so
 * all packets of a connection have the same answer. */
NM_GLOBAL int nm_is_proxied(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;
  bool connected = false;
  __u32 ports;

  if (!nm_config.proxy_ports_count) return 0;
  if (sk) {
    ports = ports_of_socket(sk);
    if (has_proxy_port(ports)) return 1;
    connected = ports >> 16;
    if (connected && is_noted(skb, sk)) return 1;
    if (connected && sk->state != TCP_SYN_SENT) return 0;
  }
  ports = nm_ports(skb, nm_parse(skb), NM_INGRESS);
  return has_proxy_port(ports) && (!connected || nm_redirect(skb));
}

/* As nm_is_proxied(), and without a call for nearly all packets over loopback. */
static __always_inline bool is_proxied(struct __sk_buff *skb) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  struct bpf_sock *sk = skb->sk;
  struct nm_plain plain = {};
  struct nm_stats *stats;
  __u32 ports;

  if (!nm_config.proxy_ports_count) return false;
  ports = sk ? ports_of_socket(sk) : 0;
  if (has_proxy_port(ports)) return true;
  if (sk && ports >> 16) {
    stats = stats_of_meter();
    if (sk->state != TCP_CLOSE && sk->state != TCP_SYN_SENT && stats &&
        !stats->connections_redirected)
      return false;
  } else if (read_plain_ip(skb, &plain) &&
             (plain.protocol == IPPROTO_TCP || plain.protocol == IPPROTO_UDP)) {
    data += plain.header;
    if (data + 8 <= end) return has_proxy_port(bpf_ntohl(*(__be32 *)data));
  }
  return nm_is_proxied(skb);
}

/* Returns whether a packet counts by the link that it passes, and sets its path. */
static __always_inline bool is_on_path(struct __sk_buff *skb,
                                       const enum nm_direction direction,
                                       struct nm_packet *packet) {
  if (skb->ifindex == LOOPBACK_IFINDEX) {
    if (!nm_is_proxied(skb)) return false;
    packet->path = NM_PATH_PROXY;
  }
  return direction != NM_INGRESS || skb->pkt_type != PACKET_LOOPBACK;
}

/* Reads the packet. Returns whether it is to be counted. */
static __always_inline bool is_counted(struct __sk_buff *skb,
                                       const enum nm_direction direction,
                                       struct nm_packet *packet) {
  if (!is_on_path(skb, direction, packet)) return false;
  if (parse_packet(skb, direction, packet)) COUNT(header_errors, 1);
  return true;
}

/* Finds the socket's state, in the table or with its owner. */
static __always_inline void find_state(struct nm_context *c,
                                       const enum nm_direction direction) {
  struct __sk_buff *skb = c->skb;
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_stored_owner *stored;
  struct bpf_sock *sk = skb->sk;
  int place;

  if (entry) c->socket = &entry->socket;
  if (entry || !sk) return;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return;
  stored = stored_owner(sk);
  if (!stored || NM_WORD_COOKIE(stored->socket.word) != NM_COOKIE(cookie)) {
    /* An accepted socket gets its state when it sends. */
    if (stored && c->packet.transport == NM_TRANSPORT_TCP &&
        direction == NM_INGRESS && sk->state != TCP_LISTEN)
      return;
    place = nm_make_state(skb, c->packet.transport, direction);
    if (place == NM_STATE_ENTRY) entry = entry_of_cookie(cookie);
    if (entry) c->socket = &entry->socket;
    if (place != NM_STATE_OWNER) return;
    stored = stored_owner(sk);
  } else if (may_be_subflow(stored) &&
             (direction == NM_EGRESS || sk->state == TCP_LISTEN)) {
    nm_follow_mptcp(skb);
  }
  if (stored) c->socket = &stored->socket;
}

/* Puts the packet's uplink into its path, and notes the namespace of its socket. */
static __always_inline void find_path(struct nm_context *c, __u32 slot) {
  __u32 network = c->socket ? c->socket->network : 0;
  __u64 found = nm_find_path(c->skb, network, c->socket && !slot);

  c->packet.path = found;
  /* The entry may belong to another socket by now. */
  if (c->socket && !network &&
      NM_WORD_COOKIE(*(volatile __u64 *)&c->socket->word) ==
          NM_COOKIE(bpf_get_socket_cookie(c->skb)))
    c->socket->network = found >> 32;
}

/* Whether a TCP socket has no peer. Global, because a closed socket seldom sends. */
NM_GLOBAL int nm_has_no_peer(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;

  if (sk) sk = bpf_sk_fullsock(sk);
  return sk && sk->protocol == IPPROTO_TCP && !SOCKET_WORD(sk, dst_port);
}

/* Whether the packet's TCP numbers are those of its socket. Raw sockets write their own
 * headers, and a listener sends for a socket that does not exist yet. The listener may
 * since have closed on another CPU, and even connected. */
static __always_inline bool has_sequence(struct nm_context *c) {
  struct bpf_sock *sk = c->skb->sk;
  __u32 state;

  if (!c->socket || c->packet.transport != NM_TRANSPORT_TCP || !sk)
    return false;
  state = sk->state;
  return state != TCP_LISTEN && !is_of_request(c->packet.tcp_flags, state) &&
         !(state == TCP_CLOSE && nm_has_no_peer(c->skb));
}

static __always_inline bool is_udp(__u32 protocol) {
  return protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE;
}

/* Whether a received packet counts for another socket than this one, or for none of
 * ours. A socket with a slot is a TCP or UDP socket, because raw sockets keep none. */
NM_GLOBAL int nm_is_duplicate(struct __sk_buff *skb, __u64 word, __u32 slot) {
  const union nm_traits traits = {.word = word};
  const bool transport = traits.transport == NM_TRANSPORT_TCP ||
                         traits.transport == NM_TRANSPORT_UDP ||
                         traits.transport == NM_TRANSPORT_SCTP;
  const bool multicast =
      traits.transport != NM_TRANSPORT_TCP && is_multicast_or_broadcast(skb);
  struct nm_stored_owner *stored;
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner = NULL;
  __u32 cookie = NM_ANY_RECEIVER;
  bool udp = is_udp(traits.protocol);

  if (transport && !multicast && slot) return 0;
  /* __sk_receive_skb() runs the hook and removes the device. The sockets of L2TP over IP,
   * and of DCCP over IPv6 up to 6.15, run the hook a second time for the packet. */
  if (!transport && !skb->ifindex) return 1;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (transport) {
    if (sk && sk->type == SOCK_RAW) {
      if (traits.transport == NM_TRANSPORT_SCTP) return 1;
      /* The lookup works for unicast packets only. */
      if (!multicast &&
          nm_has_receiver(skb, traits.protocol, traits.sport, traits.dport))
        return 1;
    } else if (!multicast) {
      return 0;
    }
  }
  /* Its header may be behind more extensions than the parser follows. */
  if (sk && sk->type == SOCK_DGRAM) udp |= is_udp(sk->protocol);
  /* One socket receives the packet, except for raw sockets, and for UDP sockets if the
   * packet is multicast or broadcast. Successive sockets count as one: a packet that a
   * new one receives is no duplicate. */
  if (!sk || sk->type == SOCK_RAW || (multicast && udp))
    cookie = bpf_get_socket_cookie(skb);
  if (sk) owner = owner_of(sk, bpf_get_socket_cookie(skb), &stored);
  return nm_is_counted_dup(skb, cookie, owner ? owner->network : 0,
                           traits.sport | (__u32)traits.dport << 16,
                           multicast && udp);
}

/* --- TCP that looks like something else ----------------------------------- */

/* Whether a TCP socket sends the packet although it does not look like TCP, because IPsec
 * or a route that encapsulates (SRv6) comes before the hook. Such a packet is treated as
 * TCP's, and the socket supplies what the TCP header would say. Returns the packet's
 * traits, unchanged or with `hidden` set. */
NM_GLOBAL __u64 nm_unhide(struct __sk_buff *skb, __u64 word) {
  union nm_traits traits = {.word = word};
  struct bpf_sock *sk = skb->sk;

  if (traits.transport == NM_TRANSPORT_TCP || !sk) return word;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->type != SOCK_STREAM || sk->protocol != IPPROTO_TCP ||
      sk->state == TCP_LISTEN)
    return word;
  traits.hidden = true;
  traits.ruled = false;
  traits.transport = NM_TRANSPORT_TCP;
  return traits.word;
}

/* The head of the series that has the bytes of a packet with hidden TCP: that of the
 * connection, whose cell this is, except for the transport. */
static __always_inline __u64 head_of_hidden(const struct nm_cell *cell,
                                            __u32 transport) {
  union nm_head head = {.word = *(volatile __u64 *)cell};

  head.transport = transport;
  if (head.kind == NM_KIND_PENDING) head.kind = nm_kind_of_name(head.service);
  return head.word;
}

/* Counts the payload that a packet with hidden TCP acknowledges in the connection's
 * series, whose slot is `slot`. Returns the slot of the packet's own transport, in which
 * its bytes count. */
NM_GLOBAL __u32 nm_count_hidden(struct __sk_buff *skb, __u32 slot,
                                __u32 transport) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_cell *cell = cell_of_slot(slot);
  struct bpf_sock *sk = skb->sk;
  struct bpf_tcp_sock *tcp;
  struct nm_stored_owner *stored;
  struct nm_owner *owner;
  struct nm_socket *socket;
  __u32 acked;

  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk || !cell) return slot;
  owner = owner_of(sk, cookie, &stored);
  socket = state_of_socket(stored, cookie);
  tcp = bpf_tcp_sock(sk);
  if (tcp && socket && sk->state == TCP_SYN_SENT)
    begin_sent(tcp, socket, tcp->snd_nxt, false);
  if (tcp && socket && sk->state != TCP_SYN_SENT) {
    begin_received(tcp, socket, tcp->rcv_nxt, is_preexisting(stored, cookie));
    acked = acked_payload(skb, socket, tcp->rcv_nxt);
    if (acked) nm_add_sent(NM_PAIR(slot, 0), NM_PAIR(0, acked), NM_PAIR(0, 0));
    /* Every pending amount is noted when it is added. Otherwise it would stay there. */
    if (acked && stored && cell->kind == NM_KIND_PENDING)
      __sync_fetch_and_add(&stored->pending.rx_payload_bytes, acked);
  }
  return nm_slot_of_series(head_of_hidden(cell, transport),
                           owner ? owner->user : 0) &
         NM_SLOT_MASK;
}

/* --- Received ------------------------------------------------------------- */

/* Notes that a packet counted as pending belongs to this connection. */
NM_GLOBAL int nm_note_received(struct __sk_buff *skb, __u32 bytes,
                               __u32 segments) {
  struct nm_stored_owner *stored;
  struct bpf_sock *sk = skb->sk;

  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  stored = stored_owner(sk);
  if (stored) add_pending_received(&stored->pending, bytes, segments);
  return 0;
}

/* A slot as a decision has it. */
static __always_inline __u32 slot_of_decision(__u32 slot,
                                              const struct nm_cell *cell) {
  return slot | (cell->kind == NM_KIND_PENDING ? NM_SLOT_PENDING : 0);
}

static __always_inline void count_received(struct nm_context *c,
                                           struct nm_cell *cell) {
  struct nm_packet *packet = &c->packet;

  add_received(c->slot, cell,
               c->exposed || packet->transport == NM_TRANSPORT_OTHER,
               packet->bytes, packet->segments,
               packet->transport == NM_TRANSPORT_TCP ? 0 : packet->payload);
  if (has_sequence(c)) {
    note_fin(c->socket, packet->seq + packet->payload, packet->tcp_flags);
    if (packet->tcp_flags & TCP_FLAG_RST) c->socket->rx_rst_seen = 1;
  }
  if (cell->kind == NM_KIND_PENDING)
    nm_note_received(c->skb, packet->bytes, packet->segments);
  if (nm_followers) {
    const struct nm_sent received = {.new_bytes = packet->payload};

    decide(c->skb, NM_INGRESS, packet, slot_of_decision(c->slot, cell),
           &received);
  }
}

/* --- Sent ----------------------------------------------------------------- */

/* Begins the numbers of the packet's socket, and counts it as opened or accepted if its
 * slot was foreseen. Not 0: a raw socket, which has none. */
NM_GLOBAL int nm_begin_numbers(struct __sk_buff *skb, __u32 seq, __u32 ack,
                               __u32 tcp_flags) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct bpf_tcp_sock *tcp = NULL;
  struct nm_stored_owner *stored = NULL;
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner = NULL;
  struct nm_socket *socket;
  bool preexisting;
  __u32 slot;

  if (sk) sk = bpf_sk_fullsock(sk);
  if (sk) {
    if (sk->type == SOCK_RAW) return 1;
    owner = owner_of(sk, cookie, &stored);
    tcp = bpf_tcp_sock(sk);
  }
  socket = state_of_socket(stored, cookie);
  if (!socket) return 1;
  preexisting = is_preexisting(stored, cookie);
  begin_sent(tcp, socket, seq, preexisting);
  if (tcp_flags & TCP_FLAG_ACK) begin_received(tcp, socket, ack, preexisting);
  slot = kept_slot(socket);
  if (slot) count_established(owner, slot);
  return 0;
}

/* The new payload of a sent packet. *acked: the received payload that it acknowledges. */
static __always_inline __u32 split_payload(struct nm_context *c, __u32 *acked) {
  struct nm_packet *packet = &c->packet;
  struct nm_socket *socket = c->socket;
  __u32 new_bytes;

  if (!has_sequence(c)) return packet->payload;
  /* A RST from the kernel has no payload, and acknowledges nothing new. */
  if ((packet->tcp_flags & TCP_FLAG_RST) && !is_own_reset(packet->tcp_flags))
    return packet->payload;
  if ((!socket->tx_valid ||
       (!socket->rx_valid && (packet->tcp_flags & TCP_FLAG_ACK))) &&
      nm_begin_numbers(c->skb, packet->seq, packet->ack, packet->tcp_flags))
    return packet->payload;
  new_bytes =
      new_payload(socket, packet->seq, packet->payload, packet->tcp_flags);
  if (packet->tcp_flags & TCP_FLAG_ACK)
    *acked = acked_payload(c->skb, socket, packet->ack);
  return new_bytes;
}

/* Counts a sent packet of a pending series. Pending amounts are added to the shared cell,
 * and noted only after that. `end` is the end of the payload. Not 0: the caller has to
 * settle. */
NM_GLOBAL int nm_count_pending(struct __sk_buff *skb, __u64 slot_and_end,
                               __u64 bytes_and_segments,
                               __u64 new_bytes_and_retransmitted, __u32 acked) {
  const struct nm_sent sent = {
      .bytes = bytes_and_segments,
      .new_bytes = new_bytes_and_retransmitted,
      .retransmitted = new_bytes_and_retransmitted >> 32,
      .acked = acked};
  const __u32 segments = bytes_and_segments >> 32;
  struct nm_cell *cell = shared_cell(slot_and_end);
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored;
  struct nm_socket *socket;

  if (cell) add_sent_to_cell(cell, &sent, segments, true);
  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  stored = stored_owner(sk);
  if (!stored) return 0;
  /* Not pending if by another uplink than the connection's first: series.bpf.h */
  if (!nm_config.uplinks || (cell && cell->kind == NM_KIND_PENDING))
    add_pending_sent(&stored->pending, &sent, segments);
  socket = state_of_socket(stored, cookie);
  return sent.new_bytes && socket && socket->wire_protocol &&
         read_destination(skb, sk, &stored->owner, socket, slot_and_end >> 32,
                          sent.new_bytes);
}

/* The caller does the adding. Returns the slot and the segments as a pair, because the
 * stack has no room for more in *sent. 0: nothing to add. */
static __always_inline __u64 count_sent(struct nm_context *c,
                                        struct nm_cell *cell,
                                        struct nm_sent *sent) {
  struct nm_packet *packet = &c->packet;

  sent->bytes = packet->bytes;
  sent->new_bytes = split_payload(c, &sent->acked);
  sent->retransmitted = packet->payload - sent->new_bytes;
  if (is_own_reset(packet->tcp_flags) && has_sequence(c))
    nm_count_reset(c->skb, c->slot);
  if (nm_followers)
    decide(c->skb, NM_EGRESS, packet, slot_of_decision(c->slot, cell), sent);
  if (cell->kind == NM_KIND_PENDING ||
      (nm_config.uplinks && c->socket && c->socket->wire_protocol)) {
    if (nm_count_pending(
            c->skb, NM_PAIR(c->slot, packet->header + packet->payload),
            NM_PAIR(packet->bytes, packet->segments),
            NM_PAIR(sent->new_bytes, sent->retransmitted), sent->acked))
      nm_settle_pending(c->skb);
    return 0;
  }
  return NM_PAIR(c->slot, packet->segments);
}

/* --- All of it ------------------------------------------------------------ */

/* `sent` and the result are for egress: count_sent(). */
static __always_inline __u64 count_any(struct __sk_buff *skb,
                                       const enum nm_direction direction,
                                       struct nm_sent *sent) {
  struct nm_context context = {.skb = skb};
  struct nm_packet *packet = &context.packet;
  union nm_traits traits;
  struct nm_cell *cell;
  __u32 slot = 0;

  if (nm_followers) nm_take_decision(skb);
  if (!is_counted(skb, direction, packet)) return 0;
  find_state(&context, direction);
  if (context.socket)
    slot = NM_WORD_SLOT(*(volatile __u64 *)&context.socket->word);
  if (nm_config.uplinks && packet->path == NM_PATH_DIRECT)
    find_path(&context, slot);
  traits = traits_of(packet);
  traits.ruled = may_match_a_rule(skb, &traits, direction);
  if (direction == NM_INGRESS) {
    if (nm_is_duplicate(skb, traits.word, slot)) return 0;
    if (traits.ruled) slot = 0;
    slot = nm_find_received(skb, traits.word, slot);
  } else {
    if (traits.ruled) slot = 0;
    traits.word = nm_unhide(skb, traits.word);
    slot = nm_find_sent(skb, traits.word, slot);
    if (slot & NM_SETTLES) nm_settle_pending(skb);
  }
  context.slot = slot & NM_SLOT_MASK;
  cell = cell_of_slot(context.slot);
  if (!cell) return 0;
  if (direction == NM_INGRESS) {
    context.exposed = !!(slot & NM_OF_RAW_SOCKET);
    count_received(&context, cell);
    return 0;
  }
  if (!traits.hidden) return count_sent(&context, cell, sent);
  sent->bytes = packet->bytes;
  sent->new_bytes = packet->payload;
  slot = nm_count_hidden(skb, context.slot, packet->transport);
  if (nm_followers) decide(skb, NM_EGRESS, packet, slot, sent);
  return NM_PAIR(slot, packet->segments);
}

#endif /* NETMETER_BPF_COUNT_BPF_H_ */
