/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Counts every packet once, even if several sockets receive a duplicate of it.
 *
 * The ingress hook runs for each socket that a packet is delivered to. That is one
 * socket, with two exceptions:
 *
 *   raw sockets            each gets a duplicate, before the transport protocol does
 *   multicast, broadcast   each UDP socket that has the port gets one
 *
 * The kernel makes all duplicates of a packet one after the other, within one call of a
 * softirq, and therefore on one CPU. Three rules follow:
 *
 *   1. TCP and UDP to one host have a handler of their own. A raw duplicate counts only
 *      if no socket of that protocol waits for the packet: user space then speaks the
 *      protocol itself. The kernel's own lookup tells.
 *   2. SCTP has a handler, too, but no lookup. A raw duplicate never counts.
 *   3. All others (ICMP, other protocols, multicast, broadcast) count for the first
 *      socket. All sockets that are not raw count as one socket here, because one of them
 *      receives the packet. UDP sockets that receive multicast and broadcast are an
 *      exception. Each CPU remembers the last packets by their first bytes, with the
 *      sockets that received them. The bytes themselves are compared, because a sender
 *      could find other bytes with the same hash.
 *
 * Two packets may have the same bytes: a sender may repeat itself, and IPv6 has no number
 * in its header. So the bytes alone do not distinguish a duplicate from a repetition. The
 * sockets do, because no socket receives the same packet twice. The number of packets is
 * the largest number of times that one socket received the bytes. Four sockets vouch for
 * a packet. If a fifth receives it twice while none of the four does, they have closed,
 * and it replaces them. (Limitation: segments of one GSO packet that all have the same
 * bytes cannot be distinguished. One socket takes all of them before the next socket
 * takes the first.)
 *
 * Plain packets do not come here (fast_path.bpf.h).
 */
#ifndef NETMETER_BPF_DUPLICATES_BPF_H_
#define NETMETER_BPF_DUPLICATES_BPF_H_

#include "bpf/maps.bpf.h"
#include "bpf/packet.bpf.h"

/* Duplicates of one packet are never further apart than this. A match that is older is
 * another packet, and the sockets that had it may have ended. */
#define NM_DUPLICATES_NS 100000000

/* In place of a cookie: all sockets that are not raw, as one of them gets the packet. */
#define NM_ANY_RECEIVER (~0U)

/* Whether the kernel may deliver a packet with this address to several sockets. pkt_type
 * does not always tell: a device without link addresses (tun, WireGuard) has no multicast
 * pkt_type, and a broadcast may come in a frame for this host alone. Nearly every IPv4
 * broadcast address ends with 255. A unicast address that does takes the full path, and
 * counts the same. */
static __always_inline bool is_group_address(__u8 first, __u8 last, bool ipv4) {
  return ipv4 ? first >= 0xe0 || last == 0xff : first == 0xff;
}

static __always_inline bool is_multicast_or_broadcast(struct __sk_buff *skb) {
  const bool ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
  __u8 address[4] = {};

  /* IPv6 has no broadcast, and accepts a unicast packet from any frame. */
  if (ipv4 && skb->pkt_type != PACKET_HOST && skb->pkt_type != PACKET_OTHERHOST)
    return true;
  bpf_skb_load_bytes(skb, ipv4 ? 16 : 24, address, sizeof(address));
  return is_group_address(address[0], address[3], ipv4);
}

/* Whether a socket of the packet's own protocol, TCP or UDP, receives it. Both ports are
 * in host byte order. */
NM_GLOBAL int nm_has_receiver(struct __sk_buff *skb, __u32 protocol,
                              __u32 sport, __u32 dport) {
  struct bpf_sock_tuple tuple = {};
  __u32 size = sizeof(tuple.ipv4);
  struct bpf_sock *sk;
  int failed;

  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    failed = bpf_skb_load_bytes(skb, 12, &tuple.ipv4.saddr, 8);
    tuple.ipv4.sport = bpf_htons(sport);
    tuple.ipv4.dport = bpf_htons(dport);
  } else {
    size = sizeof(tuple.ipv6);
    failed = bpf_skb_load_bytes(skb, 8, &tuple.ipv6.saddr, 32);
    tuple.ipv6.sport = bpf_htons(sport);
    tuple.ipv6.dport = bpf_htons(dport);
  }
  if (failed) return 0;
  if (protocol == IPPROTO_TCP)
    sk = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
  else
    sk = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
  if (!sk) return 0;
  bpf_sk_release(sk);
  return 1;
}

/* Fills in the identity of the packet. */
static __always_inline void identify(struct __sk_buff *skb, __u32 ports,
                                     struct nm_identity *identity) {
  __u64 last = (__u64)skb->len - 1;

  identity->length = skb->len;
  identity->device = skb->ifindex;
  identity->protocol = skb->protocol;
  identity->ports = ports;
  /* Shows older verifiers that this is no read of 0 bytes. */
  if (last > NM_IDENTITY_BYTES - 1) last = NM_IDENTITY_BYTES - 1;
  barrier_var(last);
  bpf_skb_load_bytes(skb, 0, identity->bytes, last + 1);
}

/* The set of entries for a packet. A sender may choose it, but it does not decide whether
 * packets are equal. */
static __always_inline __u32 set_of(const struct nm_identity *identity) {
  __u64 hash = 0;

  for (int i = 0; i < NM_IDENTITY_WORDS; i++) {
    hash = (hash ^ identity->words[i]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash % NM_DUPLICATES_SETS;
}

static __always_inline bool is_identity(const struct nm_identity *a,
                                        const struct nm_identity *b) {
  __u64 differences = 0;

  for (int i = 0; i < NM_IDENTITY_WORDS; i++)
    differences |= a->words[i] ^ b->words[i];
  return !differences;
}

/* This CPU's entry for a packet, or room for a new one. `network` is the network
 * namespace, 0 if not known. A bridge hands the same bytes to many namespaces, and each
 * is a link of its own. */
static __always_inline struct nm_duplicates *duplicates_of(
    const struct nm_identity *identity, __u64 now, __u32 network) {
  const __u32 first = set_of(identity) * NM_DUPLICATES_WAYS;
  __u32 oldest = first, index;
  __u64 most = 0, age;
  struct nm_duplicates *duplicates;

  for (__u32 i = 0; i < NM_DUPLICATES_WAYS; i++) {
    index = first + i;
    duplicates = bpf_map_lookup_elem(&nm_duplicates, &index);
    if (!duplicates) return NULL;
    age = duplicates->seen ? now - duplicates->seen : ~0ULL;
    /* The fast clock may go back a little when it is adjusted. */
    if (duplicates->seen && (__s64)age < 0) age = 0;
    if (age <= NM_DUPLICATES_NS && is_identity(&duplicates->packet, identity) &&
        (duplicates->network == network || !duplicates->network || !network))
      return duplicates;
    /* Nanoseconds, because hundreds of packets come in one millisecond. */
    if (age > most) {
      most = age;
      oldest = index;
    }
  }
  duplicates = bpf_map_lookup_elem(&nm_duplicates, &oldest);
  if (!duplicates) return NULL;
  __builtin_memset(duplicates, 0, sizeof(*duplicates));
  duplicates->packet = *identity;
  return duplicates;
}

/* Whether another socket was counted for this packet. `cookie` is the socket that
 * receives it now. `ports` are the packet's ports, if it has any. `many`: several sockets
 * that are not raw may receive it. */
NM_GLOBAL int nm_is_counted_dup(struct __sk_buff *skb, __u32 cookie,
                                __u32 network, __u32 ports, __u32 many) {
  __u64 now = bpf_ktime_get_ns();
  struct nm_identity identity = {};
  struct nm_receiver *receiver;
  struct nm_duplicates *duplicates;

  identify(skb, ports, &identity);
  duplicates = duplicates_of(&identity, now, network);
  if (!duplicates) return 0;
  duplicates->seen = now;
  if (network) duplicates->network = network;
  for (int i = 0; i < NM_RECEIVERS; i++) {
    receiver = &duplicates->receivers[i];
    if (!receiver->cookie) {
      receiver->cookie = cookie;
      /* It came later, and missed the packets that were counted before this one. */
      receiver->times = duplicates->counted ? duplicates->counted - 1 : 0;
    }
    if (receiver->cookie != cookie) continue;
    duplicates->stranger = duplicates->strangers = 0;
    /* The socket was not there, or had no room for them. If `many`, this may also be the
     * turn of the segments of one GSO packet. */
    if (!many && duplicates->counted - receiver->times > 1)
      receiver->times = duplicates->counted - 1;
    if ((__s32)(++receiver->times - duplicates->counted) <= 0) return 1;
    duplicates->counted = receiver->times;
    return 0;
  }
  if (duplicates->stranger != cookie) {
    /* Only one stranger is watched at a time, and it may close, too. So another stranger
     * replaces it after 1, 2, 4, 8, ... deliveries to strangers. */
    if (!(duplicates->strangers & (duplicates->strangers - 1)))
      duplicates->stranger = cookie;
    duplicates->strangers++;
    return 1;
  }
  __builtin_memset(duplicates->receivers, 0, sizeof(duplicates->receivers));
  duplicates->stranger = duplicates->strangers = 0;
  duplicates->receivers[0].cookie = cookie;
  duplicates->receivers[0].times = ++duplicates->counted;
  return 0;
}

#endif /* NETMETER_BPF_DUPLICATES_BPF_H_ */
