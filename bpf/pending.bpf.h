/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The balance of pending bytes.
 *
 * A connection to a proxy or SNI port may name its destination by what it sends
 * first (destination.bpf.h). Its first packets are on the link before that, and
 * a counter never goes back. So they count at once, in a series of the service
 * of kind pending, and the owner notes how much of it is this connection's
 * (struct nm_pending).
 *
 *   each packet    pending series + n,  note + n
 *   once it has a name, or cannot get one any more
 *                  pending series - note,  the right series + note,  note = 0
 *
 * This is called settling. Each byte stands in one series before it, and in one
 * after it; in between, in both, as move() adds first and subtracts then. A
 * read that overlaps it may see the amount twice, or, if it read the right
 * series before and the pending one after it, not at all. The next read is
 * exact.
 *
 * Settling takes the amount by one load, and subtracts that
 * same amount in both places, so whatever another CPU's ingress adds meanwhile
 * stays noted. That is settled when the connection closes: on_closed() in
 * connection.bpf.h, at the latest. The socket's lock is held whenever a
 * connection settles, so two of them never take the same note.
 *
 * What is moved is moved between the spare cells, which all CPUs write: a CPU
 * adds to its own without a lock (add.bpf.h). So a cell of a pending series can
 * be below 0 (mod 2^64); the sum of all its cells never is.
 */
#ifndef NETMETER_BPF_PENDING_BPF_H_
#define NETMETER_BPF_PENDING_BPF_H_

#include "bpf/packet.bpf.h"
#include "bpf/slot.bpf.h"

/* The owner of a socket of which the packet counts as pending: it is not looked
 * up before for a packet that found its entry in the socket table. */
static __always_inline struct nm_owner *pending_owner(struct __sk_buff *skb,
                                                      struct nm_owner *owner,
                                                      __u64 cookie) {
  struct bpf_sock *sk = skb->sk;

  if (owner || !sk) return owner;
  sk = bpf_sk_fullsock(sk);
  return sk ? owner_of_socket(sk, cookie) : NULL;
}

static __always_inline void add_pending_received(struct nm_pending *pending,
                                                 struct nm_packet *packet) {
  __sync_fetch_and_add(&pending->rx_bytes, packet->bytes);
  __sync_fetch_and_add(&pending->rx_packets, packet->segments);
}

/* `acked` bytes were received: the packet acknowledges them. */
static __always_inline void add_pending_sent(struct nm_pending *pending,
                                             struct nm_packet *packet,
                                             __u32 new_bytes, __u32 acked) {
  __sync_fetch_and_add(&pending->tx_bytes, packet->bytes);
  __sync_fetch_and_add(&pending->tx_packets, packet->segments);
  __sync_fetch_and_add(&pending->tx_payload_bytes, new_bytes);
  __sync_fetch_and_add(&pending->tx_retransmit_bytes,
                       packet->payload - new_bytes);
  __sync_fetch_and_add(&pending->rx_payload_bytes, acked);
}

static __always_inline void move(__u64 *pending, __u64 *from, __u64 *to) {
  __u64 amount = *(volatile __u64 *)pending;

  if (!amount) return;
  __sync_fetch_and_add(to, amount);
  __sync_fetch_and_add(from, -amount);
  __sync_fetch_and_add(pending, -amount);
}

/* Moves what a connection has pending to the series that it belongs to. The
 * socket's lock is held. */
static __noinline int settle_pending(struct nm_owner *owner) {
  union nm_head head = {};
  struct nm_cell *from, *to;
  struct nm_pending *pending;

  if (!owner || !owner->pending_service) return 0;
  pending = &owner->pending;
  head.service = owner->pending_service;
  head.flags = owner->attribution.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = owner->pending_path;
  head.kind = NM_KIND_PENDING;
  from = spare_cell(nm_slot_of_series(head.word, owner->user) & NM_SLOT_MASK);
  to = spare_cell(slot_of_owner(owner, owner->pending_path));
  if (!from || !to) return 0;
  move(&pending->tx_bytes, &from->tx_bytes, &to->tx_bytes);
  move(&pending->rx_bytes, &from->rx_bytes, &to->rx_bytes);
  move(&pending->tx_packets, &from->tx_packets, &to->tx_packets);
  move(&pending->rx_packets, &from->rx_packets, &to->rx_packets);
  move(&pending->tx_payload_bytes, &from->tx_payload_bytes,
       &to->tx_payload_bytes);
  move(&pending->rx_payload_bytes, &from->rx_payload_bytes,
       &to->rx_payload_bytes);
  move(&pending->tx_retransmit_bytes, &from->tx_retransmit_bytes,
       &to->tx_retransmit_bytes);
  return 0;
}

#endif /* NETMETER_BPF_PENDING_BPF_H_ */
