/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The tables of other meters, written anew from what their projects say about
 * them: only what a packet or a call costs there. They know IPv4 with TCP or UDP,
 * which is all that the benchmarks send, and are not read. Each of them gets the
 * room that its project gives it.
 *
 *   kernsnoopd  hash, 40-byte key: thread, process, other end, port, family
 *   Skydive     two hashes of 500,000 entries, of which a flag in an array
 *               tells the one in use; the key is a 64-bit hash of the flow
 *   netobserv   hash of 500,000 entries, not preallocated, keyed by the whole
 *               flow; the value has a spin lock
 */
#ifndef NETMETER_TEST_BENCHMARK_FLOW_BPF_H_
#define NETMETER_TEST_BENCHMARK_FLOW_BPF_H_

#ifndef __BPF__
#define __BPF__ 1
#endif
/* In this order: libbpf's headers need the kernel's types. */
/* clang-format off */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
/* clang-format on */

#define PASS 1
#define ETH_P_IP 0x0800
#define ETH_HLEN 14

struct bm_flow {
  __u32 source, target;
  __u16 source_port, target_port;
  __u8 protocol;
  __u8 pad[3];
};
_Static_assert(sizeof(struct bm_flow) == 16, "without holes");

struct bm_count {
  __u64 bytes;
  __u64 packets;
};

/* The flow of a packet whose IP header is `offset` bytes after its start. */
static __always_inline int read_flow(struct __sk_buff *skb, __u32 offset,
                                     struct bm_flow *flow) {
  void *data = (void *)(long)skb->data + offset;
  void *end = (void *)(long)skb->data_end;
  __u32 header;

  if (skb->protocol != bpf_htons(ETH_P_IP) || data + 20 > end) return 0;
  header = (*(__u8 *)data & 0xf) * 4;
  flow->source = *(__u32 *)(data + 12);
  flow->target = *(__u32 *)(data + 16);
  flow->protocol = *(__u8 *)(data + 9);
  if (data + header + 4 <= end) {
    flow->source_port = *(__u16 *)(data + header);
    flow->target_port = *(__u16 *)(data + header + 2);
  }
  return 1;
}

/* For programs that may not read the packet directly: on sockets. */
static __always_inline int load_flow(struct __sk_buff *skb,
                                     struct bm_flow *flow) {
  __u8 header[20];
  __u16 ports[2];

  if (skb->protocol != bpf_htons(ETH_P_IP)) return 0;
  if (bpf_skb_load_bytes_relative(skb, 0, header, sizeof(header),
                                  BPF_HDR_START_NET))
    return 0;
  __builtin_memcpy(&flow->source, header + 12, 4);
  __builtin_memcpy(&flow->target, header + 16, 4);
  flow->protocol = header[9];
  if (!bpf_skb_load_bytes_relative(skb, (header[0] & 0xf) * 4, ports,
                                   sizeof(ports), BPF_HDR_START_NET)) {
    flow->source_port = ports[0];
    flow->target_port = ports[1];
  }
  return 1;
}

static __always_inline void add(struct bm_count *count, __u32 bytes) {
  __sync_fetch_and_add(&count->bytes, bytes);
  __sync_fetch_and_add(&count->packets, 1);
}

/* The value of a key, made if need be. */
static __always_inline void *find_or_make(void *map, const void *key,
                                          const void *none) {
  void *value = bpf_map_lookup_elem(map, key);

  if (value) return value;
  bpf_map_update_elem(map, key, none, BPF_NOEXIST);
  return bpf_map_lookup_elem(map, key);
}

/* --- kernsnoopd ----------------------------------------------------------- */

struct bm_snoop_key {
  char comm[16];
  __u32 pid;
  __u32 address[4];
  __u16 port;
  __u16 family;
};
_Static_assert(sizeof(struct bm_snoop_key) == 40, "kernsnoopd's key");

/* Full: what is new is not counted. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 10240); /* BCC's default */
  __type(key, struct bm_snoop_key);
  __type(value, struct bm_count);
} bm_snoop SEC(".maps");

static __always_inline void count_snoop(const struct bm_snoop_key *key,
                                        __u32 bytes) {
  const struct bm_count none = {};
  struct bm_count *count = find_or_make(&bm_snoop, key, &none);

  if (count) add(count, bytes);
}

/* --- Skydive -------------------------------------------------------------- */

struct bm_page_flow {
  struct bm_flow flow;
  __u64 start_ns, last_ns;
  struct bm_count there, back; /* by who sent the first packet */
};

struct bm_page {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 500000);
  __type(key, __u64);
  __type(value, struct bm_page_flow);
};
struct bm_page bm_page_a SEC(".maps");
struct bm_page bm_page_b SEC(".maps");

/* 0 -> the page in use, 1 -> flows that found no room. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2);
  __type(key, __u32);
  __type(value, __u64);
} bm_page_state SEC(".maps");

static __always_inline __u64 mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

/* One key for both directions: what is the same turned round is added. */
static __always_inline void count_page(const struct bm_flow *flow,
                                       __u32 bytes) {
  const __u64 addresses = mix(1, flow->source) + mix(1, flow->target);
  const __u64 ports = mix(2, flow->source_port) + mix(2, flow->target_port);
  const __u64 key = mix(mix(addresses, ports), flow->protocol);
  __u32 zero = 0, one = 1;
  __u64 *page = bpf_map_lookup_elem(&bm_page_state, &zero), *lost;
  struct bm_page_flow *entry, none = {};
  __u64 now = bpf_ktime_get_ns();

  if (!page) return;
  entry = *page ? bpf_map_lookup_elem(&bm_page_b, &key)
                : bpf_map_lookup_elem(&bm_page_a, &key);
  if (entry) {
    entry->last_ns = now;
    add(entry->flow.source == flow->source ? &entry->there : &entry->back,
        bytes);
    return;
  }
  none.flow = *flow;
  none.start_ns = none.last_ns = now;
  none.there.bytes = bytes;
  none.there.packets = 1;
  if (*page ? bpf_map_update_elem(&bm_page_b, &key, &none, BPF_NOEXIST)
            : bpf_map_update_elem(&bm_page_a, &key, &none, BPF_NOEXIST)) {
    lost = bpf_map_lookup_elem(&bm_page_state, &one);
    if (lost) __sync_fetch_and_add(lost, 1);
  }
}

/* --- netobserv ------------------------------------------------------------ */

struct bm_observed_key {
  __u32 source[4], target[4];
  __u16 source_port, target_port;
  __u8 protocol, icmp_type, icmp_code;
  __u8 pad;
};
_Static_assert(sizeof(struct bm_observed_key) == 40, "without holes");

struct bm_observed {
  struct bpf_spin_lock lock;
  __u32 packets;
  __u64 bytes;
  __u64 start_ns, last_ns;
  __u16 flags;
  __u8 direction;
  __u8 pad[5];
};

/* Full: counted, and not sent to user space here. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 500000);
  __type(key, struct bm_observed_key);
  __type(value, struct bm_observed);
} bm_flows SEC(".maps");

__u64 bm_flows_lost;

static __always_inline void count_observed(const struct bm_flow *flow,
                                           __u32 bytes, __u8 direction) {
  struct bm_observed_key key = {.protocol = flow->protocol,
                                .source_port = flow->source_port,
                                .target_port = flow->target_port};
  struct bm_observed *entry, first = {};
  __u64 now = bpf_ktime_get_ns();

  key.source[2] = key.target[2] = bpf_htonl(0xffff); /* mapped addresses */
  key.source[3] = flow->source;
  key.target[3] = flow->target;
  entry = bpf_map_lookup_elem(&bm_flows, &key);
  if (entry) {
    bpf_spin_lock(&entry->lock);
    entry->packets += 1;
    entry->bytes += bytes;
    entry->last_ns = now;
    bpf_spin_unlock(&entry->lock);
    return;
  }
  first.packets = 1;
  first.bytes = bytes;
  first.start_ns = first.last_ns = now;
  first.direction = direction;
  if (bpf_map_update_elem(&bm_flows, &key, &first, BPF_NOEXIST))
    __sync_fetch_and_add(&bm_flows_lost, 1);
}

#endif /* NETMETER_TEST_BENCHMARK_FLOW_BPF_H_ */
