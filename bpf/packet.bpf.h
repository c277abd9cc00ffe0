/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * What the headers of a packet say: its bytes and segments on the link (wire_size.bpf.h),
 * its ends, and the numbers of TCP.
 *
 * Headers in the linear part of the packet are read field by field through data and
 * data_end, others by bpf_skb_load_bytes(). A packet whose header is cut short still
 * counts, by its length. Its transport is `other` if the IP header is cut short, else the
 * one that the IP header names.
 *
 * NAT on this host has already changed the addresses and ports of a sent packet, and has
 * already restored those of a received one. So the ends of a sent packet come from its
 * socket, if the socket has them: then both directions have the remote end that the
 * application talks to. A TCP or UDP socket always has its own port. It has a remote end
 * if it is connected.
 */
#ifndef NETMETER_BPF_PACKET_BPF_H_
#define NETMETER_BPF_PACKET_BPF_H_

#include "bpf/internal.h"
#include "bpf/kernel.bpf.h"
#include "bpf/wire_size.bpf.h"

#define SKB_GSO_DODGY (1 << 1) /* of skb_shared_info.gso_type */

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10

enum nm_direction {
  NM_INGRESS,
  NM_EGRESS,
};

struct nm_packet {
  __u32 bytes; /* on the link, all segments */
  __u32 segments;
  __u32 payload; /* of the transport */
  __u32 header;  /* bytes in front of it */
  __u32 seq;     /* TCP, host byte order */
  __u32 ack;
  __u16 sport; /* as nm_ports() */
  __u16 dport;
  __u8 tcp_flags;
  __u8 transport; /* enum nm_transport */
  __u8 path;      /* as nm_cell.path */
  __u8 protocol;  /* IPPROTO_* */
};

/* The properties of a packet that decide its series, as one number, because 5.10 passes
 * no pointers to a global function. */
union nm_traits {
  struct {
    __u16 sport; /* as in struct nm_packet */
    __u16 dport;
    __u8 transport;
    __u8 path;
    __u8 protocol;
    __u8 hidden : 1; /* sent by TCP, but it looks like something else */
    __u8 ruled : 7;  /* may_match_a_rule() */
  };
  __u64 word;
};

static __always_inline union nm_traits traits_of(
    const struct nm_packet *packet) {
  union nm_traits traits = {};

  traits.sport = packet->sport;
  traits.dport = packet->dport;
  traits.transport = packet->transport;
  traits.path = packet->path;
  traits.protocol = packet->protocol;
  return traits;
}

#define NM_MAX_INNER 4 /* headers of packets within a packet */
#define NM_NO_NEXT_HEADER 59

/* Hop-by-hop, routing, fragment, authentication, destination options. */
static __always_inline bool is_extension(__u8 type) {
  return type == 0 || type == 43 || type == 44 || type == 51 || type == 60;
}

/* The result of the next two functions: the offset of a header in the low bits, then its
 * protocol, then flags. */
#define NM_OFFSET_MASK 0x7fff
#define NM_PROTOCOL_SHIFT 16
#define NM_JUMBO 0x1000000u
#define NM_CUT_SHORT 0x80000000u

/* Skips an IPv6 extension header. Global, like the next function. Otherwise the verifier
 * would follow every length of the chain to the end of the program. */
NM_GLOBAL __u32 nm_skip_extension(struct __sk_buff *skb, __u32 offset,
                                  __u32 type) {
  __u32 flags = 0, length;
  __be16 fragment = 0;
  struct {
    __u8 next;
    __u8 length;
    __u8 option;
    __u8 rest;
  } header;

  if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)))
    return (offset & NM_OFFSET_MASK) | (type & 0xff) << NM_PROTOCOL_SHIFT |
           NM_CUT_SHORT;
  if (type == 0 && header.option == 0xc2 && skb->gso_segs > 1) flags = NM_JUMBO;
  length = type == 51 ? (header.length + 2) * 4 : (header.length + 1) * 8;
  if (type == 44) {
    length = 8;
    if (bpf_skb_load_bytes(skb, offset + 2, &fragment, sizeof(fragment))) {
      flags = NM_CUT_SHORT;
      length = 0;
    }
    /* Only the first fragment holds a transport header. */
    if (fragment & bpf_htons(0xfff8)) header.next = NM_NO_NEXT_HEADER;
  }
  return ((offset + length) & NM_OFFSET_MASK) |
         (__u32)header.next << NM_PROTOCOL_SHIFT | flags;
}

/* Skips IPv6 extension headers (RFC 8200 section 4); `next` is the type of the first.
 * Returns the offset of the transport header, and its protocol. After eight extensions,
 * the rest counts as payload of an unknown protocol. NM_CUT_SHORT: a header is cut short.
 * NM_JUMBO: the kernel put a jumbo payload option (RFC 2675) into a GSO packet, and
 * removes it before the link (BIG TCP, in net/ipv6/ip6_output.c). */
NM_GLOBAL __u32 nm_skip_extensions(struct __sk_buff *skb, __u32 next) {
  __u32 at = 40, jumbo = 0;
  __u8 type = next;

  for (int i = 0; i < NM_MAX_EXTENSIONS && is_extension(type); i++) {
    at = nm_skip_extension(skb, at & NM_OFFSET_MASK, type);
    type = at >> NM_PROTOCOL_SHIFT;
    jumbo |= at & NM_JUMBO;
    if (at & NM_CUT_SHORT) return at | jumbo;
  }
  if (is_extension(type)) type = NM_NO_NEXT_HEADER;
  return (at & NM_OFFSET_MASK) | (__u32)type << NM_PROTOCOL_SHIFT | jumbo;
}

/* The result of nm_parse(): begin and end of the transport header, the protocol, the
 * transport, TCP's flags, and the flags below. The verifier knows nothing of the number
 * that a global function returns, so it does not follow each kind of packet to the end of
 * the program. */
#define NM_PARSED(begin, end, protocol, transport, tcp_flags)        \
  (((begin) & (__u64)NM_OFFSET_MASK) | ((__u64)(end)&0xffff) << 16 | \
   (__u64)(protocol) << 32 | (__u64)(transport) << 40 |              \
   (__u64)(tcp_flags) << 48)
#define NM_PARSED_JUMBO (1ULL << 56)
#define NM_PARSED_FRAGMENT (1ULL << 57) /* not the first: it has no ports */
#define NM_PARSED_NO_IP (1ULL << 62)    /* not even IP's header is there */
#define NM_PARSED_CUT_SHORT (1ULL << 63)

/* Reads the length and flags from the transport header at `header`. A header that is cut
 * short counts as if it were whole. */
static __always_inline __u64 parse_transport(struct __sk_buff *skb,
                                             __u32 header, __u8 protocol) {
  __u8 bytes[8] = {}; /* TCP: offset 12 is the length, in 32-bit words */

  switch (protocol) {
    case IPPROTO_TCP:
      if (bpf_skb_load_bytes(skb, header + 12, bytes, 2))
        return NM_PARSED(header, header, protocol, NM_TRANSPORT_TCP, 0) |
               NM_PARSED_CUT_SHORT;
      return NM_PARSED(header, header + (bytes[0] >> 4) * 4, protocol,
                       NM_TRANSPORT_TCP, bytes[1]);
    case IPPROTO_UDP:
    case IPPROTO_SCTP: {
      const bool udp = protocol == IPPROTO_UDP;
      const __u64 parsed =
          NM_PARSED(header, header + (udp ? 8 : 12), protocol,
                    udp ? NM_TRANSPORT_UDP : NM_TRANSPORT_SCTP, 0);

      return bpf_skb_load_bytes(skb, header, bytes, 8)
                 ? parsed | NM_PARSED_CUT_SHORT
                 : parsed;
    }
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
      return NM_PARSED(header, header + 8, protocol, NM_TRANSPORT_ICMP, 0);
  }
  return NM_PARSED(header, header, protocol, NM_TRANSPORT_OTHER, 0);
}

/* Reads the headers of any packet. */
NM_GLOBAL __u64 nm_parse(struct __sk_buff *skb) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  __u64 flags = 0;
  __u32 header;
  __u8 next;

  if (data + 20 > end) return NM_PARSED_CUT_SHORT | NM_PARSED_NO_IP;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    header = (*(__u8 *)data & 0xf) * 4;
    next = *(__u8 *)(data + 9);
    /* Only the first fragment holds a transport header. */
    if (*(__be16 *)(data + 6) & bpf_htons(0x1fff))
      return NM_PARSED(0, header, next, NM_TRANSPORT_OTHER, 0) |
             NM_PARSED_FRAGMENT;
  } else {
    if (data + 40 > end) return NM_PARSED_CUT_SHORT | NM_PARSED_NO_IP;
    next = *(__u8 *)(data + 6);
    header = 40;
    if (is_extension(next)) {
      header = nm_skip_extensions(skb, next);
      if (header & NM_CUT_SHORT) flags |= NM_PARSED_CUT_SHORT;
      if (header & NM_JUMBO) flags |= NM_PARSED_JUMBO;
      next = header >> NM_PROTOCOL_SHIFT;
      header &= NM_OFFSET_MASK;
    }
  }
  return parse_transport(skb, header, next) | flags;
}

/* The socket of a sent packet, if it is TCP's or UDP's and not a raw socket. */
static __always_inline struct bpf_sock *socket_with_ports(
    struct __sk_buff *skb, enum nm_direction direction) {
  struct bpf_sock *sk = skb->sk;

  if (direction != NM_EGRESS || !sk) return NULL;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->type == SOCK_RAW) return NULL;
  return sk->protocol == IPPROTO_TCP || sk->protocol == IPPROTO_UDP ||
                 sk->protocol == IPPROTO_UDPLITE
             ? sk
             : NULL;
}

/* Both ports of a socket, as nm_ports(). The remote one is 0 if it is not connected. */
static __always_inline __u32 ports_of_socket(struct bpf_sock *sk) {
  return SOCKET_WORD(sk, src_port) | (__u32)bpf_ntohs(SOCKET_WORD(sk, dst_port))
                                         << 16;
}

/* The ports of a parsed packet, in host byte order: the source in the low half. 0: none.
 * Those of a sent packet are as its socket has them. */
NM_GLOBAL __u32 nm_ports(struct __sk_buff *skb, __u64 parsed, __u32 direction) {
  struct bpf_sock *sk = socket_with_ports(skb, direction);
  const __u8 transport = parsed >> 40;
  __u32 known = sk ? ports_of_socket(sk) : 0;
  __be16 ports[4] = {}; /* eight bytes, or none count */

  if (known >> 16) return known;
  if ((transport == NM_TRANSPORT_TCP || transport == NM_TRANSPORT_UDP ||
       transport == NM_TRANSPORT_SCTP) &&
      bpf_skb_load_bytes(skb, parsed & NM_OFFSET_MASK, ports, sizeof(ports)))
    return 0;
  return (known ? known : bpf_ntohs(ports[0])) | (__u32)bpf_ntohs(ports[1])
                                                     << 16;
}

/* For a parsed TCP packet: the sequence number in the low half, and the acknowledgement
 * number in the high half. */
NM_GLOBAL __u64 nm_numbers(struct __sk_buff *skb, __u64 parsed) {
  const __u32 header = parsed & NM_OFFSET_MASK;
  const __u8 transport = parsed >> 40;
  __be32 numbers[2];

  if (transport != NM_TRANSPORT_TCP) return 0;
  if (bpf_skb_load_bytes(skb, header + 4, numbers, sizeof(numbers))) {
    numbers[1] = 0;
    if (bpf_skb_load_bytes(skb, header + 4, numbers, 4)) return 0;
  }
  return bpf_ntohl(numbers[0]) | (__u64)bpf_ntohl(numbers[1]) << 32;
}

/* The bytes of the headers of an IP packet within another one, including its transport
 * header. `protocol` is that of the outer header: IPPROTO_IPIP, IPPROTO_IPV6, or one that
 * holds no IP packet. */
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

#define NM_MOST_DATAGRAMS 128 /* UDP_MAX_SEGMENTS of Linux 6.9 */
#define NM_PEER_HEADERS 8192

/* The number of segments of a peer's packet, if only the peer's claim tells their size. A
 * peer may claim a size of 1, and each byte would count with a header. So all headers
 * together count at most as the payload, or NM_PEER_HEADERS if that is more: the host of
 * this virtual machine may have merged a few small segments. The kernel sends up to 128
 * datagrams in one packet. */
static __always_inline __u32 segments_of_peer(__u32 payload, __u32 size,
                                              __u32 headers, bool udp) {
  const __u32 segments = segments_by_size(payload, size);
  __u32 most =
      (payload > NM_PEER_HEADERS ? payload : NM_PEER_HEADERS) / headers + 1;

  if (udp && most > NM_MOST_DATAGRAMS) most = NM_MOST_DATAGRAMS;
  return segments < most ? segments : most;
}

/* Whether the size of segments is only a peer's claim, although the packet has a number
 * of them. When the packet crosses a link that hands it on whole, as veth does, the
 * kernel has computed that number (tcp_gso_segment(), from 5.10 to 7.2). */
static __always_inline bool has_segments_of_peer(struct __sk_buff *skb) {
  struct sk_buff *packet = (void *)skb;
  struct skb_shared_info *info;

  info = (void *)(BPF_CORE_READ(packet, head) + BPF_CORE_READ(packet, end));
  return BPF_CORE_READ(info, gso_type) & SKB_GSO_DODGY;
}

/* What a parsed packet counts as: its bytes in the low half, its segments in the high
 * half. gso_segs is 0 for a packet that is one segment, and for packets from a virtio
 * peer (SKB_GSO_DODGY), of which only the segment size is known. A route may have put
 * headers around the packet (SRv6): then each segment has all of them, and the inner
 * headers. */
NM_GLOBAL __u64 nm_wire_size(struct __sk_buff *skb, __u64 parsed) {
  const __u32 header = parsed >> 16 & 0xffff;
  const __u32 jumbo = parsed & NM_PARSED_JUMBO ? NM_JUMBO_BYTES : 0;
  const __u8 protocol = parsed >> 32;
  __u32 bytes = skb->len, payload, segments, inner = 0;

  if (!skb->gso_size || (parsed & (NM_PARSED_FRAGMENT | NM_PARSED_NO_IP)))
    return bytes | 1ULL << 32;
  payload = bytes > header ? bytes - header : 0;
  if (protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6)
    inner = nm_inner_headers(skb, header, protocol);
  segments = skb->gso_segs;
  if (segments && skb->gso_size < header + inner && has_segments_of_peer(skb))
    segments = 0;
  /* Inner headers may claim more bytes than the packet has. */
  if (!segments && payload > inner)
    segments = segments_of_peer(payload - inner, skb->gso_size, header + inner,
                                protocol == IPPROTO_UDP);
  if (segments <= 1) return bytes | 1ULL << 32;
  bytes = bytes_on_link(bytes, segments, header + inner, jumbo);
  return bytes | (__u64)segments << 32;
}

/* The bytes after the headers. Without a branch, because the verifier follows each branch
 * to the end of the program. */
static __always_inline __u32 payload_of(__u32 length, __u64 parsed) {
  __s32 payload = length - (parsed >> 16 & 0xffff);
  __s32 missing = -(__s32)(parsed >> 62 & 1);

  barrier_var(payload);
  barrier_var(missing);
  return payload & ~(payload >> 31) & ~missing;
}

/* Reads the headers of a packet. Bytes and segments are set in every case. Returns -1 if
 * a header is cut short. */
static __always_inline int parse_packet(struct __sk_buff *skb,
                                        const enum nm_direction direction,
                                        struct nm_packet *packet) {
  const __u32 length = skb->len;
  const __u64 parsed = nm_parse(skb), size = nm_wire_size(skb, parsed);
  const __u64 numbers = nm_numbers(skb, parsed);
  const __u32 ports = nm_ports(skb, parsed, direction);

  packet->bytes = size;
  packet->segments = size >> 32;
  packet->header = parsed >> 16 & 0xffff;
  packet->payload = payload_of(length, parsed);
  packet->protocol = parsed >> 32;
  packet->transport = parsed >> 40;
  packet->tcp_flags = parsed >> 48;
  packet->sport = ports;
  packet->dport = ports >> 16;
  packet->seq = numbers;
  packet->ack = numbers >> 32;
  return (__s64)parsed < 0 ? -1 : 0;
}

/* The fields of a plain packet's IP header. */
struct nm_plain {
  __u32 header; /* bytes of it */
  __u8 protocol;
};

/* Returns false for options, for a later fragment, or if the header is cut short. */
static __always_inline bool read_plain_ip(struct __sk_buff *skb,
                                          struct nm_plain *plain) {
  void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

  if (data + 28 > end) return false;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    plain->header = 20;
    plain->protocol = *(__u8 *)(data + 9);
    return *(__u8 *)data == 0x45 &&
           !(*(__be16 *)(data + 6) & bpf_htons(0x1fff));
  }
  plain->header = 40;
  plain->protocol = *(__u8 *)(data + 6);
  return true;
}

/* The destination or the source in a packet's header: IPv4 as ::ffff:a.b.c.d. */
static __always_inline void packet_address(struct __sk_buff *skb,
                                           bool destination, __u32 address[4]) {
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    address[0] = 0;
    address[1] = 0;
    address[2] = bpf_htonl(0xffff);
    bpf_skb_load_bytes(skb, destination ? 16 : 12, &address[3], 4);
  } else {
    bpf_skb_load_bytes(skb, destination ? 24 : 8, address, 16);
  }
}

/* The address of the remote end, as packet_address(). That of a sent packet is as its
 * socket has it. */
static __always_inline void remote_address(struct __sk_buff *skb,
                                           enum nm_direction direction,
                                           __u32 address[4]) {
  struct bpf_sock *sk = socket_with_ports(skb, direction);

  if (!sk || !SOCKET_WORD(sk, dst_port)) {
    packet_address(skb, direction == NM_EGRESS, address);
  } else if (SOCKET_WORD(sk, family) == AF_INET) {
    address[0] = 0;
    address[1] = 0;
    address[2] = bpf_htonl(0xffff);
    address[3] = SOCKET_WORD(sk, dst_ip4);
  } else {
    address[0] = SOCKET_WORD(sk, dst_ip6[0]);
    address[1] = SOCKET_WORD(sk, dst_ip6[1]);
    address[2] = SOCKET_WORD(sk, dst_ip6[2]);
    address[3] = SOCKET_WORD(sk, dst_ip6[3]);
  }
}

#endif /* NETMETER_BPF_PACKET_BPF_H_ */
