/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Which uplink a packet takes, where the configuration has uplinks.
 *
 * An uplink is a set of interfaces of one network namespace, that of the loader,
 * given by names and by what names begin with. A packet tells the number of its
 * interface, which means something else in each namespace, and a series has the
 * number of an uplink. Between them stand:
 *
 *   nm_socket.network  the namespace of the socket, so that packets of others end
 *                      here: they have no uplink
 *   nm_uplinks         a word for each interface, with its number and its uplink.
 *                      A usual packet reads one word and compares it
 *   nm_uplink_names    the configuration: from a name to an uplink
 *
 * A word that is not there is made by the packet that misses it: it reads the
 * name of its device. So an interface that appears counts from its first packet
 * on. Names are read anew by the first packet of each socket, too: a rename is
 * followed then, and all sockets see the new word at once.
 *
 * The uplink is a half of the byte `path`, which each packet compares with that of
 * the cell which its socket has kept. So a connection that moves to another
 * uplink needs no event: its next packet finds another series.
 *
 * With lockdown=confidentiality no program reads a device. There the loader writes
 * the words, and what it has not written is in the uplink `other`.
 */
#ifndef NETMETER_BPF_UPLINK_BPF_H_
#define NETMETER_BPF_UPLINK_BPF_H_

#include "bpf/maps.bpf.h"

#define NM_NETWORK_UNKNOWN (~0u)

/* Whether a packet that is not over loopback has this path; false also where its
 * socket or its interface is not known. */
static __always_inline bool is_path(const struct nm_socket *socket,
                                    __u32 ifindex, __u8 path) {
  if (socket->network != nm_config.network)
    return socket->network && path == NM_PATH_DIRECT;
  return nm_uplinks[ifindex % NM_UPLINK_WORDS] == ((__u64)ifindex << 32 | path);
}

/* The device of a packet. A program has no way to it but this: its context is the
 * socket buffer itself, of which the verifier shows parts only. */
static __always_inline struct net_device *device_of(struct __sk_buff *skb) {
  struct net_device *device = NULL;

  bpf_probe_read_kernel(&device, sizeof(device), &((struct sk_buff *)skb)->dev);
  return device;
}

/* The namespace of a packet whose socket does not tell. */
static __always_inline __u32 network_of(struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner = NULL;
  __u32 network;

  if (nm_config.reads_devices) {
    network = BPF_CORE_READ(device_of(skb), nd_net.net, ns.inum);
  } else {
    if (sk) sk = bpf_sk_fullsock(sk);
    if (sk) owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
    network = owner ? owner->network : 0;
  }
  return network ? network : NM_NETWORK_UNKNOWN;
}

/* The uplink of the packet's interface by its name. */
static __always_inline __u32 uplink_by_name(struct __sk_buff *skb,
                                            __u32 ifindex) {
  char name[NM_INTERFACE_BYTES] = {};

  bpf_probe_read_kernel(name, sizeof(name), &device_of(skb)->name);
  return uplink_of_name(name, ifindex);
}

/* The path of a packet that is not over loopback, and above it the namespace.
 * `network`: as its socket tells it; 0: not. `anew`: looks at the name, whatever is
 * known. */
NM_GLOBAL __u64 nm_find_path(struct __sk_buff *skb, __u32 network, __u32 anew) {
  __u32 ifindex = skb->ifindex, index = ifindex % NM_UPLINK_WORDS;
  __u64 word, found;

  /* The kernel verifies it, called or not: one without namespaces has no names of
   * theirs to read. */
  if (!nm_config.uplinks) return NM_PATH_DIRECT;
  if (!network) network = network_of(skb);
  found = (__u64)network << 32 | NM_PATH_DIRECT;
  if (network != nm_config.network || !ifindex) return found;
  word = nm_uplinks[index];
  if (word >> 32 == ifindex && (!anew || !nm_config.reads_devices))
    return found | (__u8)word;
  word = NM_UPLINK_WORD(ifindex, nm_config.reads_devices
                                     ? uplink_by_name(skb, ifindex)
                                     : NM_UPLINK_OTHER);
  /* The loader's words stay. */
  if (nm_uplinks[index] != word &&
      (nm_config.reads_devices || !nm_uplinks[index]))
    nm_uplinks[index] = word;
  return found | (__u8)word;
}

#endif /* NETMETER_BPF_UPLINK_BPF_H_ */
