// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * The kernel part of libnetmeter: names are resolved where they are true, in
 * process context; packets are counted where they are real, at the cgroup
 * hooks. No program here ever drops a packet or fails a system call that is
 * not addressed to it.
 */
#define __BPF__ 1
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/internal.h"
#include "bpf/kernel.bpf.h"

const volatile struct nm_config nm_config = {};

static __always_inline long nm_read_string(void *to, __u32 size,
                                           __u64 address) {
  return bpf_probe_read_user_str(to, size, (void *)address);
}
#define NM_INFER_GLOBAL __attribute__((noinline))
#include "bpf/infer.bpf.h"
#include "bpf/maps.bpf.h"
#include "bpf/names.bpf.h"
#include "bpf/naming.bpf.h"
#include "bpf/packet.bpf.h"

#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

#define PASS 1 /* of cgroup programs: let the packet or the call go on */

#define LOOPBACK_IFINDEX 1 /* in every network namespace */
#define PACKET_LOOPBACK 5  /* skb->pkt_type of a multicast copy to ourselves */

#define SOCK_RAW 3

/* bpf_sock.state */
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11

/* a is before b in the sequence space, RFC 9293 section 3.4 */
static __always_inline bool before(__u32 a, __u32 b) {
  return (__s32)(a - b) < 0;
}

/* --- Sockets ------------------------------------------------------------- */

static __always_inline struct nm_entry *entry_of_cookie(__u64 cookie) {
  __u32 index = cookie & nm_config.socket_mask;

  return bpf_map_lookup_elem(&nm_sockets, &index);
}

/* Takes a socket's entry out of the table, its state into *keep. */
static __always_inline void free_entry(__u64 cookie, struct nm_socket *keep) {
  struct nm_entry *entry = entry_of_cookie(cookie);
  bool freed = false;

  if (!entry) return;
  bpf_spin_lock(&entry->lock);
  if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie)) {
    *keep = entry->socket;
    __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
    freed = true;
  }
  bpf_spin_unlock(&entry->lock);
  if (freed) COUNT(sockets_freed, 1);
}

/* Claims the table's entry for a socket; NULL if another one has it. */
static __always_inline struct nm_socket *claim_entry(__u64 cookie) {
  struct nm_entry *entry = entry_of_cookie(cookie);
  bool claimed = false;

  if (!entry) return NULL;
  bpf_spin_lock(&entry->lock);
  if (!entry->socket.word) {
    __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
    entry->socket.word = NM_COOKIE(cookie);
    claimed = true;
  }
  bpf_spin_unlock(&entry->lock);
  if (!claimed) {
    COUNT(sockets_taken, 1);
    return NULL;
  }
  COUNT(sockets_claimed, 1);
  return &entry->socket;
}

/* The owner of a socket. One that has none was made by the kernel, or before
 * the meter was loaded. NULL: no memory. */
static __always_inline struct nm_owner *owner_of_socket(struct bpf_sock *sk,
                                                        __u64 cookie) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  if (owner) return owner;
  owner = bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!owner) {
    COUNT(storage_failed, 1);
    return NULL;
  }
  owner->whose.service = NM_NAME_UNATTRIBUTED;
  owner->whose.kind = NM_KIND_UNATTRIBUTED;
  owner->adopted = cookie;
  COUNT(unowned_sockets, 1);
  return owner;
}

/* The state of a socket that the table does not show: makes it on the socket's
 * first packet. A TCP connection may do so on egress only, where its lock is
 * held: two states of one connection would count sequences twice. */
static __noinline struct nm_socket *find_socket(struct nm_owner *owner,
                                                __u64 cookie, bool may_claim) {
  struct nm_socket *socket;

  if (!owner) return NULL;
  if (NM_WORD_COOKIE(owner->socket.word) == NM_COOKIE(cookie))
    return &owner->socket;
  if (!may_claim) return NULL;
  owner->cookie = cookie;
  if ((owner->flags & (NM_OWNER_RELEASED | NM_OWNER_CLOSED)) ==
      NM_OWNER_RELEASED) {
    socket = claim_entry(cookie);
    if (socket) return socket;
  }
  __builtin_memset(&owner->socket, 0, sizeof(owner->socket));
  owner->socket.word = NM_COOKIE(cookie);
  return &owner->socket;
}

/* --- Series of a packet -------------------------------------------------- */

static __noinline __u32 destination_by_rules(struct __sk_buff *skb,
                                             struct nm_packet *packet,
                                             enum nm_direction direction) {
  __u32 address[4] = {};
  __u16 port;

  if (!packet) return NM_NAME_EMPTY;
  port = direction == NM_EGRESS ? packet->target : packet->source;
  remote_address(skb, direction, address);
  for (__u32 i = 0; i < NM_MAX_RULES; i++) {
    __u32 index = i;
    struct nm_rule *rule;

    if (i >= nm_config.rules_count) break;
    rule = bpf_map_lookup_elem(&nm_rules, &index);
    if (!rule) break;
    if ((rule->protocol && rule->protocol != packet->protocol) ||
        port < rule->port_first || port > rule->port_last)
      continue;
    if (((address[0] ^ rule->address[0]) & rule->mask[0]) |
        ((address[1] ^ rule->address[1]) & rule->mask[1]) |
        ((address[2] ^ rule->address[2]) & rule->mask[2]) |
        ((address[3] ^ rule->address[3]) & rule->mask[3]))
      continue;
    return rule->destination;
  }
  return NM_NAME_EMPTY;
}

static __always_inline bool is_one_of(const volatile __u16 *ports,
                                      __u32 count, __u32 most, __u16 port) {
  for (__u32 i = 0; i < most; i++) {
    if (i >= count) break;
    if (ports[i] == port) return true;
  }
  return false;
}

static __always_inline bool is_proxy_port(__u16 port) {
  return is_one_of(nm_config.proxy_ports, nm_config.proxy_ports_count,
                   NM_MAX_PROXY_PORTS, port);
}

static __always_inline bool is_sni_port(__u16 port) {
  return is_one_of(nm_config.sni_ports, nm_config.sni_ports_count,
                   NM_MAX_SNI_PORTS, port);
}

/* Whether a connection is going to name its destination itself. Only what this
 * host sends on connections that it opened is read: no peer fills the tables. */
static __always_inline __u8 naming_of(const struct nm_owner *owner,
                                      const struct nm_packet *packet) {
  if (packet->transport != NM_TRANSPORT_TCP ||
      (owner->flags & (NM_OWNER_CONNECTED | NM_OWNER_NAMED |
                       NM_OWNER_CLOSED)) != NM_OWNER_CONNECTED)
    return NM_NAMING_NO;
  if (packet->path == NM_PATH_PROXY)
    return is_proxy_port(packet->target) ? NM_NAMING_H2 : NM_NAMING_NO;
  return is_sni_port(packet->target) ? NM_NAMING_TLS : NM_NAMING_NO;
}

static __always_inline void move(__u64 *held, __u64 *from, __u64 *to) {
  __u64 amount = *(volatile __u64 *)held;

  if (!amount) return;
  __sync_fetch_and_add(to, amount);
  __sync_fetch_and_add(from, -amount);
  __sync_fetch_and_add(held, -amount);
}

static __always_inline union nm_whose whose_of(struct nm_owner *owner) {
  union nm_whose whose = {.word = *(volatile __u32 *)&owner->whose.word};

  return whose;
}

/* The slot of a connection whose packets do not tell any more. */
static __always_inline __u32 slot_of_owner(struct nm_owner *owner, __u8 path) {
  union nm_whose whose = whose_of(owner);
  union nm_head head = {};

  head.service = whose.service;
  head.kind = whose.kind;
  head.flags = whose.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = path;
  if (whose.kind == NM_KIND_SERVICE)
    head.destination = owner->tag ? owner->tag : owner->name;
  return slot_of_series(&head, owner->user);
}

/* Counts a connection as opened or accepted, once: where it is counted, its end
 * is, too, whatever it is named by then. The socket's lock is held. */
static __noinline int count_established(struct nm_owner *owner, __u32 slot) {
  struct nm_tcp *tcp;

  if (!owner || !(owner->flags & NM_OWNER_ESTABLISHED) || owner->counted)
    return 0;
  tcp = tcp_of_slot(slot);
  if (!tcp) return 0;
  owner->counted = slot;
  if (owner->flags & NM_OWNER_CONNECTED)
    __sync_fetch_and_add(&tcp->opened, 1);
  else
    __sync_fetch_and_add(&tcp->accepted, 1);
  return 0;
}

/* Moves what a connection held to where it belongs, now that this is known;
 * the socket's lock is held. What another CPU's ingress adds meanwhile is moved
 * when the connection closes. */
static __noinline int release_held(struct nm_owner *owner) {
  union nm_head head = {};
  struct nm_cell *from, *to;
  struct nm_held *held;

  if (!owner || !owner->held_service) return 0;
  held = &owner->held;
  head.service = owner->held_service;
  head.flags = owner->whose.flags;
  head.transport = NM_TRANSPORT_TCP;
  head.path = owner->held_path;
  head.kind = NM_KIND_PENDING;
  from = cell_of_slot(slot_of_series(&head, owner->user));
  to = cell_of_slot(slot_of_owner(owner, owner->held_path));
  if (!from || !to) return 0;
  move(&held->tx_bytes, &from->tx_bytes, &to->tx_bytes);
  move(&held->rx_bytes, &from->rx_bytes, &to->rx_bytes);
  move(&held->tx_packets, &from->tx_packets, &to->tx_packets);
  move(&held->rx_packets, &from->rx_packets, &to->rx_packets);
  move(&held->tx_payload_bytes, &from->tx_payload_bytes,
       &to->tx_payload_bytes);
  move(&held->rx_payload_bytes, &from->rx_payload_bytes,
       &to->rx_payload_bytes);
  move(&held->tx_retransmit_bytes, &from->tx_retransmit_bytes,
       &to->tx_retransmit_bytes);
  return 0;
}

/* The slot that a packet belongs to, kept in *socket where all packets of the
 * socket belong there. */
static __noinline __u32 slot_of_packet(struct __sk_buff *skb,
                                       struct nm_owner *owner,
                                       struct nm_packet *packet,
                                       struct nm_socket *socket,
                                       enum nm_direction direction) {
  union nm_whose whose = {};
  union nm_head head = {};
  bool keep = true;
  __u16 tag = 0;
  __u32 slot;

  if (!packet) return 0;
  head.transport = packet->transport;
  head.path = packet->path;
  if (owner) {
    tag = *(volatile __u16 *)&owner->tag;
    whose = whose_of(owner);
    head.service = whose.service;
    head.kind = whose.kind;
    head.flags = whose.flags;
    if (head.kind == NM_KIND_SERVICE) {
      head.destination = tag;
      if (!tag && nm_config.rules_count) {
        head.destination = destination_by_rules(skb, packet, direction);
        /* Only a TCP connection has one other end for all its life. */
        keep = packet->transport == NM_TRANSPORT_TCP && skb->sk &&
               skb->sk->state != TCP_LISTEN;
      }
      if (!head.destination) head.destination = owner->name;
      if (socket && direction == NM_EGRESS) {
        if (!head.destination) {
          socket->naming = naming_of(owner, packet);
        } else if (socket->naming) { /* tagged meanwhile */
          socket->naming = NM_NAMING_NO;
          owner->flags |= NM_OWNER_NAMED;
          release_held(owner);
        }
      }
      if (!head.destination && socket && socket->naming) {
        if (!owner->held_service) {
          owner->held_service = whose.service;
          owner->held_path = packet->path;
        }
        head.kind = NM_KIND_PENDING;
        head.service = owner->held_service;
        /* Egress may name the connection meanwhile, on another CPU. */
        keep = direction == NM_EGRESS;
      }
    }
  } else {
    head.service = NM_NAME_UNATTRIBUTED;
    head.kind = NM_KIND_UNATTRIBUTED;
  }
  slot = slot_of_series(&head, owner ? owner->user : 0);
  /* The table may have room for the next packet: it may grow. */
  if (head.kind == NM_KIND_OVERFLOW && whose.kind != NM_KIND_OVERFLOW)
    keep = false;
  /* What is to be done once, egress does, which holds the socket's lock: it is
   * not to find a slot before that. */
  if (direction == NM_INGRESS && owner && socket &&
      (socket->naming ||
       ((owner->flags & NM_OWNER_ESTABLISHED) && !owner->counted)))
    keep = false;
  if (direction == NM_EGRESS && head.kind != NM_KIND_PENDING)
    count_established(owner, slot);
  if (keep && owner && socket) {
    *(volatile __u64 *)&socket->word = NM_WORD_COOKIE(socket->word) | slot;
    /* A name that came meanwhile found the old slot: once more, then. */
    if (*(volatile __u16 *)&owner->tag != tag ||
        whose_of(owner).word != whose.word)
      *(volatile __u64 *)&socket->word = NM_WORD_COOKIE(socket->word);
  }
  return slot;
}

/* --- TCP: every byte once ------------------------------------------------ */

/*
 * Splits the payload of a segment that we send into what is new and what was
 * sent before, by the highest end sequence that this socket handed to the
 * hook: snd_nxt stays behind when a local qdisc drops. The socket's lock is
 * held, so packets of one socket come one at a time.
 */
static __always_inline __u32 new_payload(struct bpf_sock *sk,
                                         struct nm_socket *socket,
                                         struct nm_packet *packet,
                                         bool adopted) {
  __u32 first = packet->seq + !!(packet->tcp_flags & TCP_FLAG_SYN);
  __u32 last = first + packet->payload;
  __u32 end = last + (packet->tcp_flags & TCP_FLAG_FIN);
  __u32 fresh;

  if (!socket->tx_valid) {
    socket->tx_end = packet->seq;
    if (adopted && sk) {
      struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);

      if (tcp && before(socket->tx_end, tcp->snd_nxt))
        socket->tx_end = tcp->snd_nxt;
    }
    socket->tx_valid = 1;
  }
  if (!before(socket->tx_end, end)) return 0;
  if (before(first, socket->tx_end)) first = socket->tx_end;
  socket->tx_end = end;
  fresh = last - first;
  /* Negative where only a SYN or a FIN is new. */
  return (__s32)fresh < 0 ? 0 : fresh;
}

/* What the peer sent in order since our last acknowledgement. */
static __always_inline __u32 acked_payload(struct __sk_buff *skb,
                                           struct bpf_sock *sk,
                                           struct nm_socket *socket,
                                           struct nm_packet *packet,
                                           bool adopted) {
  __u32 ack = packet->ack, advance, state;

  if (!socket->rx_valid) {
    struct bpf_tcp_sock *tcp = sk ? bpf_tcp_sock(sk) : NULL;

    socket->rx_ack = ack;
    /* An accepted socket may have received before it first sends. */
    if (tcp && !adopted)
      socket->rx_ack = tcp->rcv_nxt - (__u32)tcp->bytes_received;
    socket->rx_valid = 1;
  }
  if (!before(socket->rx_ack, ack)) return 0;
  advance = ack - socket->rx_ack;
  if (!socket->rx_fin_counted) {
    /* A FIN takes one number. Where it comes first, the state tells; where
     * ours was first, the acknowledgement leaves before the state changes
     * (tcp_fin() in net/ipv4/tcp_input.c), and the ingress hook told. */
    state = skb->sk ? skb->sk->state : 0;
    if (state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK ||
        state == TCP_CLOSING ||
        (socket->rx_fin_seen && before(socket->rx_ack, socket->rx_fin) &&
         !before(ack, socket->rx_fin))) {
      socket->rx_fin_counted = 1;
      advance--;
    }
  }
  socket->rx_ack = ack;
  return advance;
}

/* --- Naming the destination of a connection -------------------------------- */

#define NM_CHUNK 32

/* Reads one chunk of the packet, or less; returns the result. A global
 * function, so that the verifier walks it once and not once per call. */
__attribute__((noinline)) int nm_read_chunk(struct __sk_buff *skb,
                                            __u32 offset, __u32 end) {
  struct nm_naming *naming;
  struct bpf_sock *sk = skb->sk;
  __u8 chunk[NM_CHUNK] = {};
  __u64 size = end - offset;

  if (!sk) return NM_NAMING_NONE;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return NM_NAMING_NONE;
  naming = bpf_sk_storage_get(&nm_namings, sk, 0, 0);
  if (!naming || size < 1) return NM_NAMING_NONE;
  if (size > sizeof(chunk)) size = sizeof(chunk);
  /* Verifiers before 6.12 learn no lower bound from a comparison with 0. */
  size--;
  barrier_var(size);
  size = (size & (sizeof(chunk) - 1)) + 1;
  if (bpf_skb_load_bytes(skb, offset, chunk, size)) return NM_NAMING_NONE;
  barrier_var(size); /* or the bound of the loop is optimized away */
  for (__u32 i = 0; i < sizeof(chunk); i++) {
    if (i >= size) break;
    nm_naming_byte(naming, chunk[i]);
    if (naming->result) return naming->result;
  }
  naming->total += size;
  return naming->total < NM_MAX_HELD_BYTES ? NM_NAMING_MORE : NM_NAMING_NONE;
}

/* Reads the bytes from `offset` to `end`; returns the result. */
__attribute__((noinline)) int nm_read_bytes(struct __sk_buff *skb,
                                            __u32 offset, __u32 end) {
  for (int i = 0; i < NM_MAX_HELD_BYTES / NM_CHUNK; i++) {
    int result;

    if (offset >= end) break;
    result = nm_read_chunk(skb, offset, end);
    if (result) return result;
    offset += NM_CHUNK;
  }
  return NM_NAMING_MORE;
}

/* The id of a name that a connection gave, if its service may add one. */
static __noinline __u32 wire_name_id(struct nm_naming *naming,
                                     struct nm_owner *owner) {
  struct nm_name_key key = {};
  __u32 service;
  __u32 *count, *known;

  if (!naming || !owner) return NM_NAME_EMPTY;
  service = owner->whose.service;
  key.kind = NM_KIND_WIRE;
  key.encoding = naming->encoding;
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    if (i >= naming->name_length) break;
    key.bytes[i] = naming->name[i];
    key.length = i + 1;
  }
  if (!key.length) return NM_NAME_EMPTY;
  known = bpf_map_lookup_elem(&nm_name_ids, &key);
  if (known) return *known;
  count = bpf_map_lookup_elem(&nm_wire_names, &service);
  if (!count || *count >= NM_MAX_WIRE_NAMES) {
    COUNT(destinations_capped, 1);
    return NM_NAME_EMPTY;
  }
  __sync_fetch_and_add(count, 1);
  return name_id_for_user(&key, owner->user);
}

/* Reads on in what a connection sends first, and names it once that is
 * possible, or is not any more. `fresh` is the end of the payload. */
static __noinline int read_name_of_connection(struct __sk_buff *skb,
                                              struct nm_owner *owner,
                                              struct nm_socket *socket,
                                              struct nm_packet *packet,
                                              __u32 fresh) {
  struct nm_naming *naming;
  struct bpf_sock *sk = skb->sk;
  int result = NM_NAMING_NONE;

  if (!owner || !socket || !packet || !sk) return 0;
  sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  naming = bpf_sk_storage_get(&nm_namings, sk, 0, 0);
  if (!naming) {
    naming = bpf_sk_storage_get(&nm_namings, sk, 0,
                                BPF_SK_STORAGE_GET_F_CREATE);
    if (!naming) goto done;
    nm_naming_start(naming, socket->naming);
  }
  result = nm_read_bytes(skb, packet->header + packet->payload - fresh,
                         packet->header + packet->payload);
  if (!result) return 0;

done:
  if (result == NM_NAMING_FOUND && naming)
    owner->name = wire_name_id(naming, owner);
  if (owner->name)
    COUNT(connections_named, 1);
  else
    COUNT(connections_unnamed, 1);
  owner->flags |= NM_OWNER_NAMED;
  socket->naming = NM_NAMING_NO;
  *(volatile __u64 *)&socket->word = NM_WORD_COOKIE(socket->word);
  bpf_sk_storage_delete(&nm_namings, sk);
  release_held(owner);
  return 0;
}

/* --- The packet programs ------------------------------------------------- */

/* The owner of a socket that holds what it counts. */
static __always_inline struct nm_owner *holder(struct __sk_buff *skb,
                                               struct nm_owner *owner,
                                               __u64 cookie) {
  struct bpf_sock *sk = skb->sk;

  if (owner || !sk) return owner;
  sk = bpf_sk_fullsock(sk);
  return sk ? owner_of_socket(sk, cookie) : NULL;
}

static __always_inline int count_packet(struct __sk_buff *skb,
                                        const enum nm_direction direction) {
  struct nm_packet packet = {};
  struct nm_owner *owner = NULL;
  struct nm_socket *socket = NULL;
  struct nm_entry *entry;
  struct nm_cell *cell;
  struct bpf_sock *sk = NULL;
  bool adopted = false, sequence;
  __u32 slot = 0, fresh, received = 0;
  __u64 cookie;

  if (skb->ifindex == LOOPBACK_IFINDEX && !nm_config.proxy_ports_count)
    return PASS;
  if (direction == NM_INGRESS && skb->pkt_type == PACKET_LOOPBACK) return PASS;
  if (parse_packet(skb, &packet)) COUNT(header_errors, 1);
  if (skb->ifindex == LOOPBACK_IFINDEX) {
    if (!is_proxy_port(packet.source) && !is_proxy_port(packet.target))
      return PASS;
    packet.path = NM_PATH_PROXY;
  }

  cookie = bpf_get_socket_cookie(skb);
  entry = entry_of_cookie(cookie);
  if (!entry) return PASS;
  if (NM_WORD_COOKIE(*(volatile __u64 *)&entry->socket.word) ==
      NM_COOKIE(cookie)) {
    socket = &entry->socket;
  } else {
    if (skb->sk) sk = bpf_sk_fullsock(skb->sk);
    if (sk) owner = owner_of_socket(sk, cookie);
    socket = find_socket(owner, cookie,
                         direction == NM_EGRESS ||
                             packet.transport != NM_TRANSPORT_TCP ||
                             (skb->sk && skb->sk->state == TCP_LISTEN));
    if (owner) adopted = owner->adopted == cookie;
  }
  if (socket) slot = NM_WORD_SLOT(*(volatile __u64 *)&socket->word);
  cell = slot ? cell_of_slot(slot) : NULL;
  if (!cell || !cell->service || cell->transport != packet.transport ||
      cell->path != packet.path) {
    if (!owner) {
      if (skb->sk) sk = bpf_sk_fullsock(skb->sk);
      if (sk) owner = owner_of_socket(sk, cookie);
    }
    slot = slot_of_packet(skb, owner, &packet, socket, direction);
    cell = cell_of_slot(slot);
    if (!cell) return PASS;
  }

  /* Raw sockets write TCP headers of their own making; what a listener sends
   * is a SYN-ACK for a socket that does not exist yet. */
  sequence = packet.transport == NM_TRANSPORT_TCP && socket && skb->sk &&
             skb->sk->state != TCP_LISTEN;
  if (direction == NM_INGRESS) {
    __sync_fetch_and_add(&cell->rx_bytes, packet.bytes);
    __sync_fetch_and_add(&cell->rx_packets, packet.segments);
    if (packet.transport != NM_TRANSPORT_TCP) {
      __sync_fetch_and_add(&cell->rx_payload_bytes, packet.payload);
    } else if (sequence && (packet.tcp_flags & TCP_FLAG_FIN)) {
      socket->rx_fin = packet.seq + packet.payload + 1;
      socket->rx_fin_seen = 1;
    }
    if (cell->kind == NM_KIND_PENDING) {
      owner = holder(skb, owner, cookie);
      if (!owner) return PASS;
      __sync_fetch_and_add(&owner->held.rx_bytes, packet.bytes);
      __sync_fetch_and_add(&owner->held.rx_packets, packet.segments);
    }
    return PASS;
  }

  __sync_fetch_and_add(&cell->tx_bytes, packet.bytes);
  __sync_fetch_and_add(&cell->tx_packets, packet.segments);
  fresh = packet.payload;
  if (sequence) {
    if (!socket->tx_valid || !socket->rx_valid) {
      if (skb->sk && !sk) sk = bpf_sk_fullsock(skb->sk);
      if (sk && sk->type == SOCK_RAW) goto raw;
    }
    fresh = new_payload(sk, socket, &packet, adopted);
    if (packet.tcp_flags & TCP_FLAG_ACK)
      received = acked_payload(skb, sk, socket, &packet, adopted);
  }
raw:
  if (fresh) __sync_fetch_and_add(&cell->tx_payload_bytes, fresh);
  if (fresh != packet.payload)
    __sync_fetch_and_add(&cell->tx_retransmit_bytes, packet.payload - fresh);
  if (received) __sync_fetch_and_add(&cell->rx_payload_bytes, received);
  if (cell->kind == NM_KIND_PENDING) {
    owner = holder(skb, owner, cookie);
    if (!owner) return PASS;
    __sync_fetch_and_add(&owner->held.tx_bytes, packet.bytes);
    __sync_fetch_and_add(&owner->held.tx_packets, packet.segments);
    __sync_fetch_and_add(&owner->held.tx_payload_bytes, fresh);
    __sync_fetch_and_add(&owner->held.tx_retransmit_bytes,
                         packet.payload - fresh);
    __sync_fetch_and_add(&owner->held.rx_payload_bytes, received);
    if (fresh && socket && socket->naming)
      read_name_of_connection(skb, owner, socket, &packet, fresh);
  }
  return PASS;
}

SEC("cgroup_skb/ingress")
int nm_ingress(struct __sk_buff *skb) { return count_packet(skb, NM_INGRESS); }

SEC("cgroup_skb/egress")
int nm_egress(struct __sk_buff *skb) { return count_packet(skb, NM_EGRESS); }

/* --- The life of a socket ------------------------------------------------ */

/* Names a process that no exec or fork was seen of, by its main thread. */
static __always_inline void process_by_comm(struct nm_process *process) {
  if (nm_config.task_access == NM_TASK_BTF) {
    struct task_struct *task = (void *)bpf_get_current_task_btf();
    struct task_struct *leader = task->group_leader;

    for (int i = 0; i < 16; i++) process->bytes[i] = leader->comm[i];
  } else if (nm_config.task_access == NM_TASK_PROBE) {
    struct task_struct *task = (void *)bpf_get_current_task();
    struct task_struct *leader = BPF_CORE_READ(task, group_leader);

    if (leader)
      bpf_probe_read_kernel(process->bytes, 16,
                            __builtin_preserve_access_index(&leader->comm));
  }
  process->bytes[15] = 0;
}

/* Tells the current process, and what it executes, from those that have its
 * process id before and after it. 0 where the task cannot be looked at. */
static __always_inline __u32 process_stamp(void) {
  __u64 start = 0, execs = 0;

  if (nm_config.task_access == NM_TASK_BTF) {
    struct task_struct *task = (void *)bpf_get_current_task_btf();
    struct task_struct *leader = task->group_leader;

    start = leader->start_boottime;
    execs = leader->self_exec_id;
  } else if (nm_config.task_access == NM_TASK_PROBE) {
    struct task_struct *task = (void *)bpf_get_current_task();
    struct task_struct *leader = BPF_CORE_READ(task, group_leader);

    start = BPF_CORE_READ(leader, start_boottime);
    execs = BPF_CORE_READ(leader, self_exec_id);
  }
  return (__u32)(start ^ start >> 32) + (__u32)execs * 0x9e3779b1;
}

SEC("cgroup/sock_create")
int nm_sock_create(struct bpf_sock *sk) {
  const bool unwatched =
      nm_config.untracked && nm_config.task_access != NM_TASK_NONE;
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct nm_process *process, made = {};
  struct nm_owner *owner =
      bpf_sk_storage_get(&nm_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

  if (!owner) {
    COUNT(storage_failed, 1);
    return PASS;
  }
  owner->tgid = tgid;
  owner->user = current_user();
  owner->whose.service = NM_NAME_UNATTRIBUTED;
  owner->whose.kind = NM_KIND_UNATTRIBUTED;
  /* TCP sockets may outlive their process: sockops tells when they end. */
  if (sk->protocol != IPPROTO_TCP) owner->flags = NM_OWNER_RELEASED;

  process = bpf_map_lookup_elem(&nm_processes, &tgid);
  if (unwatched && process && process->stamp != process_stamp()) {
    /* An entry of an earlier process, or of an earlier program. */
    if (process->stamp) bpf_map_delete_elem(&nm_processes, &tgid);
    process = NULL;
  }
  if (!process) {
    process_by_comm(&made);
    if (!made.bytes[0]) return PASS;
    classify(&made);
    /* Where nobody sees its exit, the name is good for this socket only. */
    if (!unwatched) {
      if (bpf_map_update_elem(&nm_processes, &tgid, &made, BPF_NOEXIST))
        COUNT(processes_full, 1);
      process = bpf_map_lookup_elem(&nm_processes, &tgid);
    }
    if (!process) process = &made;
  }
  name_process(process);
  owner->whose.kind = process->kind;
  owner->whose.service = process->name;
  owner->whose.flags = process->flags & NM_FLAG_REGISTERED;
  if (!process->name) {
    owner->whose.kind = NM_KIND_OVERFLOW;
    owner->whose.service = NM_NAME_OVERFLOW;
  }
  return PASS;
}

SEC("cgroup/sock_release")
int nm_sock_release(struct bpf_sock *sk) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  if (!owner || sk->protocol == IPPROTO_TCP) return PASS;
  owner->flags |= NM_OWNER_CLOSED;
  if (owner->cookie) free_entry(owner->cookie, &owner->socket);
  return PASS;
}

/* The slot that is kept for a connection; 0: none, or that of what is held. */
static __always_inline __u32 kept_slot(struct bpf_sock *sk, __u64 cookie) {
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_owner *owner;
  struct nm_tcp *tcp;
  __u64 word;
  __u32 slot;

  if (!entry) return 0;
  word = *(volatile __u64 *)&entry->socket.word;
  if (NM_WORD_COOKIE(word) != NM_COOKIE(cookie)) {
    owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
    if (!owner) return 0;
    word = *(volatile __u64 *)&owner->socket.word;
    if (NM_WORD_COOKIE(word) != NM_COOKIE(cookie)) return 0;
  }
  slot = NM_WORD_SLOT(word);
  tcp = tcp_of_slot(slot);
  return tcp && tcp->kind != NM_KIND_PENDING ? slot : 0;
}

static __always_inline void count_rtt(struct nm_tcp *tcp, __u32 us) {
  const __u32 bounds[] = NM_RTT_BOUNDS_US;
  __u32 bucket = 0;

  if (!us || tcp->path != NM_PATH_DIRECT) return;
#pragma unroll
  for (int i = 0; i < NM_RTT_BUCKETS - 1; i++) bucket += us > bounds[i];
  barrier_var(bucket);
  if (bucket >= NM_RTT_BUCKETS) return;
  __sync_fetch_and_add(&tcp->rtt_buckets[bucket], 1);
  __sync_fetch_and_add(&tcp->rtt_us, us);
}

/* Called before srtt_us is set anew: it is the value of the round trip before,
 * so the last one is counted at the end. It holds eighths. */
static __always_inline void count_round_trip(struct bpf_sock_ops *ops,
                                             __u32 slot) {
  struct nm_tcp *tcp = slot ? tcp_of_slot(slot) : NULL;

  if (tcp) count_rtt(tcp, ops->srtt_us >> 3);
}

/* A connection that this host opened. */
static __always_inline void established(struct bpf_sock_ops *ops,
                                        struct bpf_sock *sk) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  __u32 slot;

  if (!owner || !(owner->flags & NM_OWNER_CONNECTED)) return;
  owner->flags |= NM_OWNER_ESTABLISHED;
  slot = kept_slot(sk, bpf_get_socket_cookie(ops));
  if (slot) count_established(owner, slot);
}

/* A socket listens, connects, or was accepted. */
static __always_inline void begun(struct bpf_sock_ops *ops,
                                  struct bpf_sock *sk) {
  const bool accepted = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
  __u32 events = ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG;
  __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);

  if (!owner) return;
  if (ops->op != BPF_SOCK_OPS_TCP_LISTEN_CB) events |= BPF_SOCK_OPS_RTT_CB_FLAG;
  /* It would never end. */
  if (bpf_sock_ops_cb_flags_set(ops, events)) return;
  /* Both ends connected at once (RFC 9293, section 3.5). No clone: a listener's
   * flags are not these. */
  if (accepted && (owner->flags & NM_OWNER_CONNECTED))
    return established(ops, sk);
  if (!accepted) {
    /* A socket may connect again once it is closed: a new connection has new
     * sequence numbers. */
    free_entry(cookie, &owner->socket);
    __builtin_memset(&owner->socket, 0, sizeof(owner->socket));
    bpf_sk_storage_delete(&nm_namings, sk);
    owner->adopted = 0;
    owner->name = 0;
    owner->held_service = 0;
  }
  owner->counted = 0;
  owner->flags = NM_OWNER_RELEASED;
  if (ops->op == BPF_SOCK_OPS_TCP_CONNECT_CB)
    owner->flags |= NM_OWNER_CONNECTED;
  /* Its series is not known before its first packet. */
  if (accepted) owner->flags |= NM_OWNER_ESTABLISHED;
}

static __always_inline void ended(struct bpf_sock_ops *ops,
                                  struct bpf_sock *sk) {
  __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  struct nm_tcp *tcp;
  __u32 slot;

  /* Closed before: connect(2) on a socket that has ended, and that found no
   * port. Its TCP_CONNECT_CB never came. */
  if (!owner || (owner->flags & NM_OWNER_CLOSED)) return;
  slot = kept_slot(sk, cookie);
  /* What is sent after the end, a RST, still finds the numbers. */
  owner->flags |= NM_OWNER_CLOSED;
  free_entry(cookie, &owner->socket);
  if (owner->socket.naming) {
    COUNT(connections_unnamed, 1);
    owner->socket.naming = NM_NAMING_NO;
    owner->socket.word = NM_WORD_COOKIE(owner->socket.word);
  }
  release_held(owner);
  if (!slot && owner->held_service)
    slot = slot_of_owner(owner, owner->held_path);
  if (owner->counted) slot = owner->counted;
  /* Without a packet it was none of ours: over loopback. */
  tcp = slot ? tcp_of_slot(slot) : NULL;
  if (!tcp) return;
  if (owner->flags & NM_OWNER_ESTABLISHED) {
    count_established(owner, slot);
    __sync_fetch_and_add(&tcp->closed, 1);
    count_round_trip(ops, slot);
  } else if (ops->args[0] == TCP_SYN_SENT) {
    __sync_fetch_and_add(&tcp->failed, 1);
  } /* else a listener, or older than the meter */
}

SEC("sockops")
int nm_sockops(struct bpf_sock_ops *ops) {
  struct bpf_sock *sk = ops->sk;

  if (!sk) return 1;
  switch (ops->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
      begun(ops, sk);
      break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
      established(ops, sk);
      break;
    case BPF_SOCK_OPS_RTT_CB:
      count_round_trip(ops, kept_slot(sk, bpf_get_socket_cookie(ops)));
      break;
    case BPF_SOCK_OPS_STATE_CB:
      if (ops->args[1] == TCP_CLOSE) ended(ops, sk);
      break;
  }
  return 1;
}

/* --- Control channel ----------------------------------------------------- */

static __always_inline __u32 current_tgid(void) {
  if (nm_config.tgid_helper) return bpf_get_current_pid_tgid() >> 32;
  if (nm_config.task_access == NM_TASK_PROBE) {
    struct task_struct *task = (void *)bpf_get_current_task();

    return BPF_CORE_READ(task, tgid);
  }
  return 0;
}

/* Reads a name of 1 to NM_NAME_BYTES bytes without NUL. Where a meter of an
 * inner cgroup has taken the call before us, its -1 stands for the length; the
 * kernel's copy of the value then ends with a NUL, or with its buffer. */
static __always_inline bool read_name(struct bpf_sockopt *ctx, __u8 *bytes) {
  __u8 *value = ctx->optval, *end = ctx->optval_end;
  int length = ctx->optlen;
  bool taken = length == -1;

  if (taken) length = NM_NAME_BYTES;
  if (length < 1 || length > NM_NAME_BYTES) return false;
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    if (i >= length) break;
    if ((void *)(value + i + 1) > (void *)end) return taken && i;
    bytes[i] = value[i];
    if (!bytes[i]) return taken && i;
  }
  return true;
}

static __always_inline bool control(struct bpf_sockopt *ctx) {
  struct nm_process process = {}, *known;
  struct nm_name_key key = {};
  union nm_whose whose = {};
  struct nm_owner *owner;
  struct nm_entry *entry;
  __u32 tgid, id;

  if (ctx->optname == NM_REGISTER) {
    if (!read_name(ctx, process.bytes)) return false;
    tgid = current_tgid();
    if (!tgid && ctx->sk) {
      /* The caller cannot be told here: the creator of the socket can. */
      owner = bpf_sk_storage_get(&nm_owners, ctx->sk, 0, 0);
      if (owner) tgid = owner->tgid;
    }
    if (!tgid) return false;
    process.kind = NM_KIND_SERVICE;
    process.flags = NM_FLAG_REGISTERED;
    if (nm_config.untracked) process.stamp = process_stamp();
    name_process(&process);
    if (!process.name) return false;
    if (bpf_map_update_elem(&nm_processes, &tgid, &process, BPF_ANY)) {
      COUNT(processes_full, 1);
      return false;
    }
    COUNT(registrations, 1);
    return true;
  }
  if (ctx->optname == NM_TAG || ctx->optname == NM_SERVICE) {
    if (!ctx->sk || !read_name(ctx, key.bytes)) return false;
    owner = bpf_sk_storage_get(&nm_owners, ctx->sk, 0, 0);
    if (!owner) return false;
    key.kind = ctx->optname == NM_TAG ? NM_KIND_DESTINATION : NM_KIND_SERVICE;
    key.length = text_length(key.bytes);
    id = name_id_for_user(&key, current_user());
    if (!id) return false;
    if (ctx->optname == NM_TAG) {
      owner->tag = id;
    } else {
      whose.service = id;
      whose.kind = NM_KIND_SERVICE;
      /* A name alone is no promise to publish: registering is. */
      tgid = current_tgid();
      if (!tgid) tgid = owner->tgid; /* as for NM_REGISTER */
      known = bpf_map_lookup_elem(&nm_processes, &tgid);
      if (known && known->name == id)
        whose.flags = known->flags & NM_FLAG_REGISTERED;
      *(volatile __u32 *)&owner->whose.word = whose.word;
    }
    /* Slot 0: the next packet finds the new series. */
    if (!owner->cookie) return true;
    entry = entry_of_cookie(owner->cookie);
    if (!entry) return true;
    bpf_spin_lock(&entry->lock);
    if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(owner->cookie))
      entry->socket.word = NM_COOKIE(owner->cookie);
    bpf_spin_unlock(&entry->lock);
    owner->socket.word = NM_WORD_COOKIE(owner->socket.word);
    return true;
  }
  return false;
}

SEC("cgroup/setsockopt")
int nm_setsockopt(struct bpf_sockopt *ctx) {
  if (ctx->level != NM_SOL) {
    /* The program sees one page at most. 5.10 fails the call with EFAULT
     * unless told, by 0, to take the caller's own buffer. */
    if ((long)ctx->optlen > (long)ctx->optval_end - (long)ctx->optval)
      ctx->optlen = 0;
    return PASS;
  }
  if (!control(ctx)) {
    COUNT(refused_controls, 1);
    return 0; /* EPERM */
  }
  ctx->optlen = -1; /* done: the kernel's own handler is not called */
  return PASS;
}

/* --- Processes ----------------------------------------------------------- */

/* Tracing links cannot be replaced, so an upgrade lets two programs run on
 * one event for a moment: each of these may run twice. */

/* The base name of the path that was executed: comm holds 15 bytes of it, the
 * rest stands on the new stack, which was written just now. */
static __always_inline void name_of_exec(struct task_struct *task, __u64 path,
                                         long length,
                                         struct nm_process *process) {
  __u8 chunk[NM_NAME_BYTES + 1] = {};
  __u64 start = path + (length > 0 ? length : 0), base = path;

  for (int i = 0; i < 15; i++) process->bytes[i] = task->comm[i];
  if (!process->bytes[14] || length < 0) return;
  /* Backwards to the last '/', by 64 bytes; a name has 255 at most. */
  for (int window = 0; window < 4; window++) {
    bool found = false;

    start = start > path + NM_NAME_BYTES ? start - NM_NAME_BYTES : path;
    if (nm_read_string(chunk, sizeof(chunk), start) <= 0) return;
    for (int i = 0; i < NM_NAME_BYTES; i++) {
      if (!chunk[i]) break;
      if (chunk[i] == '/') {
        base = start + i + 1;
        found = true;
      }
    }
    if (found || start == path) break;
  }
  if (nm_read_string(chunk, sizeof(chunk), base) <= 0) return;
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    if (!chunk[i]) break;
    process->bytes[i] = chunk[i];
  }
}

static __always_inline bool is_python(const __u8 *name) {
  return name[0] == 'p' && name[1] == 'y' && name[2] == 't' &&
         name[3] == 'h' && name[4] == 'o' && name[5] == 'n';
}

static __always_inline bool is_main_py(const __u8 *name) {
  return name[0] == 'm' && name[1] == 'a' && name[2] == 'i' &&
         name[3] == 'n' && name[4] == '.' && name[5] == 'p' &&
         name[6] == 'y' && !name[7];
}

/* Whether a string is a usual path of env(1). */
static __always_inline bool is_path_of_env(__u64 address) {
  __u8 path[16] = {};

  if (nm_read_string(path, sizeof(path), address) <= 0) return false;
  if (path[0] == '/' && path[1] == 'u' && path[2] == 's' && path[3] == 'r')
    return path[4] == '/' && path[5] == 'b' && path[6] == 'i' &&
           path[7] == 'n' && path[8] == '/' && path[9] == 'e' &&
           path[10] == 'n' && path[11] == 'v' && !path[12];
  return path[0] == '/' && path[1] == 'b' && path[2] == 'i' &&
         path[3] == 'n' && path[4] == '/' && path[5] == 'e' &&
         path[6] == 'n' && path[7] == 'v' && !path[8];
}

static __always_inline bool is_env(const __u8 *name) {
  return name[0] == 'e' && name[1] == 'n' && name[2] == 'v' && !name[3];
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(nm_exec, struct task_struct *task, int old_pid,
             struct linux_binprm *bprm) {
  struct nm_process process = {};
  __u8 inferred[NM_NAME_BYTES] = {};
  __u8(*service)[NM_NAME_BYTES];
  struct nm_process *before;
  struct mm_struct *mm = task->mm;
  __u32 tgid = task->tgid;
  __u64 path = bprm->exec;
  long length = nm_string_length(path);
  int how = NM_INFER_NOTHING;

  name_of_exec(task, path, length, &process);
  if (mm && is_python(process.bytes))
    how = nm_infer_python(mm->arg_start, mm->arg_end, inferred);
  else if (is_main_py(process.bytes) && length >= 0)
    how = nm_infer_script(path, length, inferred);

  classify(&process);
  before = bpf_map_lookup_elem(&nm_processes, &tgid);
  if (before && (before->flags & NM_PROCESS_BY_ENV)) {
    /* #!/usr/bin/env: the second of two, which keeps the script's name. */
    process.kind = before->kind;
    __builtin_memcpy(process.bytes, before->bytes, NM_NAME_BYTES);
  } else if (mm && !is_env(process.bytes) && is_path_of_env(mm->arg_start)) {
    process.flags = NM_PROCESS_BY_ENV; /* the first */
  }
  if (how == NM_INFER_MODULE) {
    process.kind = NM_KIND_SERVICE;
    __builtin_memcpy(process.bytes, inferred, NM_NAME_BYTES);
  } else if (how == NM_INFER_SCRIPT) {
    service = bpf_map_lookup_elem(&nm_binaries, inferred);
    if (service) {
      process.kind = NM_KIND_SERVICE;
      __builtin_memcpy(process.bytes, *service, NM_NAME_BYTES);
    }
  }
  if (bpf_map_update_elem(&nm_processes, &tgid, &process, BPF_ANY)) {
    bpf_map_delete_elem(&nm_processes, &tgid);
    COUNT(processes_full, 1);
  }
  return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(nm_fork, struct task_struct *parent, struct task_struct *child) {
  __u32 from = parent->tgid, to = child->tgid;
  struct nm_process *process;

  if (from == to) return 0; /* a thread */
  process = bpf_map_lookup_elem(&nm_processes, &from);
  if (!process) {
    bpf_map_delete_elem(&nm_processes, &to);
    return 0;
  }
  if (bpf_map_update_elem(&nm_processes, &to, process, BPF_ANY))
    COUNT(processes_full, 1);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(nm_exit, struct task_struct *task) {
  __u32 tgid = task->tgid;

  /* Decremented before the tracepoint: 0 when the last thread leaves. */
  if (task->signal->live.counter) return 0;
  bpf_map_delete_elem(&nm_processes, &tgid);
  return 0;
}

/* --- The loader's commands ------------------------------------------------ */

/* Adds all values but the first, which names the series. */
static __always_inline void add_values(__u64 *to, const __u64 *from,
                                       __u32 size) {
  *(volatile __u64 *)to = *(const volatile __u64 *)from;
  for (__u32 i = 1; i < size / sizeof(*to); i++)
    __sync_fetch_and_add(&to[i], from[i]);
}

static __noinline void merge_tcp(__u32 slot) {
  struct nm_tcp *from = bpf_map_lookup_elem(&nm_old_tcp, &slot);
  struct nm_tcp *to = tcp_of_slot(slot);

  if (from && to && from->kind)
    add_values((__u64 *)to, (__u64 *)from, sizeof(*to));
}

/* A program runs to its end whatever happens to the loader, so a cell is
 * either marked and added, or neither. */
static __noinline void merge_cell(__u32 index) {
  struct nm_cell *from = bpf_map_lookup_elem(&nm_old_counters, &index);
  struct nm_cell *to = bpf_map_lookup_elem(&nm_counters, &index);
  __u8 *merged = bpf_map_lookup_elem(&nm_merged, &index);

  if (!from || !to || !merged || *merged) return;
  *merged = 1;
  if (index % nm_config.num_cpus == 0) merge_tcp(index / nm_config.num_cpus);
  if (from->service) add_values((__u64 *)to, (__u64 *)from, sizeof(*to));
}

SEC("tc")
int nm_control(struct __sk_buff *skb) {
  struct nm_control request = {};
  struct nm_name_key key = {};
  struct nm_merge merge = {};
  struct nm_info *info;
  __u32 zero = 0;
  __u32 retired;

  if (bpf_skb_load_bytes(skb, 0, &request, sizeof(request))) return -1;
  info = bpf_map_lookup_elem(&nm_info, &zero);
  if (!info) return -1;
  switch (request.command) {
    case NM_COMMAND_INFO:
      /* A load that fails clears its buffer, which is the map here. */
      if (skb->len < sizeof(request) + sizeof(*info)) return -1;
      retired = info->retired;
      if (bpf_skb_load_bytes(skb, sizeof(request), info, sizeof(*info)))
        return -1;
      info->retired = retired;
      return 0;
    case NM_COMMAND_RETIRE:
      *(volatile __u32 *)&info->retired = 1;
      return 0;
    case NM_COMMAND_NAME:
      if (bpf_skb_load_bytes(skb, sizeof(request), &key, sizeof(key)))
        return -1;
      return name_id(&key);
    case NM_COMMAND_MERGE:
      if (bpf_skb_load_bytes(skb, sizeof(request), &merge, sizeof(merge)))
        return -1;
      for (__u32 i = 0; i < NM_MERGE_CELLS; i++) {
        if (i >= merge.count) break;
        merge_cell(merge.first + i);
      }
      return 0;
  }
  return -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
