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
#include "bpf/uplink_maps.bpf.h"
#include "bpf/wire_size.bpf.h"

#define NF_ACCEPT 1
#define NFPROTO_IPV4 2
#define SKB_GSO_TCPV4 (1 << 0)
#define SKB_GSO_TCPV6 (1 << 4)
#define SKB_GSO_SCTP (1 << 14)

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

/* Bits 1 << number of the uplinks whose addresses are clients. Set between open and
 * load. */
const volatile __u32 nm_client_uplinks;

/* An interface as one CPU knows it. The program compares the name for each packet, so it
 * follows a rename at once. */
struct nm_known {
  __u32 ifindex;
  __u32 uplink;
  __u64 name[NM_INTERFACE_BYTES / 8];
};

/* low bits of the ifindex -> interface. */
#define NM_KNOWN 256 /* a power of two */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, NM_KNOWN);
  __type(key, __u32);
  __type(value, struct nm_known);
} nm_known SEC(".maps");

static __always_inline __u32 uplink_of_device(struct net_device *device,
                                              __u32 *found) {
  __u64 name[NM_INTERFACE_BYTES / 8];
  __u32 ifindex, index, uplink;
  struct nm_known *known;

  if (!device) return NM_UPLINK_NONE;
  ifindex = *found = device->ifindex;
  index = ifindex % NM_KNOWN;
  /* The verifier knows the type, so no helper is needed, which takes ten times as
   * long. */
  name[0] = *(const __u64 *)&device->name[0];
  name[1] = *(const __u64 *)&device->name[8];
  known = bpf_map_lookup_elem(&nm_known, &index);
  if (!known) return NM_UPLINK_NONE; /* not reached */
  if (known->ifindex == ifindex && known->name[0] == name[0] &&
      known->name[1] == name[1])
    return known->uplink & 0xf;
  uplink = uplink_of_name((const char *)name, ifindex);
  /* A softirq may come in between, on kernels where a task gives a packet back to the
   * hooks (NFQUEUE). Half of an entry matches no interface. */
  *(volatile __u32 *)&known->ifindex = 0;
  known->name[0] = name[0];
  known->name[1] = name[1];
  known->uplink = uplink;
  *(volatile __u32 *)&known->ifindex = ifindex;
  return uplink & 0xf;
}

/* The bytes of the IP header with its extensions. *jumbo: bytes of the option that the
 * kernel put into a GSO packet, and removes before the link. */
static __always_inline __u32 ip_header(const unsigned char *ip, bool ipv4,
                                       __u8 *protocol, __u32 *jumbo) {
  __u8 byte = 0, extension[4];
  __u32 length = 40;

  if (ipv4) {
    bpf_probe_read_kernel(&byte, 1, ip);
    bpf_probe_read_kernel(protocol, 1, ip + 9);
    return (byte & 0xf) * 4;
  }
  bpf_probe_read_kernel(protocol, 1, ip + 6);
#pragma unroll
  for (int i = 0; i < NM_MAX_EXTENSIONS; i++) {
    /* Hop-by-hop, routing, destination options. */
    if (*protocol != 0 && *protocol != 43 && *protocol != 60) break;
    bpf_probe_read_kernel(extension, sizeof(extension), ip + length);
    if (*protocol == 0 && extension[2] == 0xc2) *jumbo = NM_JUMBO_BYTES;
    *protocol = extension[0];
    length += (extension[1] + 1) * 8;
  }
  return length;
}

/* The bytes of the headers that each segment of a GSO packet has. For packets within
 * packets, the kernel knows where the innermost begins. */
static __always_inline __u32 headers_of(struct sk_buff *skb, bool ipv4,
                                        __u32 gso_type, __u32 *jumbo) {
  const unsigned char *ip = skb->head + skb->network_header;
  __u8 protocol = 0, byte = 0;
  __u32 header = ip_header(ip, ipv4, &protocol, jumbo);

  if (BPF_CORE_READ_BITFIELD(skb, encapsulation))
    header = skb->inner_transport_header - skb->network_header;
  if (gso_type & SKB_GSO_SCTP) return header + 12;
  if (!(gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6))) return header + 8;
  bpf_probe_read_kernel(&byte, 1, ip + (header & 0xffff) + 12);
  return header + (byte >> 4) * 4;
}

/* As nm_wire_size() of packet.bpf.h, except that a peer's claim for the size of segments
 * is always used, however small: the kernel cuts outgoing packets into such segments. */
static __always_inline __u32 wire_size(struct sk_buff *skb, bool ipv4,
                                       __u32 *segments) {
  struct skb_shared_info *info = (void *)(skb->head + skb->end);
  __u32 bytes = skb->len, jumbo = 0, header, size, count;

  *segments = 1;
  size = BPF_CORE_READ(info, gso_size);
  if (!size) return bytes;
  header = headers_of(skb, ipv4, BPF_CORE_READ(info, gso_type), &jumbo);
  count = BPF_CORE_READ(info, gso_segs);
  /* For a packet from a virtio peer, only the size of its segments is known. */
  if (!count && bytes > header) count = segments_by_size(bytes - header, size);
  if (count <= 1) return bytes;
  *segments = count;
  return bytes_on_link(bytes, count, header, jumbo);
}

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
  __u32 in = NM_UPLINK_NONE, segments, bytes;
  bool known;

  /* A multicast comes here once for each of its outgoing interfaces. */
  if (BPF_CORE_READ_BITFIELD(skb, pkt_type) == PACKET_HOST)
    in = uplink_of_device(state->in, &key.in);
  key.uplinks = NM_FORWARDED_INDEX(in, uplink_of_device(state->out, &key.out));
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
