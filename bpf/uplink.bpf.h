/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The uplink of a packet, if the configuration has uplinks.
 *
 * An uplink is a set of interfaces of the loader's network namespace, given by names and
 * by beginnings of names. A packet has the number of its interface, which means something
 * else in each namespace. A series has the number of an uplink. These connect the two:
 *
 *   nm_socket.network  the namespace of the socket. Packets of other namespaces end here:
 *                      they have no uplink
 *   nm_uplinks         a word for each interface, with its number and its uplink. A plain
 *                      packet reads one word and compares it
 *   nm_uplink_names    the configuration: from a name to an uplink
 *
 * A packet that misses a word makes it: it reads the name of its device. So a new
 * interface counts from its first packet on. The first packet of each socket also reads
 * the name again. Renames are followed in this way, and all sockets see the new word at
 * once.
 *
 * The uplink is a half of the byte `path`. Each packet compares that byte with the byte
 * of the cell that its socket has kept. So a connection that moves to another uplink
 * needs no event: its next packet finds another series.
 */
#ifndef NETMETER_BPF_UPLINK_BPF_H_
#define NETMETER_BPF_UPLINK_BPF_H_

#include "bpf/maps.bpf.h"

#define NM_NETWORK_UNKNOWN (~0u)

/* Whether a packet that is not over loopback has this path; also false if its socket or
 * its interface is not known. */
static __always_inline bool is_path(const struct nm_socket *socket,
                                    __u32 ifindex, __u8 path) {
  if (socket->network != nm_config.network)
    return socket->network && path == NM_PATH_DIRECT;
  return nm_uplinks[ifindex % NM_UPLINK_WORDS] == ((__u64)ifindex << 32 | path);
}

/* The device of a packet. A program has only this way to it: its context is the socket
 * buffer itself, and the verifier shows only parts of that. */
static __always_inline struct net_device *device_of(struct __sk_buff *skb) {
  struct net_device *device = NULL;

  bpf_probe_read_kernel(&device, sizeof(device), &((struct sk_buff *)skb)->dev);
  return device;
}

/* The namespace of a packet whose socket does not tell it. */
static __always_inline __u32 network_of(struct __sk_buff *skb) {
  __u32 network = BPF_CORE_READ(device_of(skb), nd_net.net, ns.inum);

  return network ? network : NM_NETWORK_UNKNOWN;
}

/* The uplink of the packet's interface by its name. */
static __always_inline __u32 uplink_by_name(struct __sk_buff *skb,
                                            __u32 ifindex) {
  char name[NM_INTERFACE_BYTES] = {};

  bpf_probe_read_kernel(name, sizeof(name), &device_of(skb)->name);
  return uplink_of_name(name, ifindex);
}

/* The path of a packet that is not over loopback, and above it the namespace. `network`
 * is the namespace that its socket tells, or 0. `anew`: reads the name even if the word
 * is known. */
NM_GLOBAL __u64 nm_find_path(struct __sk_buff *skb, __u32 network, __u32 anew) {
  __u32 ifindex = skb->ifindex, index = ifindex % NM_UPLINK_WORDS;
  __u64 word, found;

  /* The kernel verifies this function even if it is not called, and a kernel without
   * namespaces has no fields for them to read. */
  if (!nm_config.uplinks) return NM_PATH_DIRECT;
  if (!network) network = network_of(skb);
  found = (__u64)network << 32 | NM_PATH_DIRECT;
  if (network != nm_config.network || !ifindex) return found;
  word = nm_uplinks[index];
  if (word >> 32 == ifindex && !anew) return found | (__u8)word;
  word = NM_UPLINK_WORD(ifindex, uplink_by_name(skb, ifindex));
  if (nm_uplinks[index] != word) nm_uplinks[index] = word;
  return found | (__u8)word;
}

#endif /* NETMETER_BPF_UPLINK_BPF_H_ */
