/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The loader's commands. The maps that readers see are frozen: nobody in user
 * space can write them, the loader included. Programs can, so the loader runs
 * one by BPF_PROG_TEST_RUN, with a packet that holds the command. The program
 * is not attached to anything, and running it takes a descriptor that only root
 * has.
 *
 * Adding old cells to new ones, for an upgrade that changes the table sizes,
 * has to happen once per cell although the loader may be killed at any instant.
 * A program is not killed: it runs to its end. So each cell is marked in
 * nm_merged and added in the same run, and the next load goes on after the
 * marks.
 */
#ifndef NETMETER_BPF_COMMAND_BPF_H_
#define NETMETER_BPF_COMMAND_BPF_H_

#include "bpf/retire.bpf.h"
#include "bpf/slot.bpf.h"

/* Adds all values but the first, which names the series. */
static __always_inline void add_values(__u64 *to, const __u64 *from,
                                       __u32 size) {
  union nm_head head = {.word = *(const volatile __u64 *)from};

  head.flags |= ((volatile union nm_head *)to)->flags;
  *(volatile __u64 *)to = head.word;
  for (__u32 i = 1; i < size / sizeof(*to); i++)
    __sync_fetch_and_add(&to[i], from[i]);
}

static __noinline void merge_tcp(__u32 slot) {
  struct nm_tcp *to = tcp_of_slot(slot);
  struct nm_tcp *from = bpf_map_lookup_elem(&nm_old_tcp, &slot);

  if (from && to && from->kind)
    add_values((__u64 *)to, (__u64 *)from, sizeof(*to));
}

/* Adds one old cell, and the connections with the first cell of each series. Not
 * to a CPU's own cell, to which that CPU adds plainly meanwhile. */
NM_GLOBAL int nm_merge_cell(__u32 index) {
  const __u32 old_cells = nm_config.old_cells_per_series;
  struct nm_cell *to = spare_cell(index / old_cells);
  struct nm_cell *from = bpf_map_lookup_elem(&nm_old_counters, &index);
  __u8 *merged = bpf_map_lookup_elem(&nm_merged, &index);

  if (!from || !to || !merged || *merged) return 0;
  *merged = 1;
  if (index % old_cells == 0) merge_tcp(index / old_cells);
  if (from->service) add_values((__u64 *)to, (__u64 *)from, sizeof(*to));
  return 0;
}

/* The packet stays the same through the runs of one call, so that its mark
 * counts them: no loop, which the verifier would walk. -1: no room. */
static __always_inline int free_id(struct __sk_buff *skb,
                                   const struct nm_free *free) {
  __u32 id = free->first + skb->mark++;
  long error = free->names ? bpf_map_push_elem(&nm_free_names, &id, 0)
                           : bpf_map_push_elem(&nm_free_slots, &id, 0);

  return error ? -1 : 0;
}

/* Runs the command in a packet. -1: refused. */
static __always_inline int run_command(struct __sk_buff *skb) {
  struct nm_command command = {};
  struct nm_new_name asked = {};
  struct nm_merge merge = {};
  struct nm_free free = {};
  struct nm_info *info;
  struct nm_stats *stats;
  __u32 zero = 0;
  __u32 closed, sweeping;
  long error;

  if (bpf_skb_load_bytes(skb, 0, &command, sizeof(command))) return -1;
  info = bpf_map_lookup_elem(&nm_info, &zero);
  if (!info) return -1;
  switch (command.code) {
    case NM_COMMAND_INFO:
      /* A load that fails clears its buffer, which is the map here. */
      if (skb->len < sizeof(command) + sizeof(*info)) return -1;
      /* What readers have learned by the old one they learn anew: a name on the
       * wire without the suffixes of this one is another label. */
      COUNT(moves, 1);
      closed = info->closed;
      error = bpf_skb_load_bytes(skb, sizeof(command), info, sizeof(*info));
      info->closed = closed;
      COUNT(moves, 1);
      return error ? -1 : 0;
    case NM_COMMAND_CLOSE:
      *(volatile __u32 *)&info->closed = 1;
      return 0;
    case NM_COMMAND_NAME:
      if (bpf_skb_load_bytes(skb, sizeof(command), &asked, sizeof(asked)))
        return -1;
      return name_id_for_user(&asked.key, asked.user);
    case NM_COMMAND_MERGE:
      if (bpf_skb_load_bytes(skb, sizeof(command), &merge, sizeof(merge)))
        return -1;
      for (__u32 i = 0; i < NM_MERGE_CELLS; i++) {
        if (i >= merge.count) break;
        nm_merge_cell(merge.first + i);
      }
      return 0;
    case NM_COMMAND_FREE:
      if (bpf_skb_load_bytes(skb, sizeof(command), &free, sizeof(free)))
        return -1;
      return free_id(skb, &free);
    case NM_COMMAND_SWEEP:
      stats = stats_of_meter();
      if (!stats ||
          bpf_skb_load_bytes(skb, sizeof(command), &sweeping, sizeof(sweeping)))
        return -1;
      *(volatile __u64 *)&stats->sweeping = sweeping;
      return 0;
    case NM_COMMAND_FOLD:
      return retire_next(skb, false);
    case NM_COMMAND_FORGET:
      return retire_next(skb, true);
  }
  return -1;
}

#endif /* NETMETER_BPF_COMMAND_BPF_H_ */
