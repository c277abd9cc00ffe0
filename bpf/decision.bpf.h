/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * What the meter decided about a packet, left for the programs of flows.bpf.c. They run
 * for the same packet directly after the meter's, on the same CPU (the kernel disables
 * migration around all programs of a hook). They read the decision, and decide nothing
 * again.
 *
 *   nm_followers   0: no follower, and a packet pays for one load and one branch
 *   each packet    takes one of its CPU's decisions, also if it does not count
 *   each follower  finds it by the address of the packet, and lets it go
 *
 * A softirq, or another task, may run these programs between the meter's and a
 * follower's. So a CPU has several decisions, and a packet takes one for which no
 * follower waits. The address identifies a packet until all programs have run for it.
 * Later another packet may have the address, and takes a decision of its own first.
 *
 * A killed follower never lets its decisions go. Then the CPU's decisions are taken in
 * turn, so the latest three others stay, until a follower starts or ends and tells the
 * number (lib/apps/connections/follower.cc). A follower that finds no decision counts
 * that: its sums are incomplete, and it says so.
 */
#ifndef NETMETER_BPF_DECISION_BPF_H_
#define NETMETER_BPF_DECISION_BPF_H_

#include "bpf/add.bpf.h"
#include "bpf/packet.bpf.h"

static __always_inline struct nm_decisions *decisions_of_cpu(void) {
  __u32 zero = 0;

  return bpf_map_lookup_elem(&nm_decisions, &zero);
}

/* The number of a packet's decision; NM_DECISIONS: it has none. */
static __always_inline __u32 find_decision(const struct nm_decisions *all,
                                           struct __sk_buff *skb) {
  __u32 number = NM_DECISIONS;

#pragma unroll
  for (__u32 i = 0; i < NM_DECISIONS; i++)
    if (all->skb[i] == (__u64)skb) number = i;
  return number;
}

/* Takes a decision for a packet, which is not counted so far. */
static __always_inline struct nm_decision *take_decision(
    struct __sk_buff *skb) {
  struct nm_decisions *all = decisions_of_cpu();
  __u32 number, same;

  if (!all) return NULL;
  same = find_decision(all, skb); /* a former packet's, which is over */
  number = all->last + 1;
#pragma unroll
  for (__u32 i = NM_DECISIONS; i > 0; i--)
    if (!all->waiting[i - 1]) number = i - 1;
  if (same < NM_DECISIONS) number = same;
  number %= NM_DECISIONS;
  /* First, so that a run that comes in between takes another one. */
  *(volatile __u8 *)&all->waiting[number] = nm_followers >> 16;
  barrier();
  all->last = number;
  all->skb[number] = (__u64)skb;
  all->decisions[number].slot = 0;
  return &all->decisions[number];
}

NM_GLOBAL int nm_take_decision(struct __sk_buff *skb) {
  take_decision(skb);
  return 0;
}

/* For a packet on the full path, which has taken a decision: that it counts. `slot` has
 * NM_SLOT_PENDING, too. */
static __noinline int decide(struct __sk_buff *skb, __u32 direction,
                             const struct nm_packet *packet, __u32 slot,
                             const struct nm_sent *sent) {
  struct nm_decisions *all = decisions_of_cpu();
  struct nm_decision *decision;
  __u32 number;

  if (!all || !skb || !packet || !sent) return 0;
  number = find_decision(all, skb);
  if (number >= NM_DECISIONS) return 0; /* followers began meanwhile */
  decision = &all->decisions[number];
  decision->slot = slot;
  decision->bytes = packet->bytes;
  decision->segments = packet->segments;
  decision->new_bytes = sent->new_bytes;
  decision->retransmitted = sent->retransmitted;
  decision->acked = sent->acked;
  decision->seq = packet->seq;
  decision->remote_port =
      direction == NM_EGRESS ? packet->dport : packet->sport;
  decision->tcp_flags = packet->tcp_flags;
  decision->transport = packet->transport;
  decision->protocol = packet->protocol;
  return 0;
}

/* Takes a decision for a plain packet, whose headers it reads again. */
NM_GLOBAL int nm_decide_plain(struct __sk_buff *skb, __u64 slot_and_segments,
                              __u64 bytes_and_acked,
                              __u64 new_bytes_and_retransmitted,
                              __u32 direction) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  struct nm_decision *decision;
  struct nm_plain plain = {};
  __u16 port = 0;

  decision = take_decision(skb);
  if (!decision || !read_plain_ip(skb, &plain)) return 0;
  data += plain.header;
  if (data + 8 > end) return 0;
  if (direction == NM_INGRESS)
    port = *(__be16 *)data;
  else if (skb->sk) /* as nm_ports() */
    port = SOCKET_WORD(skb->sk, dst_port);
  if (!port) port = *(__be16 *)(data + 2);
  decision->remote_port = bpf_ntohs(port);
  decision->protocol = plain.protocol;
  decision->transport = NM_TRANSPORT_UDP;
  decision->tcp_flags = 0;
  if (plain.protocol == IPPROTO_TCP) {
    if (data + 20 > end) return 0;
    decision->transport = NM_TRANSPORT_TCP;
    decision->seq = bpf_ntohl(*(__be32 *)(data + 4));
    decision->tcp_flags = *(__u8 *)(data + 13);
  }
  decision->slot = slot_and_segments;
  decision->segments = slot_and_segments >> 32;
  decision->bytes = bytes_and_acked;
  decision->acked = bytes_and_acked >> 32;
  decision->new_bytes = new_bytes_and_retransmitted;
  decision->retransmitted = new_bytes_and_retransmitted >> 32;
  return 0;
}

#endif /* NETMETER_BPF_DECISION_BPF_H_ */
