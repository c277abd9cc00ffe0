/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/* What one packet, or super-packet, weighs. */
#ifndef NETMETER_BPF_PACKET_BPF_H_
#define NETMETER_BPF_PACKET_BPF_H_

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_ACK 0x10

enum nm_direction { NM_INGRESS, NM_EGRESS };

struct nm_packet {
  __u32 bytes;    /* on the link, all segments */
  __u32 segments;
  __u32 payload;  /* of the transport */
  __u32 header;   /* bytes in front of it */
  __u32 seq;      /* TCP, host byte order */
  __u32 ack;
  __u16 source;   /* ports, host byte order; 0: none */
  __u16 target;
  __u8 tcp_flags;
  __u8 transport; /* enum nm_transport */
  __u8 path;      /* enum nm_path */
  __u8 protocol;  /* IPPROTO_* */
};

/* The first bytes of TCP, UDP and SCTP. */
struct nm_l4 {
  __be16 source;
  __be16 target;
  __be32 seq;
  __be32 ack;
  __u8 offset; /* TCP header length, high nibble, in 32-bit words */
  __u8 flags;
};

#define NM_MAX_EXTENSIONS 8
#define NM_CUT_SHORT 0x80000000u /* in the offset: a header is */

/* Hop-by-hop, routing, fragment, authentication, destination options. */
static __always_inline bool is_extension(__u8 type) {
  return type == 0 || type == 43 || type == 44 || type == 51 || type == 60;
}

/* Skips IPv6 extension headers (RFC 8200 section 4); returns the offset of the
 * transport header and puts its protocol into *next. More than eight: the
 * rest counts as payload of an unknown protocol. *jumbo becomes 8 where the
 * kernel put a jumbo payload option (RFC 2675) into a super-packet, which it
 * takes out again before the link (net/ipv6/ip6_output.c, BIG TCP). */
static __noinline __u32 skip_extensions(struct __sk_buff *skb, __u8 *next,
                                        __u32 *jumbo) {
  __u32 offset = 40;
  struct {
    __u8 next;
    __u8 length;
    __u8 option;
    __u8 rest;
  } header;

  if (!next || !jumbo) return offset;
  for (int i = 0; i < NM_MAX_EXTENSIONS; i++) {
    __u8 type = *next;

    if (!is_extension(type)) return offset;
    if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)))
      return offset | NM_CUT_SHORT;
    *next = header.next;
    if (type == 0 && header.option == 0xc2 && skb->gso_segs > 1) *jumbo = 8;
    if (type == 44) {
      __be16 fragment;

      if (bpf_skb_load_bytes(skb, offset + 2, &fragment, sizeof(fragment)))
        return offset | NM_CUT_SHORT;
      offset += 8;
      /* Only the first fragment holds a transport header. */
      if (fragment & bpf_htons(0xfff8)) {
        *next = 59;
        return offset;
      }
    } else if (type == 51) {
      offset += (header.length + 2) * 4;
    } else {
      offset += (header.length + 1) * 8;
    }
  }
  if (is_extension(*next)) *next = 59; /* no next header */
  return offset;
}

/* Reads the headers of a packet; whatever they hold, bytes and segments are
 * set. Returns -1 where a header is cut short. */
static __always_inline int parse_packet(struct __sk_buff *skb,
                                        struct nm_packet *packet) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u32 length = skb->len, header, jumbo = 0;
  struct nm_l4 l4 = {};
  __u8 first, next;
  int result = 0;

  packet->bytes = length;
  packet->segments = 1;
  if (data + 20 > end) return -1;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    first = *(__u8 *)data;
    header = (first & 0xf) * 4;
    next = *(__u8 *)(data + 9);
    /* Only the first fragment holds a transport header. */
    if (*(__be16 *)(data + 6) & bpf_htons(0x1fff)) {
      packet->protocol = next;
      packet->payload = length > header ? length - header : 0;
      return 0;
    }
  } else {
    if (data + 40 > end) return -1;
    next = *(__u8 *)(data + 6);
    header = 40;
    if (is_extension(next)) {
      header = skip_extensions(skb, &next, &jumbo);
      if (header & NM_CUT_SHORT) {
        header &= ~NM_CUT_SHORT;
        result = -1;
      }
    }
  }
  packet->protocol = next;

  switch (next) {
    case IPPROTO_TCP:
    case IPPROTO_UDP:
    case IPPROTO_SCTP:
      header &= 0xffff;
      if (data + header + sizeof(l4) <= end) {
        /* Two steps: clang would turn one copy into bytes. */
        l4.source = *(__be16 *)(data + header);
        l4.target = *(__be16 *)(data + header + 2);
        l4.seq = *(__be32 *)(data + header + 4);
        l4.ack = *(__be32 *)(data + header + 8);
        l4.offset = *(__u8 *)(data + header + 12);
        l4.flags = *(__u8 *)(data + header + 13);
      } else if (bpf_skb_load_bytes(skb, header, &l4, 8) ||
                 (next == IPPROTO_TCP &&
                  bpf_skb_load_bytes(skb, header, &l4, sizeof(l4) - 2))) {
        result = -1;
      }
      packet->source = bpf_ntohs(l4.source);
      packet->target = bpf_ntohs(l4.target);
      if (next == IPPROTO_TCP) {
        packet->transport = NM_TRANSPORT_TCP;
        packet->seq = bpf_ntohl(l4.seq);
        packet->ack = bpf_ntohl(l4.ack);
        packet->tcp_flags = l4.flags;
        header += (l4.offset >> 4) * 4;
      } else if (next == IPPROTO_UDP) {
        packet->transport = NM_TRANSPORT_UDP;
        header += 8;
      } else {
        packet->transport = NM_TRANSPORT_SCTP;
        header += 12;
      }
      break;
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
      packet->transport = NM_TRANSPORT_ICMP;
      header += 8;
      break;
  }
  packet->payload = length > header ? length - header : 0;
  packet->header = header;

  /* Each segment on the link has all headers of its own. gso_segs is 0 for
   * packets that are none, and for those that came from a virtio peer
   * (SKB_GSO_DODGY), of which only the segment size is known. */
  if (skb->gso_size) {
    __u32 segments = skb->gso_segs;

    if (!segments)
      segments = (packet->payload + skb->gso_size - 1) / skb->gso_size;
    if (segments > 1) {
      packet->segments = segments;
      packet->bytes =
          length - jumbo + (segments - 1) * (header - jumbo);
    }
  }
  return result;
}

/* The address of the other end: IPv4 as ::ffff:a.b.c.d. */
static __always_inline void remote_address(struct __sk_buff *skb,
                                           enum nm_direction direction,
                                           __u32 address[4]) {
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    address[0] = 0;
    address[1] = 0;
    address[2] = bpf_htonl(0xffff);
    bpf_skb_load_bytes(skb, direction == NM_EGRESS ? 16 : 12, &address[3], 4);
  } else {
    bpf_skb_load_bytes(skb, direction == NM_EGRESS ? 24 : 8, address, 16);
  }
}

#endif /* NETMETER_BPF_PACKET_BPF_H_ */
