/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * What one packet, or super-packet, weighs.
 *
 * At both hooks the packet begins with its IP header, and skb->len counts from
 * there. That is what the link carries, but for one thing: a super-packet (GSO
 * on the way out, GRO on the way in) stands for many segments with one set of
 * headers, while on the link each has its own. So it weighs
 *
 *   len + (segments - 1) x headers
 *
 * with all headers from IP to transport, extensions and options included.
 *
 * Headers are read field by field through data and data_end where they are in
 * the linear part of the packet, and by bpf_skb_load_bytes() where not. A
 * packet with a header that is cut short still counts, by its length: with
 * transport `other` if it is IP's header, else with the transport that IP
 * names.
 */
#ifndef NETMETER_BPF_PACKET_BPF_H_
#define NETMETER_BPF_PACKET_BPF_H_

#include "bpf/internal.h"
#include "bpf/kernel.bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10

enum nm_direction {
  NM_INGRESS,
  NM_EGRESS,
  NM_OF_SOCKET, /* for addresses: those of the packet's socket */
};

struct nm_packet {
  __u32 bytes; /* on the link, all segments */
  __u32 segments;
  __u32 payload; /* of the transport */
  __u32 header;  /* bytes in front of it */
  __u32 seq;     /* TCP, host byte order */
  __u32 ack;
  __u16 sport; /* host byte order; 0: none */
  __u16 dport;
  __u8 tcp_flags;
  __u8 transport; /* enum nm_transport */
  __u8 path;      /* enum nm_path */
  __u8 protocol;  /* IPPROTO_* */
  /* Found out with the series: series.bpf.h. */
  __u8 keep;    /* its slot is that of all packets of the socket */
  __u8 settles; /* it is known now where what is pending belongs */
  __u8 hidden;  /* it is a TCP socket's, and looks like something else */
  __u16 tag;    /* of the socket, when it was looked at */
  union nm_attribution attribution; /* the same */
};

/* The first bytes of TCP, UDP and SCTP. */
struct nm_l4 {
  __be16 sport;
  __be16 dport;
  __be32 seq;
  __be32 ack;
  __u8 offset; /* TCP header length, high nibble, in 32-bit words */
  __u8 flags;
};

#define NM_MAX_EXTENSIONS 8
#define NM_MAX_INNER 4 /* headers of packets within a packet */
#define NM_NO_NEXT_HEADER 59

/* Hop-by-hop, routing, fragment, authentication, destination options. */
static __always_inline bool is_extension(__u8 type) {
  return type == 0 || type == 43 || type == 44 || type == 51 || type == 60;
}

/* What nm_skip_extensions() returns: the offset in the low bits, then the
 * protocol of the transport, then flags. */
#define NM_OFFSET_MASK 0x7fff
#define NM_PROTOCOL_SHIFT 16
#define NM_JUMBO 0x1000000u
#define NM_CUT_SHORT 0x80000000u

/* Skips IPv6 extension headers (RFC 8200 section 4), of which `next` is the
 * first; returns where the transport header begins, and its protocol. More than
 * eight: the rest counts as payload of an unknown protocol. NM_CUT_SHORT: a
 * header is. NM_JUMBO: the kernel put a jumbo payload option (RFC 2675) into a
 * super-packet, which it takes out again before the link (BIG TCP, in
 * net/ipv6/ip6_output.c).
 *
 * Global: else the verifier would follow every length of the chain to the end
 * of the program. */
NM_GLOBAL __u32 nm_skip_extensions(struct __sk_buff *skb, __u32 next) {
  __u32 offset = 40, flags = 0;
  __u8 type = next;
  struct {
    __u8 next;
    __u8 length;
    __u8 option;
    __u8 rest;
  } header;

  for (int i = 0; i < NM_MAX_EXTENSIONS && is_extension(type); i++) {
    if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header))) {
      flags |= NM_CUT_SHORT;
      goto done;
    }
    if (type == 0 && header.option == 0xc2 && skb->gso_segs > 1)
      flags |= NM_JUMBO;
    if (type == 44) {
      __be16 fragment;

      type = header.next;
      if (bpf_skb_load_bytes(skb, offset + 2, &fragment, sizeof(fragment))) {
        flags |= NM_CUT_SHORT;
        goto done;
      }
      offset += 8;
      /* Only the first fragment holds a transport header. */
      if (fragment & bpf_htons(0xfff8)) {
        type = NM_NO_NEXT_HEADER;
        goto done;
      }
      continue;
    }
    offset += type == 51 ? (header.length + 2) * 4 : (header.length + 1) * 8;
    type = header.next;
  }
  if (is_extension(type)) type = NM_NO_NEXT_HEADER;
done:
  return (offset & NM_OFFSET_MASK) | (__u32)type << NM_PROTOCOL_SHIFT | flags;
}

/* Reads the transport header at `header`; returns the offset behind it. Where
 * it is cut short, *result becomes -1, and it counts as if it were whole. */
static __always_inline __u32 parse_transport(struct __sk_buff *skb,
                                             struct nm_packet *packet,
                                             __u32 header, int *result) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  const __u8 protocol = packet->protocol;
  struct nm_l4 l4 = {};

  switch (protocol) {
    case IPPROTO_TCP:
    case IPPROTO_UDP:
    case IPPROTO_SCTP:
      header &= NM_OFFSET_MASK;
      if (data + header + sizeof(l4) <= end) {
        /* One by one: clang would turn a copy of all into bytes. */
        l4.sport = *(__be16 *)(data + header);
        l4.dport = *(__be16 *)(data + header + 2);
        l4.seq = *(__be32 *)(data + header + 4);
        l4.ack = *(__be32 *)(data + header + 8);
        l4.offset = *(__u8 *)(data + header + 12);
        l4.flags = *(__u8 *)(data + header + 13);
      } else if (bpf_skb_load_bytes(skb, header, &l4, 8) ||
                 (protocol == IPPROTO_TCP &&
                  bpf_skb_load_bytes(skb, header, &l4, sizeof(l4) - 2))) {
        *result = -1;
      }
      packet->sport = bpf_ntohs(l4.sport);
      packet->dport = bpf_ntohs(l4.dport);
      if (protocol == IPPROTO_TCP) {
        packet->transport = NM_TRANSPORT_TCP;
        packet->seq = bpf_ntohl(l4.seq);
        packet->ack = bpf_ntohl(l4.ack);
        packet->tcp_flags = l4.flags;
        return header + (l4.offset >> 4) * 4;
      }
      if (protocol == IPPROTO_UDP) {
        packet->transport = NM_TRANSPORT_UDP;
        return header + 8;
      }
      packet->transport = NM_TRANSPORT_SCTP;
      return header + 12;
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
      packet->transport = NM_TRANSPORT_ICMP;
      return header + 8;
  }
  return header;
}

/* The bytes of the headers of an IP packet that is within another one, its
 * transport header included; `protocol` is the outer one's: IPPROTO_IPIP,
 * IPPROTO_IPV6, or one that holds none. */
NM_GLOBAL __u32 nm_inner_headers(struct __sk_buff *skb, __u32 header,
                                 __u32 protocol) {
  const __u32 begin = header;
  __u8 type = protocol, byte = 0;

  /* 5.10 refuses clang's loop: a back-edge that falls through. */
#pragma unroll
  for (int i = 0; i < NM_MAX_INNER; i++) {
    if (type == IPPROTO_IPIP) {
      if (bpf_skb_load_bytes(skb, header + 9, &type, 1) ||
          bpf_skb_load_bytes(skb, header, &byte, 1))
        break;
      header += (byte & 0xf) * 4;
    } else if (type == IPPROTO_IPV6) {
      if (bpf_skb_load_bytes(skb, header + 6, &type, 1)) break;
      header += 40;
    } else if (type == IPPROTO_ROUTING || type == IPPROTO_DSTOPTS ||
               type == IPPROTO_HOPOPTS) {
      if (bpf_skb_load_bytes(skb, header, &type, 1) ||
          bpf_skb_load_bytes(skb, header + 1, &byte, 1))
        break;
      header += (byte + 1) * 8;
    } else {
      break;
    }
  }
  if (type == IPPROTO_TCP && !bpf_skb_load_bytes(skb, header + 12, &byte, 1))
    header += (byte >> 4) * 4;
  if (type == IPPROTO_UDP) header += 8;
  return header - begin;
}

/* Makes a super-packet weigh what its segments do. gso_segs is 0 for packets
 * that are none, and for those that came from a virtio peer (SKB_GSO_DODGY), of
 * which only the segment size is known. A route may have put headers around the
 * packet (SRv6): then each segment has all of them, and those within. */
static __always_inline void weigh_segments(struct __sk_buff *skb,
                                           struct nm_packet *packet,
                                           __u32 jumbo) {
  __u32 segments, inner = 0;

  if (!skb->gso_size) return;
  if (packet->protocol == IPPROTO_IPIP || packet->protocol == IPPROTO_IPV6)
    inner = nm_inner_headers(skb, packet->header, packet->protocol);
  segments = skb->gso_segs;
  if (!segments)
    segments = (packet->payload - inner + skb->gso_size - 1) / skb->gso_size;
  if (segments <= 1) return;
  packet->segments = segments;
  packet->bytes += (segments - 1) * (packet->header + inner - jumbo) - jumbo;
}

/* Reads the headers of a packet; whatever they hold, bytes and segments are
 * set. Returns -1 where a header is cut short. */
static __always_inline int parse_packet(struct __sk_buff *skb,
                                        struct nm_packet *packet) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u32 length = skb->len, header, jumbo = 0;
  int result = 0;
  __u8 next;

  packet->bytes = length;
  packet->segments = 1;
  if (data + 20 > end) return -1;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    header = (*(__u8 *)data & 0xf) * 4;
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
      header = nm_skip_extensions(skb, next);
      if (header & NM_CUT_SHORT) result = -1;
      if (header & NM_JUMBO) jumbo = 8;
      next = header >> NM_PROTOCOL_SHIFT;
      header &= NM_OFFSET_MASK;
    }
  }
  packet->protocol = next;
  header = parse_transport(skb, packet, header, &result);
  packet->payload = length > header ? length - header : 0;
  packet->header = header;
  weigh_segments(skb, packet, jumbo);
  return result;
}

/* The address of the other end: IPv4 as ::ffff:a.b.c.d. */
static __always_inline void remote_address(struct __sk_buff *skb,
                                           enum nm_direction direction,
                                           __u32 address[4]) {
  if (direction == NM_OF_SOCKET) {
    struct bpf_sock *sk = skb->sk;

    if (sk) sk = bpf_sk_fullsock(sk);
    if (!sk) return;
    if (sk->family == AF_INET) {
      address[2] = bpf_htonl(0xffff);
      address[3] = sk->dst_ip4;
    } else {
      address[0] = sk->dst_ip6[0];
      address[1] = sk->dst_ip6[1];
      address[2] = sk->dst_ip6[2];
      address[3] = sk->dst_ip6[3];
    }
    return;
  }
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
