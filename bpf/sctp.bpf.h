/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The owner of an SCTP connection that a server accepts.
 *
 * Up to Linux 6.18, accept(2) of SCTP makes a socket without running a hook, and without
 * a copy of the listener's storage (sctp_v4_create_accept_sk() in net/sctp/protocol.c,
 * and its sibling in ipv6.c). But the packets that open an association (INIT, COOKIE
 * ECHO) come to the listener right before. So each packet that a listener receives notes
 * the listener's owner, by the network namespace, the cgroup, the packet's local address,
 * and the port. The first packet of a socket without an owner looks there.
 *
 * The key needs the namespace. Otherwise any user could listen at the address and port of
 * a service in a namespace of their own, and each would get the other's name.
 *
 * A listener of SOCK_SEQPACKET has the data of all its associations. It hands one on only
 * by a call that makes a socket in the normal way (SCTP_SOCKOPT_PEELOFF).
 */
#ifndef NETMETER_BPF_SCTP_BPF_H_
#define NETMETER_BPF_SCTP_BPF_H_

#include "bpf/socket.bpf.h"

/* The namespace of the packet's socket. 0: the kernel has only one. The packet keeps that
 * socket while the program runs. */
static __always_inline __u32 network_of_socket(struct __sk_buff *skb) {
  struct sock_common *common = NULL;

  if (nm_config.netns_cookie) return bpf_get_netns_cookie(skb);
  if (!bpf_core_field_exists(common->skc_net.net)) return 0;
  return BPF_CORE_READ((struct sk_buff *)skb, sk, __sk_common.skc_net.net,
                       ns.inum);
}

/* The local end of the packet. Returns false if it has none. */
static __always_inline bool local_end(struct __sk_buff *skb,
                                      struct bpf_sock *sk, __u32 direction,
                                      struct nm_listener_key *key) {
  const bool sent = direction == NM_EGRESS;

  key->cgroup = bpf_skb_cgroup_id(skb);
  key->network = network_of_socket(skb);
  key->port = sk->src_port;
  key->protocol = skb->protocol;
  if (skb->protocol == bpf_htons(ETH_P_IP))
    return !bpf_skb_load_bytes(skb, sent ? 12 : 16, key->address, 4);
  return !bpf_skb_load_bytes(skb, sent ? 8 : 24, key->address, 16);
}

/* Gives an accepted socket the owner of its listener. Not 0: the packet's socket is a
 * listener. A listener keeps no state, so that each of its packets comes here. */
NM_GLOBAL int nm_follow_sctp(struct __sk_buff *skb, __u32 direction) {
  struct nm_listener_key key = {};
  struct nm_listener listener = {};
  struct bpf_sock *sk = skb->sk;
  struct nm_listener *found;
  struct nm_stored_owner *stored;
  struct nm_owner *owner;
  bool listens;

  if (!sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->type != SOCK_STREAM) return 0;
  listens = sk->state == TCP_LISTEN;
  stored = stored_owner(sk);
  if (!stored == listens) return listens;
  if (!local_end(skb, sk, direction, &key)) return listens;
  if (stored) {
    owner = &stored->owner;
    listener.attribution = attribution_of(owner);
    listener.tgid = owner->tgid;
    listener.start = stored->start;
    listener.network = owner->network;
    listener.tag = owner->tag;
    listener.user = owner->user;
    bpf_map_update_elem(&nm_listeners, &key, &listener, BPF_ANY);
    return 1;
  }
  found = bpf_map_lookup_elem(&nm_listeners, &key);
  if (!found) return 0;
  stored = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!stored) return 0;
  stored->start = found->start;
  owner = &stored->owner;
  owner->tgid = found->tgid;
  owner->attribution.word = found->attribution.word;
  owner->network = found->network;
  owner->tag = found->tag;
  owner->user = found->user;
  /* It gets no entry of the table: it may have closed before this packet, its first. */
  return 0;
}

#endif /* NETMETER_BPF_SCTP_BPF_H_ */
