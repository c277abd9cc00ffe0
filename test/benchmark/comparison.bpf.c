// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * What netmeter's programs are measured beside, at the same hooks: a program
 * that does nothing; the least that a meter by sockets could do, its floor; and
 * the layout of the original proposal (Magma p018), one hash for all CPUs whose
 * key is looked up on every packet. The proposal's
 * thread name and pid cannot be had here before 6.12: they are constants, so
 * that the figure is without the helpers that would fetch them.
 */
#define __BPF__ 1
/* In this order: libbpf's headers need the kernel's types. */
/* clang-format off */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
/* clang-format on */

#define PASS 1
#define ETH_P_IP 0x0800

struct bm_key {
  char comm[16];
  __u32 pid;
  __u32 address; /* IPv4, of the other end */
  __u16 port;
  __u16 family;
};
_Static_assert(sizeof(struct bm_key) == 28, "the proposal's key");

struct bm_value {
  __u64 bytes;
  __u64 packets;
};

/* (thread, process, other end) -> counters of both directions. Written by
 * bm_hash_tx and bm_hash_rx. Full: what is new is not counted. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 10240); /* BCC's default */
  __type(key, struct bm_key);
  __type(value, struct bm_value);
} bm_counters SEC(".maps");

static __always_inline int count(struct __sk_buff *skb, int egress) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  struct bm_key key = {.comm = "subscriberdb", .pid = 4711, .family = 2};
  struct bm_value *value;
  __u32 header;

  if (skb->protocol != bpf_htons(ETH_P_IP) || data + 20 > end) return PASS;
  header = (*(__u8 *)data & 0xf) * 4;
  key.address = *(__u32 *)(data + (egress ? 16 : 12));
  if (data + header + 4 <= end)
    key.port = *(__u16 *)(data + header + (egress ? 2 : 0));
  value = bpf_map_lookup_elem(&bm_counters, &key);
  if (!value) {
    struct bm_value none = {};

    bpf_map_update_elem(&bm_counters, &key, &none, BPF_NOEXIST);
    value = bpf_map_lookup_elem(&bm_counters, &key);
    if (!value) return PASS;
  }
  __sync_fetch_and_add(&value->bytes, skb->len);
  __sync_fetch_and_add(&value->packets, 1);
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_hash_tx(struct __sk_buff *skb) { return count(skb, 1); }

SEC("cgroup_skb/ingress")
int bm_hash_rx(struct __sk_buff *skb) { return count(skb, 0); }

/* The floor: the socket's cookie, its entry, the cell of this CPU, the first
 * bytes of the packet, and three adds. No check of anything, no guard of the
 * adds, nothing of TCP. */
#define BM_SOCKETS 16384
#define BM_CPUS 1024

struct bm_line {
  __u64 words[8];
};

/* Low bits of a cookie -> what is known of a socket. Nobody writes it. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, BM_SOCKETS);
  __type(key, __u32);
  __type(value, struct bm_line);
} bm_sockets SEC(".maps");

/* CPU -> counters. Written by bm_floor_tx and bm_floor_rx. Such a map begins
 * with a page, and any other one in the middle of a cache line, which two CPUs
 * would share then. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, BM_CPUS);
  __type(key, __u32);
  __type(value, struct bm_line);
} bm_cells SEC(".maps");

static __always_inline int count_at_least(struct __sk_buff *skb, int egress) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u32 index = bpf_get_socket_cookie(skb) & (BM_SOCKETS - 1);
  __u32 bytes = skb->len, header;
  struct bm_line *line;

  if (data + 28 > end) return PASS;
  header = (*(__u8 *)data & 0xf) * 4;
  line = bpf_map_lookup_elem(&bm_sockets, &index);
  if (!line) return PASS;
  index = line->words[0] + bpf_get_smp_processor_id();
  line = bpf_map_lookup_elem(&bm_cells, &index);
  if (!line) return PASS;
  *(volatile __u64 *)&line->words[egress ? 0 : 3] += bytes;
  *(volatile __u64 *)&line->words[egress ? 1 : 4] += 1;
  *(volatile __u64 *)&line->words[egress ? 2 : 5] += bytes - header;
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_floor_tx(struct __sk_buff *skb) { return count_at_least(skb, 1); }

SEC("cgroup_skb/ingress")
int bm_floor_rx(struct __sk_buff *skb) { return count_at_least(skb, 0); }

SEC("cgroup_skb/egress")
int bm_empty_tx(struct __sk_buff *skb) { return PASS; }

SEC("cgroup_skb/ingress")
int bm_empty_rx(struct __sk_buff *skb) { return PASS; }

/* The other hooks of netmeter's, empty too: the floor of a connection. */
SEC("cgroup/sock_create")
int bm_create(struct bpf_sock *sk) { return PASS; }

SEC("cgroup/sock_release")
int bm_release(struct bpf_sock *sk) { return PASS; }

SEC("cgroup/setsockopt")
int bm_setsockopt(struct bpf_sockopt *ctx) { return PASS; }

SEC("sockops")
int bm_sockops(struct bpf_sock_ops *ops) { return PASS; }

/* Asks for the changes of the state, as any program that wants to see a socket's end. */
SEC("sockops")
int bm_sockops_state(struct bpf_sock_ops *ops) {
  switch (ops->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
      bpf_sock_ops_cb_flags_set(ops, BPF_SOCK_OPS_STATE_CB_FLAG);
  }
  return PASS;
}

struct bm_owner {
  __u64 words[17];
};

/* socket -> 136 bytes, as an owner had before the socket table had owners. Made by
 * bm_create_storage, and never read. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
  __type(key, int);
  __type(value, struct bm_owner);
} bm_owners SEC(".maps");

SEC("cgroup/sock_create")
int bm_create_storage(struct bpf_sock *sk) {
  struct bm_owner *owner =
      bpf_sk_storage_get(&bm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

  if (owner) owner->words[0] = 1;
  return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
