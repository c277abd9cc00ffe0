/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Every packet once, whatever receives a copy of it.
 *
 * The ingress hook runs for each socket that a packet is delivered to. That is
 * one, with two exceptions:
 *
 *   raw sockets            each gets a copy, before the transport protocol does
 *   multicast, broadcast   each UDP socket that has the port gets one
 *
 * The kernel makes all copies of a packet one after the other, within one call
 * of a softirq, so on one CPU. Three rules follow:
 *
 *   1. TCP and UDP have a handler of their own. A raw copy counts only where no
 *      socket of that protocol waits for the packet: for user space that speaks
 *      the protocol itself. The kernel's own lookup says so.
 *   2. SCTP has one, too, but no lookup: a raw copy never counts.
 *   3. All others (ICMP, other protocols, multicast, broadcast) count for the
 *      first socket. Each CPU remembers the last packets by their first bytes,
 *      with the sockets that received them.
 *
 * Two packets may have the same bytes: a sender repeats itself, and IPv6 has no
 * number in its header. So the bytes alone do not tell a copy from a repetition,
 * but the sockets do: none receives the same packet twice. How often a packet
 * was there is how often the socket received it that received it most often.
 * The first sockets are enough for that, as long as they are there. They have gone
 * when another socket receives the bytes twice, and none of them in between.
 * (Not told apart: segments of one super-packet that all have the same bytes.
 * A socket takes all of them before the next socket takes the first.)
 *
 * Usual packets do not come here (usual.bpf.h).
 */
#ifndef NETMETER_BPF_COPIES_BPF_H_
#define NETMETER_BPF_COPIES_BPF_H_

#include "bpf/maps.bpf.h"
#include "bpf/packet.bpf.h"

/* Bytes of a packet that tell it from others: headers, with their checksums and
 * numbers. */
#define NM_IDENTITY_BYTES 64

/* Copies of one packet are not further apart. What is older is another packet,
 * and the sockets that had it may have ended. */
#define NM_COPIES_NS 100000000

/* Whether the kernel may deliver a packet with this address to several sockets.
 * pkt_type does not always tell: a device without link addresses (tun, WireGuard)
 * has none of a group, and a broadcast may come in a frame for this host alone.
 * Nearly every IPv4 broadcast address ends with 255; what is none takes a longer
 * way, and counts the same. */
static __always_inline bool is_group_address(__u8 first, __u8 last, bool ipv4) {
  return ipv4 ? first >= 0xe0 || last == 0xff : first == 0xff;
}

static __always_inline bool is_for_many(struct __sk_buff *skb) {
  const bool ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
  __u8 address[4] = {};

  if (skb->pkt_type != PACKET_HOST && skb->pkt_type != PACKET_OTHERHOST)
    return true;
  bpf_skb_load_bytes(skb, ipv4 ? 16 : 24, address, sizeof(address));
  return is_group_address(address[0], address[3], ipv4);
}

/* Whether a socket of the packet's own protocol receives it, TCP or UDP. Both
 * ports are in host byte order. */
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

/* A number for the packet's first bytes, its length and its device. */
static __always_inline __u64 identity_of(struct __sk_buff *skb) {
  const __u32 length = skb->len;
  __u64 identity = (__u64)skb->ifindex << 32 | length, word;

  identity ^= (__u64)skb->protocol << 48;

  for (__u32 i = 0; i < NM_IDENTITY_BYTES; i += sizeof(word)) {
    if (bpf_skb_load_bytes(skb, i, &word, sizeof(word))) {
      /* The last bytes of a short packet, some of them once more. */
      if (bpf_skb_load_bytes(skb, length - sizeof(word), &word, sizeof(word)))
        break;
      i = NM_IDENTITY_BYTES;
    }
    identity = (identity ^ word) * 0x9e3779b97f4a7c15ULL;
    identity ^= identity >> 32;
  }
  return identity;
}

/* What this CPU remembers of a packet, or room for it. `network` is the network
 * namespace, 0: not known. A bridge hands the same bytes to many namespaces, and
 * each is a link of its own. */
static __always_inline struct nm_copies *copies_of(__u64 identity, __u64 now,
                                                   __u32 network) {
  const __u32 first = (identity % NM_COPIES_SETS) * NM_COPIES_WAYS;
  __u32 oldest = first, index;
  __u64 most = 0, age;
  struct nm_copies *copies;

  for (__u32 i = 0; i < NM_COPIES_WAYS; i++) {
    index = first + i;
    copies = bpf_map_lookup_elem(&nm_copies, &index);
    if (!copies) return NULL;
    age = copies->identity ? now - copies->seen : ~0ULL;
    /* The fast clock may go back a little where it is adjusted. */
    if (copies->identity && (__s64)age < 0) age = 0;
    if (copies->identity == identity && age <= NM_COPIES_NS &&
        (copies->network == network || !copies->network || !network))
      return copies;
    /* In nanoseconds: hundreds of packets come in one millisecond, and by
     * milliseconds the newest was forgotten as often as the oldest. */
    if (age > most) {
      most = age;
      oldest = index;
    }
  }
  copies = bpf_map_lookup_elem(&nm_copies, &oldest);
  if (!copies) return NULL;
  __builtin_memset(copies, 0, sizeof(*copies));
  copies->identity = identity;
  return copies;
}

/* Whether another socket was counted for this packet. `cookie` is that of the
 * socket that receives it now. */
NM_GLOBAL int nm_is_counted_copy(struct __sk_buff *skb, __u32 cookie,
                                 __u32 network) {
  __u64 now = bpf_ktime_get_ns();
  struct nm_copies *copies = copies_of(identity_of(skb), now, network);
  struct nm_receiver *receiver;

  if (!copies) return 0;
  copies->seen = now;
  if (network) copies->network = network;
  for (int i = 0; i < NM_RECEIVERS; i++) {
    receiver = &copies->receivers[i];
    if (!receiver->cookie) {
      receiver->cookie = cookie;
      /* It came later, and missed what was counted before this one. */
      receiver->times = copies->counted ? copies->counted - 1 : 0;
    }
    if (receiver->cookie != cookie) continue;
    copies->stranger = copies->strangers = 0;
    if (++receiver->times <= copies->counted) return 1;
    copies->counted = receiver->times;
    return 0;
  }
  if (copies->stranger != cookie) {
    /* The first receivers tell the packets apart. Strangers are watched for longer
     * and longer, one after the other: the first may have gone, too. */
    if (!(copies->strangers & (copies->strangers - 1)))
      copies->stranger = cookie;
    copies->strangers++;
    return 1;
  }
  __builtin_memset(copies->receivers, 0, sizeof(copies->receivers));
  copies->stranger = copies->strangers = 0;
  copies->receivers[0].cookie = cookie;
  copies->receivers[0].times = ++copies->counted;
  return 0;
}

#endif /* NETMETER_BPF_COPIES_BPF_H_ */
