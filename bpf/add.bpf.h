/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Adding a packet to the cells of its series.
 *
 * An atomic add costs 7 ns on one CPU, and 31 ns if two CPUs write the same line
 * (test/benchmark.sh datapath). A packet takes two to five. So a CPU adds to its own cell
 * by plain loads and stores, if no other run of a packet program can come between the
 * load and the store:
 *
 *   received  The hook is called with bottom halves disabled. So no other receive runs on
 *             this CPU meanwhile, and sent packets write other words. README.md has the
 *             proof, and the exceptions.
 *   sent      A word of the CPU says that a run is adding. A softirq that interrupts such
 *             a run ends before the run goes on. The softirq sees the word, and adds to
 *             the shared cell instead. Two tasks must not find the word free at once,
 *             which is possible if one preempts the other in the kernel: enum nm_adds has
 *             the solutions.
 *
 * The shared cell of a series is its last one. All CPUs write it, by atomic adds. Adds
 * that may not be alone go there, and amounts that do not come from a packet.
 *
 * A word always has the same kind of writer, because a series has one transport:
 * rx_payload_bytes of TCP is written for sent packets (it counts what we acknowledge),
 * and for received packets in other transports.
 */
#ifndef NETMETER_BPF_ADD_BPF_H_
#define NETMETER_BPF_ADD_BPF_H_

#include "bpf/slot.bpf.h"

/* The amounts that a sent packet adds, besides its segments. */
struct nm_sent {
  __u32 bytes;
  __u32 new_bytes;     /* of payload */
  __u32 retransmitted; /* the payload that was sent before */
  __u32 acked;         /* received payload that it acknowledges */
};

/* Pairs of 32-bit numbers, because a function takes five arguments. */
#define NM_PAIR(low, high) ((low) | (__u64)(high) << 32)

/* For a test (stress_test.cc): calls the clock between a load and its store, so that more
 * interrupts come in between. It can also add without the guards. */
#ifndef NM_STRESS
#define NM_STRESS 0
#endif
#ifndef NM_STRESS_UNGUARDED
#define NM_STRESS_UNGUARDED 0
#endif

/* One load and one store, each of the whole word, so a reader sees the old value or the
 * new one. */
static __always_inline void add_word(__u64 *word, __u32 amount, bool atomic) {
  __u64 value;

  if (atomic) {
    __sync_fetch_and_add(word, amount);
    return;
  }
  value = *(volatile __u64 *)word;
  for (int i = 0; i < NM_STRESS; i++) bpf_ktime_get_ns();
  *(volatile __u64 *)word = value + amount;
}

static __always_inline void add_received_to_cell(struct nm_cell *cell,
                                                 __u32 bytes, __u32 segments,
                                                 __u32 payload, bool atomic) {
  add_word(&cell->rx_bytes, bytes, atomic);
  add_word(&cell->rx_packets, segments, atomic);
  if (payload) add_word(&cell->rx_payload_bytes, payload, atomic);
}

static __always_inline void add_sent_to_cell(struct nm_cell *cell,
                                             const struct nm_sent *sent,
                                             __u32 segments, bool atomic) {
  add_word(&cell->tx_bytes, sent->bytes, atomic);
  add_word(&cell->tx_packets, segments, atomic);
  if (sent->new_bytes)
    add_word(&cell->tx_payload_bytes, sent->new_bytes, atomic);
  if (sent->retransmitted)
    add_word(&cell->tx_retransmit_bytes, sent->retransmitted, atomic);
  if (sent->acked) add_word(&cell->rx_payload_bytes, sent->acked, atomic);
}

/* Adds to the shared cell. Not inlined, because it is rare. Arguments are passed by
 * value, so that the amounts of a plain packet stay in registers. */
NM_GLOBAL int nm_add_received(__u32 slot, __u32 bytes, __u32 segments,
                              __u32 payload) {
  struct nm_cell *cell = shared_cell(slot);

  if (cell) add_received_to_cell(cell, bytes, segments, payload, true);
  return 0;
}

NM_GLOBAL int nm_add_sent(__u64 slot_and_bytes, __u64 segments_and_acked,
                          __u64 new_bytes_and_retransmitted) {
  struct nm_sent sent = {.bytes = slot_and_bytes >> 32,
                         .new_bytes = new_bytes_and_retransmitted,
                         .retransmitted = new_bytes_and_retransmitted >> 32,
                         .acked = segments_and_acked >> 32};
  struct nm_cell *cell = shared_cell(slot_and_bytes);

  if (cell) add_sent_to_cell(cell, &sent, segments_and_acked, true);
  return 0;
}

/* `payload` of TCP is 0: it counts when it is acknowledged. `exposed`: bottom halves may
 * be enabled. */
static __always_inline void add_received(__u32 slot, struct nm_cell *cell,
                                         bool exposed, __u32 bytes,
                                         __u32 segments, __u32 payload) {
  if (nm_config.ingress_adds == NM_ADDS_ATOMIC)
    add_received_to_cell(cell, bytes, segments, payload, true);
  else if (exposed)
    nm_add_received(slot, bytes, segments, payload);
  else
    add_received_to_cell(cell, bytes, segments, payload, false);
}

/* The CPU's first cell, which belongs to no series. Its tx_bytes is the busy word: not 0
 * while the CPU adds a sent packet. The word is not in a map of its own, because it has
 * to survive an upgrade of the programs: a run of the new programs may interrupt a run of
 * the old ones. */
static __always_inline struct nm_cell *cell_of_cpu(void) {
  __u32 cpu = bpf_get_smp_processor_id();

  return bpf_map_lookup_elem(&nm_counters, &cpu);
}

/* Whether this run has taken the CPU. The run gives it back by 0 in *busy. */
static __always_inline bool take_cpu(__u64 *busy, const enum nm_adds adds) {
  if (NM_STRESS_UNGUARDED) return true;
  if (adds == NM_ADDS_CLAIMED) return !__sync_lock_test_and_set(busy, 1);
  if (*(volatile __u64 *)busy) return false;
  *(volatile __u64 *)busy = 1;
  return true;
}

/* `cell` is the cell of the slot on this CPU. */
static __always_inline void add_sent(__u32 slot, struct nm_cell *cell,
                                     const struct nm_sent *sent, __u32 segments,
                                     const enum nm_adds adds) {
  struct nm_cell *first;
  __u64 *busy;
  bool alone;

  /* nm_egress has both kinds of adds, because neither needs a kernel feature. */
  if (adds == NM_ADDS_PLAIN && nm_config.egress_adds == NM_ADDS_ATOMIC) {
    add_sent_to_cell(cell, sent, segments, true);
    return;
  }
  first = cell_of_cpu();
  if (!first) return; /* not reached: each CPU has one */
  busy = &first->tx_bytes;
  alone = take_cpu(busy, adds);
  if (alone) {
    add_sent_to_cell(cell, sent, segments, false);
    *(volatile __u64 *)busy = 0;
  }
  if (!alone)
    nm_add_sent(NM_PAIR(slot, sent->bytes), NM_PAIR(segments, sent->acked),
                NM_PAIR(sent->new_bytes, sent->retransmitted));
}

#endif /* NETMETER_BPF_ADD_BPF_H_ */
