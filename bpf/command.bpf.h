/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The loader's commands. The maps that readers see are frozen: user space cannot write
 * them, and that includes the loader. Programs can. So the loader runs a program by
 * BPF_PROG_TEST_RUN, with a packet that holds the command. The program is not attached to
 * anything, and running it takes a descriptor that only root has.
 */
#ifndef NETMETER_BPF_COMMAND_BPF_H_
#define NETMETER_BPF_COMMAND_BPF_H_

#include "bpf/evict.bpf.h"
#include "bpf/slot.bpf.h"

/* Puts the next unused id into its queue. That happens exactly once even if the loader
 * dies, because a program runs to its end. The loader has the lock, so no other loader
 * runs. -1: no room. */
static __always_inline int free_next(const struct nm_free *free) {
  struct nm_stats *stats = stats_of_meter();
  __u64 made;
  __u32 id;

  if (!stats) return -1;
  made = free->names ? stats->names_made : stats->slots_made;
  id = made + (free->names ? NM_NAME_FIRST : NM_SLOT_FIRST);
  if (id >= free->end) return 0;
  if (free->names) {
    if (bpf_map_push_elem(&nm_free_names, &id, 0)) return -1;
    stats->names_made = made + 1;
  } else {
    if (bpf_map_push_elem(&nm_free_slots, &id, 0)) return -1;
    stats->slots_made = made + 1;
  }
  return 0;
}

/* Runs the command in a packet. -1: refused. */
static __always_inline int run_command(struct __sk_buff *skb) {
  struct nm_command command = {};
  struct nm_new_name asked = {};
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
      /* The buffer is the map itself, and a load that fails would clear it. */
      if (skb->len < sizeof(command) + nm_config.info_size) return -1;
      /* Readers must drop what they derived from the old info: without the suffixes of
       * the new one, a name on the wire has another label. */
      count_move();
      closed = info->closed;
      error =
          bpf_skb_load_bytes(skb, sizeof(command), info, nm_config.info_size);
      info->closed = closed;
      count_move();
      return error ? -1 : 0;
    case NM_COMMAND_CLOSE:
      *(volatile __u32 *)&info->closed = 1;
      return 0;
    case NM_COMMAND_NAME:
      if (bpf_skb_load_bytes(skb, sizeof(command), &asked, sizeof(asked)))
        return -1;
      return name_id_for_user(&asked.key, asked.user);
    case NM_COMMAND_FREE:
      if (bpf_skb_load_bytes(skb, sizeof(command), &free, sizeof(free)))
        return -1;
      return free_next(&free);
    case NM_COMMAND_SWEEP:
      stats = stats_of_meter();
      if (!stats ||
          bpf_skb_load_bytes(skb, sizeof(command), &sweeping, sizeof(sweeping)))
        return -1;
      *(volatile __u64 *)&stats->sweeping = sweeping;
      return 0;
    case NM_COMMAND_FOLD:
      return evict_next(skb, false);
    case NM_COMMAND_FORGET:
      return evict_next(skb, true);
  }
  return -1;
}

#endif /* NETMETER_BPF_COMMAND_BPF_H_ */
