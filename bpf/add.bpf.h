/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Adding a packet to the cells of its series.
 *
 * An atomic add costs 7 ns on one CPU, and 31 ns where two CPUs write the same line
 * (test/benchmark.sh datapath). A packet takes two to five. So a CPU adds to its own
 * cell by plain loads and stores, wherever no other run of a packet program can come
 * between the two:
 *
 *   received  The hook is called with bottom halves disabled, so nothing else
 *             receives on this CPU meanwhile, and what is sent writes other
 *             words. README.md has the proof, and the exceptions.
 *   sent      A word of the CPU says that a run is adding. A softirq that
 *             interrupts such a run ends before it goes on; it sees the word,
 *             and adds elsewhere: to the spare cell. What must not happen is
 *             that two tasks find the word free at once, where one preempts
 *             the other in the kernel: enum nm_adds has the ways out.
 *
 * The spare cell of a series is its last one. All CPUs write it, by atomic
 * adds: whatever is not certain to be alone goes there, and what does not come
 * from a packet.
 *
 * A word has the same kind of writer throughout, as a series has one transport:
 * rx_payload_bytes of TCP is written by what is sent (it counts what we
 * acknowledge), that of others by what is received.
 */
#ifndef NETMETER_BPF_ADD_BPF_H_
#define NETMETER_BPF_ADD_BPF_H_

#include "bpf/slot.bpf.h"

/* What a sent packet adds, beside its segments. */
struct nm_sent {
  __u32 bytes;
  __u32 new_bytes; /* of payload */
  __u32 again;     /* the payload that was sent before */
  __u32 acked;     /* received payload that it acknowledges */
};

/* Numbers of 32 bits in pairs: a function takes five. */
#define NM_PAIR(low, high) ((low) | (__u64)(high) << 32)

/* For a test (stress_test.cc): calls of the clock between a load and its store,
 * so that more comes in between; and adds without what keeps others out. */
#ifndef NM_STRESS
#define NM_STRESS 0
#endif
#ifndef NM_STRESS_UNGUARDED
#define NM_STRESS_UNGUARDED 0
#endif

/* One load and one store, each of the whole word: a reader sees the old value
 * or the new one. */
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
  if (sent->again) add_word(&cell->tx_retransmit_bytes, sent->again, atomic);
  if (sent->acked) add_word(&cell->rx_payload_bytes, sent->acked, atomic);
}

/* To the spare cell. Rare, so out of the way; by value, so that what the usual packet
 * adds stays in registers. */
NM_GLOBAL int nm_add_received(__u32 slot, __u32 bytes, __u32 segments,
                              __u32 payload) {
  struct nm_cell *cell = spare_cell(slot);

  if (cell) add_received_to_cell(cell, bytes, segments, payload, true);
  return 0;
}

NM_GLOBAL int nm_add_sent(__u64 slot_and_bytes, __u64 segments_and_acked,
                          __u64 new_bytes_and_again) {
  struct nm_sent sent = {.bytes = slot_and_bytes >> 32,
                         .new_bytes = new_bytes_and_again,
                         .again = new_bytes_and_again >> 32,
                         .acked = segments_and_acked >> 32};
  struct nm_cell *cell = spare_cell(slot_and_bytes);

  if (cell) add_sent_to_cell(cell, &sent, segments_and_acked, true);
  return 0;
}

/* `payload` of TCP is 0: it counts when it is acknowledged. `exposed`: bottom
 * halves may be enabled. */
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

/* The CPU's first cell, which is no series': its tx_bytes is the busy word, not 0
 * while the CPU adds what it sent. It is there, and not in a map of its own, because
 * it has to stay through an upgrade of the programs: a run of the old ones may be
 * interrupted by one of the new. */
static __always_inline struct nm_cell *cell_of_cpu(void) {
  __u32 cpu = bpf_get_smp_processor_id();

  return bpf_map_lookup_elem(&nm_counters, &cpu);
}

/* Whether the CPU is this run's; it gives the CPU back by 0 in *busy. */
static __always_inline bool take_cpu(__u64 *busy, const enum nm_adds adds) {
  if (NM_STRESS_UNGUARDED) return true;
  if (adds == NM_ADDS_CLAIMED) return !__sync_lock_test_and_set(busy, 1);
  if (*(volatile __u64 *)busy) return false;
  *(volatile __u64 *)busy = 1;
  return true;
}

/* `cell` is that of the slot on this CPU. */
static __always_inline void add_sent(__u32 slot, struct nm_cell *cell,
                                     const struct nm_sent *sent, __u32 segments,
                                     const enum nm_adds adds) {
  struct nm_cell *first;
  __u64 *busy;
  bool alone;

  /* nm_egress has both ways, as neither needs anything of the kernel. */
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
                NM_PAIR(sent->new_bytes, sent->again));
}

#endif /* NETMETER_BPF_ADD_BPF_H_ */
