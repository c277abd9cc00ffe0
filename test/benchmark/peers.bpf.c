// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * Other meters at the hooks where they work, for real traffic. What they do
 * with a packet or a call is in flow.bpf.h; systemd's is here.
 */
/* First: it brings the kernel's types. */
#include "test/benchmark/flow.bpf.h"
/* clang-format off */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
/* clang-format on */

/* --- systemd's IPAccounting ------------------------------------------------
 *
 * Two programs on the cgroup of the unit, and a map of two entries for each of
 * them: packets and bytes, each looked up and added to atomically. */

struct bm_unit {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2);
  __type(key, __u32);
  __type(value, __u64);
};
struct bm_unit bm_unit_tx SEC(".maps");
struct bm_unit bm_unit_rx SEC(".maps");

static __always_inline int count_unit(void *map, struct __sk_buff *skb) {
  __u32 packets = 0, bytes = 1;
  __u64 *value = bpf_map_lookup_elem(map, &packets);

  if (value) __sync_fetch_and_add(value, 1);
  value = bpf_map_lookup_elem(map, &bytes);
  if (value) __sync_fetch_and_add(value, skb->len);
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_systemd_tx(struct __sk_buff *skb) {
  return count_unit(&bm_unit_tx, skb);
}

SEC("cgroup_skb/ingress")
int bm_systemd_rx(struct __sk_buff *skb) {
  return count_unit(&bm_unit_rx, skb);
}

/* --- Skydive: a filter on a packet socket of each interface ----------------- */

SEC("socket")
int bm_skydive_filter(struct __sk_buff *skb) {
  struct bm_flow flow = {};

  if (load_flow(skb, &flow)) count_page(&flow, skb->len);
  return 0; /* nothing goes to the socket */
}

/* --- netobserv: traffic control of each interface, both directions --------- */

static __always_inline int observe(struct __sk_buff *skb, __u8 direction) {
  struct bm_flow flow = {};

  if (read_flow(skb, ETH_HLEN, &flow))
    count_observed(&flow, skb->len, direction);
  return -1; /* TC_ACT_UNSPEC: go on */
}

SEC("tc")
int bm_observe_tx(struct __sk_buff *skb) { return observe(skb, 1); }

SEC("tc")
int bm_observe_rx(struct __sk_buff *skb) { return observe(skb, 0); }

/* --- tc: forwarded traffic by traffic control --------------------------------
 *
 * The least that a meter would need on kernels without netfilter programs: the
 * bytes and packets of each interface, less those that it counts at its sockets;
 * or, at egress alone, only packets that came in by an interface. */

/* Interfaces -> counts of each CPU. */
#define BM_INTERFACES 256
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, BM_INTERFACES);
  __type(key, __u32);
  __type(value, struct bm_count);
} bm_interfaces SEC(".maps");

static __always_inline int count_interfaces(__u32 key, __u32 bytes) {
  struct bm_count *count;

  key &= BM_INTERFACES - 1;
  count = bpf_map_lookup_elem(&bm_interfaces, &key);
  if (!count) return -1;
  count->bytes += bytes;
  count->packets++;
  return -1;
}

SEC("tc")
int bm_tc_tx(struct __sk_buff *skb) {
  return count_interfaces(skb->ifindex << 1, skb->len);
}

SEC("tc")
int bm_tc_rx(struct __sk_buff *skb) {
  return count_interfaces(skb->ifindex << 1 | 1, skb->len);
}

SEC("tc")
int bm_tc_forwarded(struct __sk_buff *skb) {
  if (!skb->ingress_ifindex) return -1; /* of this host */
  return count_interfaces(skb->ingress_ifindex << 4 | (skb->ifindex & 15),
                          skb->len);
}

/* --- kernsnoopd: each call of tcp_sendmsg() --------------------------------
 *
 * It uses a kprobe. fentry costs less, and the tracepoint that sendmsg(2) comes
 * to after the call (since 6.3) exists on kernels without both. */

struct sock_common {
  __u32 skc_daddr;
  __u16 skc_dport;
  unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
  struct sock_common __sk_common;
  __u16 sk_protocol;
} __attribute__((preserve_access_index));

struct msghdr;

static __always_inline int count_send(struct sock *sk, __u32 size) {
  struct bm_snoop_key key = {};

  bpf_get_current_comm(key.comm, sizeof(key.comm));
  key.pid = bpf_get_current_pid_tgid() >> 32;
  key.address[0] = sk->__sk_common.skc_daddr;
  key.port = sk->__sk_common.skc_dport;
  key.family = sk->__sk_common.skc_family;
  count_snoop(&key, size);
  return 0;
}

SEC("fentry/tcp_sendmsg")
int BPF_PROG(bm_snoop_call, struct sock *sk, struct msghdr *msg, __u64 size) {
  return count_send(sk, size);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(bm_snoop_point, struct sock *sk, int size, int flags) {
  if (size <= 0 || sk->sk_protocol != IPPROTO_TCP) return 0;
  return count_send(sk, size);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
