/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The balance of pending bytes.
 *
 * A connection to a proxy, SNI or HTTP port may name its destination in its first bytes
 * (destination.bpf.h). Its first packets are on the link before that, and a counter never
 * goes back. So these packets count at once, in a series of kind pending with the owner's
 * name. The owner notes the share of this connection (struct nm_pending).
 *
 *   each packet    pending series + n,  note + n
 *   once it has a name, or cannot get one any more
 *                  pending series - note,  the right series + note,  note = 0
 *
 * The second step is called settling. Each byte is in one series before it, and in one
 * series after it. In between it is in both, because move() adds first and subtracts
 * then. A read that overlaps may see the amount twice. It may also miss the amount, if it
 * read the right series before and the pending series after. The next read is exact.
 *
 * Settling takes the amount by one load, and subtracts that same amount in both places.
 * So an amount that ingress adds on another CPU at the same time stays noted. It is
 * settled at the latest when the connection closes: on_closed() in connection.bpf.h. The
 * socket's lock is held whenever a connection settles, so no note is taken twice. The
 * ingress hook runs without that lock: a packet that is there on another CPU at the
 * moment of the end stays in the pending series, and in no other one.
 *
 * Settling moves amounts between shared cells, which all CPUs write, because a CPU adds
 * to its own cell without a lock (add.bpf.h). So a cell of a pending series can be below
 * 0 (mod 2^64). The sum of all its cells never is.
 */
#ifndef NETMETER_BPF_PENDING_BPF_H_
#define NETMETER_BPF_PENDING_BPF_H_

#include "bpf/add.bpf.h"
#include "bpf/packet.bpf.h"
#include "bpf/slot.bpf.h"

static __always_inline void add_pending_received(struct nm_pending *pending,
                                                 __u32 bytes, __u32 segments) {
  __sync_fetch_and_add(&pending->rx_bytes, bytes);
  __sync_fetch_and_add(&pending->rx_packets, segments);
}

static __always_inline void add_pending_sent(struct nm_pending *pending,
                                             const struct nm_sent *sent,
                                             __u32 segments) {
  __sync_fetch_and_add(&pending->tx_bytes, sent->bytes);
  __sync_fetch_and_add(&pending->tx_packets, segments);
  __sync_fetch_and_add(&pending->tx_payload_bytes, sent->new_bytes);
  __sync_fetch_and_add(&pending->tx_retransmit_bytes, sent->retransmitted);
  __sync_fetch_and_add(&pending->rx_payload_bytes, sent->acked);
}

static __always_inline void move(__u64 *pending, __u64 *from, __u64 *to) {
  __u64 amount = *(volatile __u64 *)pending;

  if (!amount) return;
  __sync_fetch_and_add(to, amount);
  __sync_fetch_and_add(from, -amount);
  __sync_fetch_and_add(pending, -amount);
}

/* Moves the pending amounts of a connection to its series. The socket's lock is held. */
static __always_inline void settle_pending(struct nm_stored_owner *stored) {
  struct nm_owner *owner = &stored->owner;
  union nm_head head = {};
  struct nm_cell *from, *to;
  struct nm_pending *pending;

  if (!owner->pending_service) return;
  pending = &stored->pending;
  head.service = owner->pending_service;
  head.flags = owner->attribution.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = owner->pending_path;
  head.kind = NM_KIND_PENDING;
  from = shared_cell(nm_slot_of_series(head.word, owner->user) & NM_SLOT_MASK);
  to = shared_cell(slot_of_owner(owner, owner->pending_path));
  if (!from || !to) return;
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
}

/* settle_pending() for the packet's socket. */
NM_GLOBAL int nm_settle_pending(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;
  struct nm_stored_owner *stored;

  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  stored = stored_owner(sk);
  if (stored) settle_pending(stored);
  return 0;
}

#endif /* NETMETER_BPF_PENDING_BPF_H_ */
