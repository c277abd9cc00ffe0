/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The fast path for plain packets, in one straight line of code. A plain packet is TCP or
 * UDP without IP options or extension headers. Its socket has an entry in the table with
 * a slot, and is not pending, and nothing needs to be looked up. Nearly all packets are
 * plain, and each of them pays for every instruction and cache line here. All other
 * packets take the full path: count.bpf.h, which is not inlined.
 *
 * The fast path counts exactly what the full path would count. A test sends packets
 * through both (fast_path_test.cc); nm_config.ways closes one of them. Nothing is written
 * before it is certain that the packet is plain.
 */
#ifndef NETMETER_BPF_FAST_PATH_BPF_H_
#define NETMETER_BPF_FAST_PATH_BPF_H_

#include "bpf/add.bpf.h"
#include "bpf/count.bpf.h"

/* The cell of the packet's socket on this CPU, its slot, and the socket's state. NULL:
 * the socket has no entry, or no slot. */
static __always_inline struct nm_cell *plain_cell(struct __sk_buff *skb,
                                                  struct nm_socket **socket,
                                                  __u32 *slot) {
  __u64 cookie = bpf_get_socket_cookie(skb), word;
  struct nm_entry *entry = entry_at(cookie, 0);

  if (!entry) return NULL;
  /* If the entry is this socket's and has a slot, a number from 1 to 65535 remains. */
  word = *(volatile __u64 *)&entry->socket.word ^ NM_COOKIE(cookie);
  if (word - 1 >= 0xffff) {
    entry = entry_at(cookie, 1);
    if (!entry) return NULL;
    word = *(volatile __u64 *)&entry->socket.word ^ NM_COOKIE(cookie);
    if (word - 1 >= 0xffff) return NULL;
  }
  *socket = &entry->socket;
  *slot = word;
  return plain_cell_at(word, (__u32)word * nm_config.cells_per_series +
                                 bpf_get_smp_processor_id());
}

/* Whether a cell has this transport and the packet's path, and is not pending. */
static __always_inline bool is_plain_cell(__u32 ifindex,
                                          const struct nm_socket *socket,
                                          struct nm_cell *cell,
                                          __u8 transport) {
  union nm_head head = {.word = (__u64) * (volatile __u32 *)&cell->transport
                                << 32};
  union nm_head plain = {
      .transport = transport,
      .path = ifindex == LOOPBACK_IFINDEX ? NM_PATH_PROXY : NM_PATH_DIRECT};

  if (head.kind == NM_KIND_PENDING) return false;
  if (nm_config.uplinks && ifindex != LOOPBACK_IFINDEX)
    return head.transport == transport && is_path(socket, ifindex, head.path);
  return (__u16)(head.word >> 32) == (__u16)(plain.word >> 32);
}

/* Counts a plain GSO or GRO packet as its segments. Returns false if their number is not
 * known, or may be a peer's claim. */
static __always_inline bool plain_wire_size(struct __sk_buff *skb, __u32 header,
                                            __u32 *bytes, __u32 *segments) {
  if (!skb->gso_size) return true;
  *segments = skb->gso_segs;
  if (!*segments || skb->gso_size < header) return false;
  *bytes = bytes_on_link(*bytes, *segments, header, 0);
  return true;
}

/* As is_multicast_or_broadcast(), for a packet with a 20-byte IPv4 header or an IPv6
 * header. */
static __always_inline bool may_be_duplicate(struct __sk_buff *skb, bool ipv4) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

  if (data + 28 > end) return true; /* not reached: read_plain_ip() */
  if (skb->pkt_type != PACKET_HOST && skb->pkt_type != PACKET_OTHERHOST)
    return true;
  data += ipv4 ? 16 : 24;
  return is_group_address(*(__u8 *)data, *(__u8 *)(data + 3), ipv4);
}

static __always_inline bool count_plain_udp(struct __sk_buff *skb,
                                            const enum nm_direction direction,
                                            const enum nm_adds adds,
                                            __u32 header, __u32 ifindex) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u32 bytes, segments = 1, payload, port = 0, slot;
  struct bpf_sock *sk = skb->sk;
  struct nm_socket *socket;
  struct nm_cell *cell;

  if (direction == NM_INGRESS && may_be_duplicate(skb, header == 28))
    return false;
  if (nm_config.rules_ports) {
    data += header - 8 + (direction == NM_EGRESS ? 2 : 0);
    if (data + 2 > end) return false;
    /* As nm_ports(). A raw socket keeps no slot. */
    if (direction == NM_EGRESS && sk) port = SOCKET_WORD(sk, dst_port);
    if (!port) port = *(__be16 *)data;
    if (rules_may_match(bpf_ntohs(port))) return false;
  }
  cell = plain_cell(skb, &socket, &slot);
  if (!cell || !is_plain_cell(ifindex, socket, cell, NM_TRANSPORT_UDP))
    return false;
  bytes = skb->len; /* read after the calls, which would keep it on the stack */
  if (bytes < header) return false;
  payload = bytes - header;
  if (!plain_wire_size(skb, header, &bytes, &segments)) return false;
  if (nm_followers)
    nm_decide_plain(skb, NM_PAIR(slot, segments), bytes, payload, direction);
  if (direction == NM_INGRESS) {
    add_received(slot, cell, false, bytes, segments, payload);
  } else {
    struct nm_sent sent = {.bytes = bytes, .new_bytes = payload};

    add_sent(slot, cell, &sent, segments, adds);
  }
  return true;
}

/* Notes the FIN or RST of a plain packet in the state of its socket. Global, so that all
 * other packets need not keep their numbers in registers. */
NM_GLOBAL int nm_note_end(struct __sk_buff *skb) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  struct nm_entry *entry = entry_of_cookie(bpf_get_socket_cookie(skb));
  const __u32 header = skb->protocol == bpf_htons(ETH_P_IP) ? 20 : 40;
  __u32 seq_end = skb->len - header;
  __u8 flags;

  data += header;
  if (!entry || data + 20 > end) return 0;
  seq_end += bpf_ntohl(*(__be32 *)(data + 4));
  seq_end -= (*(__u8 *)(data + 12) >> 4) * 4;
  flags = *(__u8 *)(data + 13);
  note_fin(&entry->socket, seq_end, flags);
  if (flags & TCP_FLAG_RST) entry->socket.rx_rst_seen = 1;
  return 0;
}

static __always_inline bool count_plain_tcp(struct __sk_buff *skb,
                                            const enum nm_direction direction,
                                            const enum nm_adds adds,
                                            __u32 header, __u32 ifindex) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u32 bytes, segments = 1, payload, seq, ack, slot;
  struct nm_sent sent = {};
  struct bpf_sock *sk = skb->sk;
  struct nm_socket *socket;
  struct nm_cell *cell;
  __u8 flags;

  data += header;
  if (data + 20 > end || !sk) return false;
  header += (*(__u8 *)(data + 12) >> 4) * 4;
  flags = *(__u8 *)(data + 13);
  seq = bpf_ntohl(*(__be32 *)(data + 4));
  ack = bpf_ntohl(*(__be32 *)(data + 8));
  /* Two other packets may be plain: the first SYN of a connection whose series was
   * foreseen, and the SYN-ACK of a request. */
  if (direction == NM_EGRESS &&
      (flags & (TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK)) != TCP_FLAG_ACK &&
      !is_first_syn(flags, sk->state) && !is_of_request(flags, sk->state))
    return false;
  /* A listener's packets have no numbers of its own. */
  if (direction == NM_INGRESS && (flags & (TCP_FLAG_FIN | TCP_FLAG_RST)) &&
      ((flags & TCP_FLAG_SYN) || sk->state == TCP_LISTEN))
    return false;
  if (nm_config.rules_ports && sk->state == TCP_LISTEN &&
      rules_may_match(
          bpf_ntohs(*(__be16 *)(data + (direction == NM_EGRESS ? 2 : 0)))))
    return false;
  cell = plain_cell(skb, &socket, &slot);
  if (!cell || !is_plain_cell(ifindex, socket, cell, NM_TRANSPORT_TCP))
    return false;
  bytes = skb->len;
  if (bytes < header) return false;
  payload = bytes - header;
  if (!plain_wire_size(skb, header, &bytes, &segments)) return false;
  if (direction == NM_INGRESS) {
    if (nm_followers)
      nm_decide_plain(skb, NM_PAIR(slot, segments), bytes, payload, NM_INGRESS);
    add_received(slot, cell, false, bytes, segments, 0);
    if (flags & (TCP_FLAG_FIN | TCP_FLAG_RST)) nm_note_end(skb);
    return true;
  }
  if ((flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN) {
    begin_sent(NULL, socket, seq, false);
    sent.new_bytes = new_payload(socket, seq, payload, flags);
  } else if (flags & TCP_FLAG_SYN) { /* of a request: it has no numbers here */
    sent.new_bytes = payload;
  } else {
    if (*(volatile __u16 *)&socket->tx_valid != NM_SOCKET_NUMBERS) return false;
    sent.acked = acked_payload(skb, socket, ack);
    sent.new_bytes = new_payload(socket, seq, payload, flags & TCP_FLAG_FIN);
  }
  sent.bytes = bytes;
  sent.retransmitted = payload - sent.new_bytes;
  if (nm_followers)
    nm_decide_plain(skb, NM_PAIR(slot, segments), NM_PAIR(bytes, sent.acked),
                    NM_PAIR(sent.new_bytes, sent.retransmitted), NM_EGRESS);
  add_sent(slot, cell, &sent, segments, adds);
  sample_rtt(skb, slot, cell, sent.new_bytes, segments);
  return true;
}

/* Returns false if the packet is not plain. Then nothing was counted. */
static __always_inline bool count_plain(struct __sk_buff *skb,
                                        const enum nm_direction direction,
                                        const enum nm_adds adds) {
  const __u32 ifindex = skb->ifindex; /* two loads: done once */
  struct nm_plain plain = {};

  if (ifindex == LOOPBACK_IFINDEX && !is_proxied(skb)) {
    if (nm_followers) nm_take_decision(skb);
    return true;
  }
  if (!read_plain_ip(skb, &plain)) return false;
  if (plain.protocol == IPPROTO_TCP)
    return count_plain_tcp(skb, direction, adds, plain.header, ifindex);
  if (plain.protocol == IPPROTO_UDP)
    return count_plain_udp(skb, direction, adds, plain.header + 8, ifindex);
  return false;
}

NM_GLOBAL int nm_any_received(struct __sk_buff *skb) {
  if (nm_config.ways != NM_WAYS_FAST) count_any(skb, NM_INGRESS, NULL);
  return 0;
}

static __noinline __u64 count_any_sent(struct __sk_buff *skb,
                                       struct nm_sent *sent) {
  if (!skb || !sent || nm_config.ways == NM_WAYS_FAST) return 0;
  return count_any(skb, NM_EGRESS, sent);
}

static __always_inline void count_ingress(struct __sk_buff *skb) {
  if (nm_config.ways != NM_WAYS_FULL &&
      count_plain(skb, NM_INGRESS, NM_ADDS_ATOMIC))
    return;
  nm_any_received(skb);
}

/* The full path is shared by all kinds of adds, except for the add itself. */
static __always_inline void count_egress(struct __sk_buff *skb,
                                         const enum nm_adds adds) {
  struct nm_sent sent;
  struct nm_cell *cell;
  __u64 slot_and_segments;

  if (nm_config.ways != NM_WAYS_FULL && count_plain(skb, NM_EGRESS, adds))
    return;
  __builtin_memset(&sent, 0, sizeof(sent));
  slot_and_segments = count_any_sent(skb, &sent);
  cell = slot_and_segments ? cell_of_slot(slot_and_segments) : NULL;
  if (!cell) return;
  add_sent(slot_and_segments, cell, &sent, slot_and_segments >> 32, adds);
  if (cell->transport == NM_TRANSPORT_TCP)
    sample_rtt(skb, slot_and_segments, cell, sent.new_bytes,
               slot_and_segments >> 32);
}

#endif /* NETMETER_BPF_FAST_PATH_BPF_H_ */
