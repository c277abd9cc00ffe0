/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Adding a packet to its flow.
 *
 * These programs run after the meter's on each packet: the kernel runs the programs of a
 * cgroup in the order in which they were attached. So the meter has decided already
 * whether and in which series the packet counts, its bytes and segments, and which part
 * of TCP's payload is new (decision.bpf.h). This file only finds its flow:
 *
 *   of a TCP socket       the connection, by the socket's cookie
 *   of a listener         the handshake with this peer: SYN, SYN-ACK, and the
 *                         acknowledgement. A connection that results takes it over
 *   of another socket     the socket and its peer: UDP, ICMP, SCTP, raw sockets
 *   all others            none: they are unrecorded, by series (struct nm_unrecorded)
 *
 * All bytes of a flow belong to one series. A flow that goes on in another series,
 * because it was tagged or takes another uplink, ends one record and begins the next.
 */
#ifndef NETMETER_BPF_FLOW_PACKET_BPF_H_
#define NETMETER_BPF_FLOW_PACKET_BPF_H_

#include "bpf/decision.bpf.h"
#include "bpf/flow_table.bpf.h"
#include "bpf/tcp.bpf.h"
#include "bpf/uplink.bpf.h"

/* A packet, and what is known about it. */
struct nm_followed {
  const struct nm_decision *packet;
  struct nm_flow_key key; /* kind 0: it has no flow */
  __u64 now_ns;
  __u32 settled; /* the slot that got the pending amounts; 0: none yet */
  __u32 reason;  /* if it has no flow: enum nm_unrecorded_reason */
};

/* --- Its flow --------------------------------------------------------------- */

/* Whether a packet that is not TCP's has a flow. A socket of the kernel, such as that of
 * echo replies, has no owner: any host could make flows of it. IPsec may hide the
 * socket's protocol. */
static __always_inline bool has_peers(struct bpf_sock *sk, __u64 cookie,
                                      const struct nm_decision *packet) {
  struct nm_stored_owner *stored;
  struct nm_owner *owner;

  if (packet->transport == NM_TRANSPORT_UDP && sk->type == SOCK_DGRAM)
    return true;
  owner = owner_of(sk, cookie, &stored);
  /* SCTP shuts an association down after its socket's end. */
  return owner && !(owner->flags & NM_OWNER_CLOSED) &&
         (sk->type == SOCK_RAW || sk->protocol == packet->protocol);
}

/* Puts the key of the packet's flow into *f, or the reason why it has none. */
static __always_inline void choose_flow(struct __sk_buff *skb,
                                        struct nm_followed *f,
                                        const enum nm_direction direction) {
  const struct nm_decision *packet = f->packet;
  const __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_flow_key *key = &f->key;
  struct nm_stored_owner *stored;
  struct nm_owner *owner;
  struct bpf_sock *sk = skb->sk;

  f->reason = NM_UNRECORDED_NO_FLOW;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return;
  key->protocol = packet->protocol;
  if (packet->transport == NM_TRANSPORT_TCP) {
    if (sk->type != SOCK_STREAM) return;
    if (sk->state != TCP_LISTEN) {
      key->kind = NM_FLOW_CONNECTION;
      key->cookie = cookie;
      return;
    }
    owner = owner_of(sk, cookie, &stored);
    key->kind = NM_FLOW_HANDSHAKE;
    key->network = owner ? owner->network : 0;
    key->local_port = sk->src_port;
  } else {
    if (!has_peers(sk, cookie, packet)) return;
    key->kind = NM_FLOW_PEER;
    key->cookie = cookie;
  }
  remote_address(skb, direction, key->remote);
  key->remote_port = packet->remote_port;
}

/* Whether a socket has its own address: it is bound to one, or connected. */
static __always_inline bool has_address(const __u32 local[4]) {
  return local[3] || local[0] || local[1] ||
         (local[2] && local[2] != bpf_htonl(0xffff));
}

/* Begins a connection that has no flow: sockops reported it when the table was full, or
 * did not report it, because it is older than these programs. Returns false if it is
 * over. */
static __always_inline bool begin_connection(struct bpf_sock *sk,
                                             const struct nm_owner *owner,
                                             struct nm_beginning *beginning) {
  if (sk->state == TCP_CLOSE || (owner && (owner->flags & NM_OWNER_CLOSED)))
    return false;
  beginning->flags = NM_FLOW_PARTIAL;
  if (owner && (owner->flags & NM_OWNER_END_IS_TOLD))
    beginning->flags |= NM_FLOW_TOLD;
  if (owner && (owner->flags & NM_OWNER_CONNECTED))
    beginning->flags |= NM_FLOW_OPENED;
  if (owner && (owner->flags & NM_OWNER_ESTABLISHED))
    beginning->flags |= NM_FLOW_ESTABLISHED;
  return true;
}

/* Makes the flow of a packet that has none. Returns false if it gets none after all. */
static __noinline int begin_by_packet(struct __sk_buff *skb,
                                      struct nm_followed *f, __u32 direction) {
  struct nm_beginning beginning = {};
  struct nm_stored_owner *stored;
  struct nm_flow_socket *sockets;
  struct nm_owner *owner;
  struct bpf_sock *sk;

  if (!skb || !f) return 0;
  sk = skb->sk;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  owner = owner_of(sk, bpf_get_socket_cookie(skb), &stored);
  ends_of_socket(sk, &beginning.ends);
  beginning.now_ns = bpf_ktime_get_ns();
  process_of_owner(owner, stored, bpf_get_socket_cookie(skb), &beginning);
  if (f->key.kind == NM_FLOW_CONNECTION) {
    f->reason = NM_UNRECORDED_LATE;
    if (!begin_connection(sk, owner, &beginning)) return 0;
  } else {
    if (f->key.kind == NM_FLOW_HANDSHAKE || direction == NM_INGRESS)
      beginning.flags = NM_FLOW_STRANGER;
    __builtin_memcpy(beginning.ends.remote, f->key.remote,
                     sizeof(beginning.ends.remote));
    beginning.ends.remote_port = f->key.remote_port;
    if (!has_address(beginning.ends.local))
      packet_address(skb, direction == NM_INGRESS, beginning.ends.local);
  }
  f->reason = NM_UNRECORDED_FULL;
  if (!begin_flow(&f->key, &beginning)) return 0;
  if (f->key.kind != NM_FLOW_PEER) return 1;
  sockets =
      bpf_sk_storage_get(&nm_flow_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (sockets) {
    sockets->key = f->key;
    __sync_fetch_and_add(&sockets->flows, 1);
  }
  return 1;
}

/* --- Adding ----------------------------------------------------------------- */

enum nm_added {
  NM_ADDED,
  NM_ADDED_LAST, /* it was the last packet of its connection */
  NM_ADD_MOVED,  /* its series is another one than the flow's */
  NM_ADD_NOT,    /* it has no flow: nm_followed.reason */
  /* The flow was pending before it: nm_followed.settled is needed. */
  NM_ADD_PENDING,
};

/* Under the lock: the series of the flow, if this packet may be added to it. */
static __always_inline enum nm_added match_series(struct nm_flow_state *state,
                                                  const struct nm_followed *f) {
  const __u32 pending = f->packet->slot & NM_SLOT_PENDING;
  const __u32 slot = f->packet->slot & NM_SLOT_MASK;

  if ((state->flags & NM_FLOW_PENDING) && !pending) {
    if (!f->settled) return NM_ADD_PENDING;
    state->slot = f->settled;
    state->flags &= ~NM_FLOW_PENDING;
  }
  if (!state->slot) {
    state->slot = slot;
    if (pending) state->flags |= NM_FLOW_PENDING;
  }
  return state->slot == slot ? NM_ADDED : NM_ADD_MOVED;
}

/* Under the lock: adds a sent packet. */
static __always_inline void add_sent_to_flow(struct nm_flow_state *state,
                                             const struct nm_decision *packet) {
  state->counts.tx_bytes += packet->bytes;
  state->counts.tx_packets += packet->segments;
  state->counts.tx_payload_bytes += packet->new_bytes;
  state->counts.tx_retransmit_bytes += packet->retransmitted;
  state->counts.rx_payload_bytes += packet->acked;
  if (packet->transport != NM_TRANSPORT_TCP) return;
  state->tx_tcp_flags |= packet->tcp_flags;
  if (packet->tcp_flags & TCP_FLAG_FIN) {
    if (!(state->flags & NM_FLOW_FIN_RECEIVED))
      state->flags |= NM_FLOW_FIN_OURS_FIRST;
    state->flags |= NM_FLOW_FIN_SENT;
  }
  if (is_own_reset(packet->tcp_flags)) state->flags |= NM_FLOW_RST_SENT;
}

/* Under the lock: adds a received packet. Bytes below the highest number received so far
 * were retransmitted, or overtaken. */
static __always_inline void add_received_to_flow(
    struct nm_flow_state *state, const struct nm_decision *packet) {
  __u32 first, end, retransmitted = 0;

  state->counts.rx_bytes += packet->bytes;
  state->counts.rx_packets += packet->segments;
  if (packet->transport != NM_TRANSPORT_TCP) {
    state->counts.rx_payload_bytes += packet->new_bytes;
    return;
  }
  state->rx_tcp_flags |= packet->tcp_flags;
  first = packet->seq + !!(packet->tcp_flags & TCP_FLAG_SYN);
  end = first + packet->new_bytes;
  if (packet->new_bytes) {
    if ((state->flags & NM_FLOW_RX_NUMBERS) && before(first, state->rx_end)) {
      retransmitted = state->rx_end - first;
      if (retransmitted > packet->new_bytes) retransmitted = packet->new_bytes;
    }
    state->counts.rx_retransmit_bytes += retransmitted;
    if (!(state->flags & NM_FLOW_RX_NUMBERS) || before(state->rx_end, end))
      state->rx_end = end;
    state->flags |= NM_FLOW_RX_NUMBERS;
  }
  if (packet->tcp_flags & TCP_FLAG_FIN) state->flags |= NM_FLOW_FIN_RECEIVED;
  if (packet->tcp_flags & TCP_FLAG_RST) state->flags |= NM_FLOW_RST_RECEIVED;
}

/* Fills in the name of a device and its namespace. */
static __always_inline void read_device(struct __sk_buff *skb,
                                        struct nm_flow_device *device) {
  struct net_device *found = device_of(skb);

  bpf_probe_read_kernel(device->name, sizeof(device->name), &found->name);
  if (bpf_core_field_exists(found->nd_net.net))
    device->network = BPF_CORE_READ(found, nd_net.net, ns.inum);
}

/* Adds the packet to its flow, if possible. */
static __always_inline enum nm_added try_add(
    struct __sk_buff *skb, struct nm_followed *f,
    const enum nm_direction direction) {
  struct nm_flow_device device = {.ifindex = skb->ifindex};
  struct nm_flow_state *state;
  struct nm_flow *flow;
  enum nm_added added;
  bool moved;
  const __u64 id = id_of_key(&f->key);

  flow = bpf_map_lookup_elem(&nm_flows, &f->key);
  if (!flow) {
    if (!begin_by_packet(skb, f, direction)) return NM_ADD_NOT;
    flow = bpf_map_lookup_elem(&nm_flows, &f->key);
    if (!flow) return NM_ADD_NOT;
  }
  /* No function may be called under the lock. */
  moved = *(volatile __u32 *)&flow->state.device.ifindex != device.ifindex;
  if (moved) read_device(skb, &device);
  bpf_spin_lock(&flow->lock);
  state = &flow->state;
  if (state->id != id || (state->flags & NM_FLOW_GONE)) {
    added = NM_ADD_NOT;
    f->reason = NM_UNRECORDED_LATE;
  } else {
    f->reason = NM_UNRECORDED_UPLINK;
    added = match_series(state, f);
  }
  if (added == NM_ADDED) {
    if (state->last_ns < f->now_ns) state->last_ns = f->now_ns;
    if (moved) state->device = device;
    if (direction == NM_EGRESS)
      add_sent_to_flow(state, f->packet);
    else
      add_received_to_flow(state, f->packet);
    if (direction == NM_EGRESS && (state->flags & NM_FLOW_CLOSED) &&
        (f->packet->tcp_flags & TCP_FLAG_RST))
      added = NM_ADDED_LAST;
  }
  bpf_spin_unlock(&flow->lock);
  return added;
}

static __noinline int add_to_flow(struct __sk_buff *skb, struct nm_followed *f,
                                  const enum nm_direction direction) {
  struct nm_ending ending = {};
  enum nm_added added;

  if (!skb || !f) return NM_ADD_NOT;
  added = direction == NM_EGRESS ? try_add(skb, f, NM_EGRESS)
                                 : try_add(skb, f, NM_INGRESS);
  if (added == NM_ADDED_LAST || added == NM_ADD_MOVED)
    ending.now_ns = bpf_ktime_get_ns();
  if (added == NM_ADDED_LAST) {
    ending.end = NM_END_CLOSED;
    end_flow(&f->key, &ending);
    return NM_ADDED;
  }
  if (added == NM_ADD_MOVED) {
    ending.end = NM_END_MOVED;
    ending.slot = f->packet->slot & NM_SLOT_MASK;
    end_flow(&f->key, &ending);
  }
  return added;
}

/* Counts a packet that has no flow. */
static __noinline int add_packet_to_rest(const struct nm_followed *f,
                                         __u32 direction) {
  const struct nm_decision *packet;
  struct nm_flow_counts counts = {};

  if (!f) return 0;
  packet = f->packet;
  if (direction == NM_EGRESS) {
    counts.tx_bytes = packet->bytes;
    counts.tx_packets = packet->segments;
    counts.tx_payload_bytes = packet->new_bytes;
    counts.tx_retransmit_bytes = packet->retransmitted;
    counts.rx_payload_bytes = packet->acked;
  } else {
    counts.rx_bytes = packet->bytes;
    counts.rx_packets = packet->segments;
    if (packet->transport != NM_TRANSPORT_TCP)
      counts.rx_payload_bytes = packet->new_bytes;
  }
  return add_rest(packet->slot & NM_SLOT_MASK, 0, f->reason, 0, &counts);
}

/* --- All of it --------------------------------------------------------------- */

/* The slot that got the pending amounts of the packet's connection; 0: none yet. */
static __noinline __u32 settled_by_now(struct __sk_buff *skb) {
  struct nm_stored_owner *stored;
  struct nm_socket *socket;
  struct nm_owner *owner;
  struct bpf_sock *sk;
  __u64 cookie;

  if (!skb) return 0;
  cookie = bpf_get_socket_cookie(skb);
  sk = skb->sk;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  owner = owner_of(sk, cookie, &stored);
  if (!owner || !owner->pending_service) return 0;
  socket = state_of_socket(stored, cookie);
  return socket && socket->wire_protocol ? 0 : settled_slot(owner);
}

/* Reading the clock takes a fifth of the time of a packet. A connection's is as of the
 * kernel's last tick: only for one that is still open it is the end of the record. */
static __always_inline __u64 time_of_packet(__u32 kind) {
  return kind == NM_FLOW_CONNECTION &&
                 bpf_core_enum_value_exists(enum bpf_func_id,
                                            BPF_FUNC_ktime_get_coarse_ns)
             ? bpf_ktime_get_coarse_ns()
             : bpf_ktime_get_ns();
}

static __always_inline void follow_counted(struct __sk_buff *skb,
                                           const struct nm_decision *packet,
                                           const enum nm_direction direction) {
  struct nm_followed f = {.packet = packet};
  int added;

  choose_flow(skb, &f, direction);
  f.now_ns = time_of_packet(f.key.kind);
  if (f.key.kind) {
    added = add_to_flow(skb, &f, direction);
    if (added == NM_ADD_PENDING) {
      f.settled = settled_by_now(skb);
      if (f.settled) added = add_to_flow(skb, &f, direction);
    }
    /* Its record is written, and the next part begins. */
    if (added == NM_ADD_MOVED) added = add_to_flow(skb, &f, direction);
    if (added == NM_ADDED) return;
  }
  add_packet_to_rest(&f, direction);
}

static __always_inline void follow_packet(struct __sk_buff *skb,
                                          const enum nm_direction direction) {
  struct nm_decisions *all = decisions_of_cpu();
  __u32 number;

  if (!all) return;
  number = find_decision(all, skb);
  if (number >= NM_DECISIONS) {
    COUNT_FLOWS(unrecorded_full, 1);
    return;
  }
  if (all->decisions[number].slot)
    follow_counted(skb, &all->decisions[number], direction);
  barrier();
  if (all->waiting[number]) all->waiting[number]--;
}

#endif /* NETMETER_BPF_FLOW_PACKET_BPF_H_ */
