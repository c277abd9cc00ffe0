// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * Counts the packets that the host forwards for others, by uplink. It is a part of the
 * meter if the configuration has uplinks. It is an object of its own, because not every
 * kernel has the hook. Packets of this host's sockets never come here.
 *
 * The hook is netfilter's FORWARD of the loader's network namespace, after all rules
 * (Linux 6.4). So packets that a firewall drops are not counted, and no packet is dropped
 * here. The kernel hands over both interfaces, so that each packet counts once, for its
 * pair of incoming and outgoing interfaces, and their uplinks.
 *
 * A netfilter link can never change its program. So the attached programs only call the
 * counting program, through nm_forwarders. A load replaces that program in one step, and
 * each packet runs either the old or the new one.
 */
#define __BPF__ 1
#include "bpf/forward.bpf.h"

/* 0 -> the program that counts. */
struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} nm_forwarders SEC(".maps");

/* two interfaces -> the counts of each CPU. Written for each packet. Full: the packet
 * counts in nm_forwarded. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, NM_FORWARDED_PAIRS);
  __type(key, struct nm_forwarded_key);
  __type(value, struct nm_forwarded);
} nm_forwarded_by SEC(".maps");

/* NM_FORWARDED_INDEX() -> the counts of each CPU. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, NM_FORWARDED_ENTRIES);
  __type(key, __u32);
  __type(value, struct nm_forwarded);
} nm_forwarded SEC(".maps");

/* address, interface and uplink -> the counts of each CPU. Written for each packet of a
 * client, if the configuration has forwarded_clients. Full: only nm_forwarded_by has the
 * packet. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, NM_MAX_CLIENTS);
  __type(key, struct nm_client_key);
  __type(value, struct nm_client);
} nm_clients SEC(".maps");

/* Counts a packet for its client. An address gets an element when it sends, so packets
 * from outside to many addresses make none. */
static __always_inline void count_client(struct sk_buff *skb, bool ipv4,
                                         const struct nm_forwarded_key *pair,
                                         __u32 bytes, __u32 segments) {
  const unsigned char *address = skb->head + skb->network_header;
  __u32 in = pair->uplinks >> 4, out = pair->uplinks & 0xf;
  bool sends = nm_client_uplinks >> in & 1;
  struct nm_client_key key = {};
  struct nm_client *client, none = {};

  if (sends == (nm_client_uplinks >> out & 1)) return;
  key.interface = sends ? pair->in : pair->out;
  key.uplink = sends ? out : in;
  if (ipv4) {
    key.address[10] = key.address[11] = 0xff;
    bpf_probe_read_kernel(key.address + 12, 4, address + (sends ? 12 : 16));
  } else {
    bpf_probe_read_kernel(key.address, 16, address + (sends ? 8 : 24));
  }
  client = bpf_map_lookup_elem(&nm_clients, &key);
  if (!client && sends) {
    bpf_map_update_elem(&nm_clients, &key, &none, BPF_NOEXIST);
    client = bpf_map_lookup_elem(&nm_clients, &key);
  }
  if (!client) return;
  __sync_fetch_and_add(sends ? &client->tx_bytes : &client->rx_bytes, bytes);
  __sync_fetch_and_add(sends ? &client->tx_packets : &client->rx_packets,
                       segments);
}

/* The program of a link, which calls the other program. Each family has a program of its
 * own, because a link has the name of its program. */
SEC("netfilter")
int nm_forward4(struct bpf_nf_ctx *ctx) {
  bpf_tail_call(ctx, &nm_forwarders, 0);
  return NF_ACCEPT;
}

SEC("netfilter")
int nm_forward6(struct bpf_nf_ctx *ctx) {
  bpf_tail_call(ctx, &nm_forwarders, 0);
  return NF_ACCEPT;
}

SEC("netfilter")
int nm_forward(struct bpf_nf_ctx *ctx) {
  const struct nf_hook_state *state = ctx->state;
  struct sk_buff *skb = ctx->skb;
  struct nm_forwarded *forwarded, none = {};
  struct nm_forwarded_key key = {};
  __u32 segments, bytes;
  bool known;

  interfaces_of(skb, state, &key);
  bytes = wire_size(skb, state->pf == NFPROTO_IPV4, &segments);
  forwarded = bpf_map_lookup_elem(&nm_forwarded_by, &key);
  if (!forwarded) {
    bpf_map_update_elem(&nm_forwarded_by, &key, &none, BPF_NOEXIST);
    forwarded = bpf_map_lookup_elem(&nm_forwarded_by, &key);
  }
  known = forwarded;
  if (!forwarded) forwarded = bpf_map_lookup_elem(&nm_forwarded, &key.uplinks);
  if (!forwarded) return NF_ACCEPT; /* not reached */
  /* Atomic, although it is this CPU's own, for the reason given above. */
  __sync_fetch_and_add(&forwarded->bytes, bytes);
  __sync_fetch_and_add(&forwarded->packets, segments);
  /* Afterwards, and only if the pair has it, so that no client has more than its pair. */
  if (nm_client_uplinks && known)
    count_client(skb, state->pf == NFPROTO_IPV4, &key, bytes, segments);
  return NF_ACCEPT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
