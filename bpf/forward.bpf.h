/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * A packet at netfilter's FORWARD: its interfaces, their uplinks, and its bytes on the
 * link. Shared by the program that counts such packets (forward.bpf.c) and the one that
 * follows their flows (flow_forward.bpf.h).
 */
#ifndef NETMETER_BPF_FORWARD_BPF_H_
#define NETMETER_BPF_FORWARD_BPF_H_

#include "bpf/uplink_maps.bpf.h"
#include "bpf/wire_size.bpf.h"

#define NF_ACCEPT 1
#define NFPROTO_IPV4 2
#define SKB_GSO_TCPV4 (1 << 0)
#define SKB_GSO_TCPV6 (1 << 4)
#define SKB_GSO_SCTP (1 << 14)

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
  /* Read without a helper, which takes ten times as long: the verifier knows the type. */
  name[0] = *(const __u64 *)&device->name[0];
  name[1] = *(const __u64 *)&device->name[8];
  known = bpf_map_lookup_elem(&nm_known, &index);
  if (!known) return NM_UPLINK_NONE; /* not reached */
  if (known->ifindex == ifindex && known->name[0] == name[0] &&
      known->name[1] == name[1])
    return known->uplink & 0xf;
  uplink = uplink_of_name((const char *)name, ifindex);
  /* A softirq may interrupt this if a task gives a packet back to the hooks (NFQUEUE).
   * An entry without an ifindex matches no interface. */
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

/* The interfaces of a packet, and their uplinks. A multicast comes here once for each of
 * its outgoing interfaces, and has no incoming one. */
static __always_inline void interfaces_of(struct sk_buff *skb,
                                          const struct nf_hook_state *state,
                                          struct nm_forwarded_key *key) {
  __u32 in = NM_UPLINK_NONE;

  if (BPF_CORE_READ_BITFIELD(skb, pkt_type) == PACKET_HOST)
    in = uplink_of_device(state->in, &key->in);
  key->uplinks =
      NM_FORWARDED_INDEX(in, uplink_of_device(state->out, &key->out));
}

#endif /* NETMETER_BPF_FORWARD_BPF_H_ */
