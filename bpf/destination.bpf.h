/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The destination that a socket's owner talks to. The first of these that exists:
 *
 *   1. the tag that the application gave the socket (control.bpf.h)
 *   2. the first rule of the configuration that matches the remote end, unless it yields.
 *      Rules with a port and no address yield
 *   3. the name that the connection itself gives in the first bytes it sends: :authority
 *      of HTTP/2 to a proxy port, SNI of TLS to an SNI port, the host of HTTP/1 to an
 *      HTTP port
 *   4. that rule, if it yields
 *
 * This file has all except the first. A name is read only from bytes that this host
 * sends, on connections that it opened, so no peer can fill the table of names. A service
 * may add NM_MAX_WIRE_NAMES of them, any other owner with destinations
 * NM_MAX_WIRE_NAMES_OF_OTHERS.
 *
 * Reading goes packet by packet. Only new bytes are read, each once and in order, because
 * tcp.bpf.h separates them from retransmissions. wire_name.bpf.h takes them one at a
 * time, and keeps its state in socket storage (nm_namings). Reading ends with a name,
 * with bytes that can name nothing, or after NM_MAX_PENDING_BYTES. Until then the
 * connection counts as pending: pending.bpf.h.
 */
#ifndef NETMETER_BPF_DESTINATION_BPF_H_
#define NETMETER_BPF_DESTINATION_BPF_H_

#include "bpf/pending.bpf.h"
#include "bpf/rules.bpf.h"
#include "bpf/wire_name.bpf.h"

/* --- Names on the wire --------------------------------------------------- */

/* The protocol by which a connection will name its destination. */
static __always_inline __u8 wire_protocol_of(const struct nm_owner *owner,
                                             const union nm_traits *traits) {
  if (traits->transport != NM_TRANSPORT_TCP || traits->hidden ||
      (owner->flags & (NM_OWNER_CONNECTED | NM_OWNER_END_IS_TOLD |
                       NM_OWNER_NAMED | NM_OWNER_CLOSED)) !=
          (NM_OWNER_CONNECTED | NM_OWNER_END_IS_TOLD))
    return NM_WIRE_NONE; /* without an end, pending amounts would stay so */
  /* The application does not know of a proxy to which netfilter redirects it. */
  return traits->path == NM_PATH_PROXY && has_proxy_port(traits->dport)
             ? NM_WIRE_H2
             : nm_protocol_of(traits->dport);
}

#define NM_CHUNK 32  /* bytes copied from a packet at once */
#define NM_CHUNKS 16 /* chunks at a time: two short loops, not a long one */

/* The reading state of the packet's connection. NULL: it is not read. */
static __always_inline struct nm_naming *naming_of_packet(
    struct __sk_buff *skb) {
  struct bpf_sock *sk = skb->sk;

  if (!sk) return NULL;
  sk = bpf_sk_fullsock(sk);
  return sk ? bpf_sk_storage_get(&nm_namings, sk, 0, 0) : NULL;
}

/* Gives a byte to the state machine. Returns enum nm_naming_result. Global, like the
 * functions below: the verifier walks the state machine for one byte, and not for all
 * bytes of a chunk. */
NM_GLOBAL int nm_read_byte(struct __sk_buff *skb, __u32 byte) {
  struct nm_naming *naming = naming_of_packet(skb);

  if (!naming) return NM_NAMING_FAILED;
  nm_naming_byte(naming, byte);
  if (naming->result) return naming->result;
  naming->total++;
  return naming->total < NM_MAX_PENDING_BYTES ? NM_NAMING_MORE
                                              : NM_NAMING_FAILED;
}

/* Reads the next NM_CHUNK bytes of the packet, or the remaining ones up to `end`. */
NM_GLOBAL int nm_read_chunk(struct __sk_buff *skb, __u32 offset, __u32 end) {
  __u8 chunk[NM_CHUNK] = {};
  __u64 size = end - offset;

  if (size < 1) return NM_NAMING_FAILED;
  if (size > sizeof(chunk)) size = sizeof(chunk);
  /* Verifiers before 6.12 learn no lower bound from a comparison with 0. */
  size--;
  barrier_var(size);
  size = (size & (sizeof(chunk) - 1)) + 1;
  if (bpf_skb_load_bytes(skb, offset, chunk, size)) return NM_NAMING_FAILED;
  barrier_var(size); /* or the bound of the loop is optimized away */
  for (__u32 i = 0; i < sizeof(chunk); i++) {
    int result;

    if (i >= size) break;
    result = nm_read_byte(skb, chunk[i]);
    if (result) return result;
  }
  return NM_NAMING_MORE;
}

/* Reads the next NM_CHUNKS chunks. */
NM_GLOBAL int nm_read_chunks(struct __sk_buff *skb, __u32 offset, __u32 end) {
  for (int i = 0; i < NM_CHUNKS; i++) {
    int result;

    if (offset >= end) break;
    result = nm_read_chunk(skb, offset, end);
    if (result) return result;
    offset += NM_CHUNK;
  }
  return NM_NAMING_MORE;
}

/* Reads the bytes from `offset` to `end`. */
NM_GLOBAL int nm_read_bytes(struct __sk_buff *skb, __u32 offset, __u32 end) {
  for (int i = 0; i < NM_MAX_PENDING_BYTES / (NM_CHUNKS * NM_CHUNK); i++) {
    int result;

    if (offset >= end) break;
    result = nm_read_chunks(skb, offset, end);
    if (result) return result;
    offset += NM_CHUNKS * NM_CHUNK;
  }
  return NM_NAMING_MORE;
}

/* The id of the name that a connection gave, if its owner may add one. */
NM_GLOBAL __u32 nm_wire_name_id(struct __sk_buff *skb, __u32 service,
                                __u32 user) {
  struct nm_naming *naming = naming_of_packet(skb);
  struct nm_name_key key = {};
  __u32 *count, known, most, id;

  if (!naming) return NM_NAME_EMPTY;
  key.kind = NM_KIND_WIRE;
  key.encoding = naming->encoding;
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    if (i >= naming->name_length) break;
    key.bytes[i] = naming->name[i];
    key.length = i + 1;
  }
  if (!key.length) return NM_NAME_EMPTY;
  known = known_name(&key);
  if (known) return known;
  count = bpf_map_lookup_elem(&nm_wire_names, &service);
  most = nm_kind_of_name(service) == NM_KIND_SERVICE
             ? NM_MAX_WIRE_NAMES
             : NM_MAX_WIRE_NAMES_OF_OTHERS;
  if (!count || *count >= most) {
    COUNT(destinations_over_quota, 1);
    return NM_NAME_EMPTY;
  }
  id = name_id_for_user(&key, user);
  if (id) __sync_fetch_and_add(count, 1);
  return id;
}

/* Reads the last `new_bytes` of the payload, which ends at `end`. Names the destination
 * if that is possible now. Not 0: it is named, or never will be. The caller then settles
 * the pending amounts, because the stack has no room here. */
static __always_inline int read_destination(struct __sk_buff *skb,
                                            struct bpf_sock *sk,
                                            struct nm_owner *owner,
                                            struct nm_socket *socket, __u32 end,
                                            __u32 new_bytes) {
  struct nm_naming *naming;
  int result = NM_NAMING_FAILED;
  __u32 name = 0;

  naming = bpf_sk_storage_get(&nm_namings, sk, 0, 0);
  if (!naming) {
    naming =
        bpf_sk_storage_get(&nm_namings, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!naming) goto done;
    nm_naming_start(naming, socket->wire_protocol);
  }
  result = nm_read_bytes(skb, end - new_bytes, end);
  if (!result) return 0;

done:
  if (result == NM_NAMING_FOUND && naming)
    name = nm_wire_name_id(skb, owner->attribution.service, owner->user);
  if (name) {
    COUNT(connections_named, 1);
    owner->wire_destination = name;
    owner->flags &= ~NM_OWNER_RULED;
  } else {
    COUNT(connections_unnamed, 1);
  }
  owner->flags |= NM_OWNER_NAMED;
  socket->wire_protocol = NM_WIRE_NONE;
  *(volatile __u64 *)&socket->word = NM_WORD_COOKIE(socket->word);
  bpf_sk_storage_delete(&nm_namings, sk);
  return 1;
}

#endif /* NETMETER_BPF_DESTINATION_BPF_H_ */
