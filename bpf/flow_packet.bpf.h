/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Adding a packet to its flow.
 *
 * These programs run after the meter's on each packet: the kernel runs the programs of a
 * cgroup in the order in which they were attached. So the meter has already found the
 * packet's series, and this file reads the result. It is the slot kept with the socket.
 * If none is kept, this file asks series.bpf.h again, without making anything. The
 * meter's own headers tell the packet's bytes and segments, whether it is a duplicate,
 * and which part of TCP's payload is new.
 *
 * The flow of a packet:
 *
 *   of a TCP socket       the connection, by the socket's cookie
 *   of a listener         the handshake with this peer: SYN, SYN-ACK, and the
 *                         acknowledgement. A connection that results takes it over
 *   of another socket     the socket and its peer: UDP, ICMP, SCTP, raw sockets
 *   all others            none: they are unrecorded, by series (struct nm_unrecorded)
 *
 * The flow's numbers tell which part of TCP's payload is new. If the table has no room
 * for a connection, its numbers are kept with its socket (struct nm_flow_waiting), and go
 * into the flow that begins when there is room.
 *
 * All bytes of a flow belong to one series. A flow that goes on in another series,
 * because it was tagged or takes another uplink, ends one record and begins the next.
 */
#ifndef NETMETER_BPF_FLOW_PACKET_BPF_H_
#define NETMETER_BPF_FLOW_PACKET_BPF_H_

#include "bpf/count.bpf.h"
#include "bpf/flow_table.bpf.h"

/* A packet, and what is known about it. */
struct nm_followed {
  struct nm_packet packet;
  struct nm_flow_key key; /* kind 0: it has no flow */
  __u64 now_ns;
  __u32 slot;          /* of its series, with NM_SLOT_PENDING */
  __u32 settled;       /* the slot that got the pending amounts; 0: none yet */
  __u32 reason;        /* if it has no flow: enum nm_unrecorded_reason */
  __u32 retransmitted; /* TCP: the retransmitted part of its payload */
  __u32 acked;         /* TCP: received payload that it acknowledges */
};

/* --- Its series ------------------------------------------------------------ */

/* The slot in which the meter has just counted this packet, as slot_by_head(). `kept` is
 * the slot kept with its socket. */
NM_GLOBAL __u32 nm_flow_series(struct __sk_buff *skb, __u64 word, __u32 kept,
                               __u32 direction) {
  struct nm_search search = {.traits.word = word};
  struct nm_cell *cell = kept ? cell_of_slot(kept) : NULL;
  const __u64 cookie = bpf_get_socket_cookie(skb);
  struct nm_stored_owner *stored = NULL;
  struct nm_owner *owner = NULL;
  struct bpf_sock *sk = skb->sk;
  struct nm_socket *socket;
  union nm_head head;

  if (cell && is_slot_of(cell, search.traits))
    return kept | (cell->kind == NM_KIND_PENDING ? NM_SLOT_PENDING : 0);
  if (sk) sk = bpf_sk_fullsock(sk);
  if (sk) owner = owner_of(sk, cookie, &stored);
  if (!owner) return slot_by_head(head_of_unattributed(search.traits).word);
  socket = state_of_socket(stored, cookie);
  head = head_of_packet(skb, owner, !!stored, &search, socket, direction,
                        /*writes=*/false);
  return slot_by_head(head.word);
}

/* The slot of head_of_hidden(), or `slot`. */
NM_GLOBAL __u32 nm_flow_of_hidden(__u32 slot, __u32 transport) {
  struct nm_cell *cell = cell_of_slot(slot & NM_SLOT_MASK);

  if (!cell) return slot;
  return slot_by_head(head_of_hidden(cell, transport)) & NM_SLOT_MASK;
}

/* --- Its flow --------------------------------------------------------------- */

/* Whether a packet that is not TCP's has a flow. A socket of the kernel, such as that of
 * echo replies, has no owner: any host could make flows of it. IPsec may hide the
 * socket's protocol. */
static __always_inline bool has_peers(struct bpf_sock *sk,
                                      const struct nm_owner *owner,
                                      const struct nm_packet *packet) {
  if (packet->transport == NM_TRANSPORT_UDP && sk->type == SOCK_DGRAM)
    return true;
  /* SCTP shuts an association down after its socket's end. */
  return owner && !(owner->flags & NM_OWNER_CLOSED) &&
         (sk->type == SOCK_RAW || sk->protocol == packet->protocol);
}

/* Puts the key of the packet's flow into *f, or the reason why it has none. */
static __always_inline void choose_flow(struct __sk_buff *skb,
                                        struct bpf_sock *sk,
                                        const struct nm_owner *owner,
                                        struct nm_followed *f,
                                        const enum nm_direction direction) {
  struct nm_flow_key *key = &f->key;

  f->reason = NM_UNRECORDED_NO_FLOW;
  if (!sk) return;
  key->protocol = f->packet.protocol;
  if (f->packet.transport == NM_TRANSPORT_TCP) {
    if (sk->type != SOCK_STREAM) return;
    if (sk->state != TCP_LISTEN) {
      key->kind = NM_FLOW_CONNECTION;
      key->cookie = bpf_get_socket_cookie(skb);
      return;
    }
    key->kind = NM_FLOW_HANDSHAKE;
    key->network = owner ? owner->network : 0;
    key->local_port = sk->src_port;
  } else {
    if (!has_peers(sk, owner, &f->packet)) return;
    key->kind = NM_FLOW_PEER;
    key->cookie = bpf_get_socket_cookie(skb);
  }
  remote_address(skb, direction, key->remote);
  key->remote_port = direction == NM_EGRESS ? f->packet.dport : f->packet.sport;
}

/* Whether a socket has its own address: it is bound to one, or connected. */
static __always_inline bool has_address(const __u32 local[4]) {
  return local[3] || local[0] || local[1] ||
         (local[2] && local[2] != bpf_htonl(0xffff));
}

/* Begins a connection that has no flow. Returns false if it gets none. */
static __always_inline bool begin_connection(struct bpf_sock *sk,
                                             struct nm_owner *owner,
                                             struct nm_followed *f,
                                             __u32 direction,
                                             struct nm_flow_waiting *waiting,
                                             struct nm_beginning *beginning) {
  /* A connection that sockops did not report is older than these programs, or over. */
  const bool over =
      sk->state == TCP_CLOSE || (owner && (owner->flags & NM_OWNER_CLOSED));

  f->reason = waiting ? NM_UNRECORDED_FULL : NM_UNRECORDED_LATE;
  if (over) return false;
  /* Only a sent packet may move its numbers, because only sent packets change them. */
  if (waiting && direction == NM_INGRESS) return false;
  beginning->flags = NM_FLOW_PARTIAL;
  if (!waiting || waiting->preexisting) beginning->flags |= NM_FLOW_PREEXISTING;
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
  struct nm_flow_waiting *waiting = NULL;
  const struct nm_socket *numbers = NULL;

  if (!skb || !f) return 0;
  sk = skb->sk;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  owner = owner_of(sk, bpf_get_socket_cookie(skb), &stored);
  ends_of_socket(sk, &beginning.ends);
  beginning.now_ns = f->now_ns;
  process_of_owner(owner, stored, bpf_get_socket_cookie(skb), &beginning);
  if (f->key.kind == NM_FLOW_CONNECTION) {
    waiting = bpf_sk_storage_get(&nm_flow_waiting, sk, 0, 0);
    if (!begin_connection(sk, owner, f, direction, waiting, &beginning))
      return 0;
    if (waiting)
      numbers = &waiting->numbers;
    else if (direction == NM_INGRESS)
      numbers = state_of_socket(stored, f->key.cookie);
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
  if (!begin_flow(&f->key, &beginning, numbers)) return 0;
  if (waiting) bpf_sk_storage_delete(&nm_flow_waiting, sk);
  if (f->key.kind != NM_FLOW_PEER) return 1;
  sockets =
      bpf_sk_storage_get(&nm_flow_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (sockets) {
    sockets->key = f->key;
    __sync_fetch_and_add(&sockets->flows, 1);
  }
  return 1;
}

/* --- Its payload ------------------------------------------------------------ */

/* Finds the part of a sent packet's payload that was sent before, and the payload that it
 * acknowledges. The caller holds the socket's lock, and calls once for each packet. */
static __always_inline void split_sent(struct __sk_buff *skb,
                                       struct nm_followed *f,
                                       struct bpf_tcp_sock *tcp,
                                       struct nm_socket *numbers,
                                       bool preexisting) {
  if ((f->packet.tcp_flags & TCP_FLAG_RST) &&
      !is_own_reset(f->packet.tcp_flags))
    return;
  if (skb->sk && is_of_request(f->packet.tcp_flags, skb->sk->state)) return;
  begin_sent(tcp, numbers, f->packet.seq, preexisting);
  f->retransmitted =
      f->packet.payload - new_payload(numbers, f->packet.seq, f->packet.payload,
                                      f->packet.tcp_flags);
  if (!(f->packet.tcp_flags & TCP_FLAG_ACK)) return;
  begin_received(tcp, numbers, f->packet.ack, preexisting);
  f->acked = acked_payload(skb, numbers, f->packet.ack);
}

/* Splits the payload of a packet whose connection found no room. */
static __noinline int split_waiting(struct __sk_buff *skb,
                                    struct nm_followed *f, __u32 direction) {
  struct nm_flow_waiting *waiting, first = {.preexisting = 1};
  struct nm_socket *numbers = NULL;
  struct bpf_sock *sk;

  if (!skb || !f) return 0;
  sk = skb->sk;
  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  /* Only sent packets change the meter's numbers, so they are from before this packet. */
  if (direction == NM_INGRESS)
    numbers = state_of_socket(stored_owner(sk), f->key.cookie);
  if (numbers) first.numbers = *numbers;
  waiting = bpf_sk_storage_get(&nm_flow_waiting, sk, &first,
                               BPF_SK_STORAGE_GET_F_CREATE);
  if (!waiting) {
    COUNT_FLOWS(unrecorded_full, 1);
    return 0;
  }
  if (direction == NM_INGRESS)
    note_fin(&waiting->numbers, f->packet.seq + f->packet.payload,
             f->packet.tcp_flags);
  else
    split_sent(skb, f, bpf_tcp_sock(sk), &waiting->numbers,
               waiting->preexisting);
  return 0;
}

/* --- Adding ----------------------------------------------------------------- */

enum nm_added {
  NM_ADDED,
  NM_ADDED_LAST, /* it was the last packet of its connection */
  NM_ADD_MOVED,  /* its series is another one than the flow's */
  NM_ADD_NOT,    /* it has no flow: nm_followed.reason */
};

/* Under the lock: the series of the flow, if this packet may be added to it. */
static __always_inline enum nm_added match_series(struct nm_flow_state *state,
                                                  const struct nm_followed *f) {
  const __u32 slot = f->slot & NM_SLOT_MASK;

  if ((state->flags & NM_FLOW_PENDING) && !(f->slot & NM_SLOT_PENDING)) {
    if (!f->settled) return NM_ADD_NOT;
    state->slot = f->settled;
    state->flags &= ~NM_FLOW_PENDING;
  }
  if (!state->slot) {
    state->slot = slot;
    if (f->slot & NM_SLOT_PENDING) state->flags |= NM_FLOW_PENDING;
  }
  return state->slot == slot ? NM_ADDED : NM_ADD_MOVED;
}

/* Under the lock: adds a sent packet. */
static __always_inline void add_sent_to_flow(struct nm_flow_state *state,
                                             const struct nm_followed *f) {
  const struct nm_packet *packet = &f->packet;

  state->counts.tx_bytes += packet->bytes;
  state->counts.tx_packets += packet->segments;
  state->counts.tx_payload_bytes += packet->payload - f->retransmitted;
  state->counts.tx_retransmit_bytes += f->retransmitted;
  state->counts.rx_payload_bytes += f->acked;
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
    struct nm_flow_state *state, const struct nm_packet *packet) {
  __u32 first, end, retransmitted = 0;

  state->counts.rx_bytes += packet->bytes;
  state->counts.rx_packets += packet->segments;
  if (packet->transport != NM_TRANSPORT_TCP) {
    state->counts.rx_payload_bytes += packet->payload;
    return;
  }
  state->rx_tcp_flags |= packet->tcp_flags;
  first = packet->seq + !!(packet->tcp_flags & TCP_FLAG_SYN);
  end = first + packet->payload;
  if (packet->payload) {
    if ((state->flags & NM_FLOW_RX_NUMBERS) && before(first, state->rx_end)) {
      retransmitted = state->rx_end - first;
      if (retransmitted > packet->payload) retransmitted = packet->payload;
    }
    state->counts.rx_retransmit_bytes += retransmitted;
    if (!(state->flags & NM_FLOW_RX_NUMBERS) || before(state->rx_end, end))
      state->rx_end = end;
    state->flags |= NM_FLOW_RX_NUMBERS;
  }
  if (packet->tcp_flags & TCP_FLAG_FIN) {
    state->flags |= NM_FLOW_FIN_RECEIVED;
  }
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
  struct bpf_tcp_sock *tcp = NULL;
  struct nm_flow *flow;
  struct bpf_sock *sk;
  enum nm_added added;
  bool moved;
  const __u64 id = id_of_key(&f->key);

  flow = bpf_map_lookup_elem(&nm_flows, &f->key);
  if (!flow) {
    if (!begin_by_packet(skb, f, direction)) return NM_ADD_NOT;
    flow = bpf_map_lookup_elem(&nm_flows, &f->key);
    if (!flow) return NM_ADD_NOT;
  }
  if (direction == NM_EGRESS && f->key.kind == NM_FLOW_CONNECTION) {
    sk = skb->sk;
    if (sk) sk = bpf_sk_fullsock(sk);
    if (sk) tcp = bpf_tcp_sock(sk);
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
    /* If it is not added, these numbers go with it to the unrecorded packets. */
    if (added != NM_ADD_MOVED && tcp)
      split_sent(skb, f, tcp, &state->numbers,
                 !!(state->flags & NM_FLOW_PREEXISTING));
    if (direction == NM_INGRESS && f->packet.transport == NM_TRANSPORT_TCP)
      note_fin(&state->numbers, f->packet.seq + f->packet.payload,
               f->packet.tcp_flags);
  }
  if (added == NM_ADDED) {
    if (state->last_ns < f->now_ns) state->last_ns = f->now_ns;
    if (moved) state->device = device;
    if (direction == NM_EGRESS)
      add_sent_to_flow(state, f);
    else
      add_received_to_flow(state, &f->packet);
    if (direction == NM_EGRESS && (state->flags & NM_FLOW_CLOSED) &&
        (f->packet.tcp_flags & TCP_FLAG_RST))
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
  ending.now_ns = f->now_ns;
  if (added == NM_ADDED_LAST) {
    ending.end = NM_END_CLOSED;
    end_flow(&f->key, &ending);
    return NM_ADDED;
  }
  if (added == NM_ADD_MOVED) {
    ending.end = NM_END_MOVED;
    ending.slot = f->slot & NM_SLOT_MASK;
    end_flow(&f->key, &ending);
  }
  return added;
}

/* Counts a packet that has no flow. */
static __noinline int add_packet_to_rest(struct __sk_buff *skb,
                                         struct nm_followed *f,
                                         __u32 direction) {
  struct nm_flow_counts counts = {};

  if (!f) return 0;
  if (f->reason == NM_UNRECORDED_FULL && f->key.kind == NM_FLOW_CONNECTION)
    split_waiting(skb, f, direction);
  if (direction == NM_EGRESS) {
    counts.tx_bytes = f->packet.bytes;
    counts.tx_packets = f->packet.segments;
    counts.tx_payload_bytes = f->packet.payload - f->retransmitted;
    counts.tx_retransmit_bytes = f->retransmitted;
    counts.rx_payload_bytes = f->acked;
  } else {
    counts.rx_bytes = f->packet.bytes;
    counts.rx_packets = f->packet.segments;
    if (f->packet.transport != NM_TRANSPORT_TCP)
      counts.rx_payload_bytes = f->packet.payload;
  }
  return add_rest(f->slot & NM_SLOT_MASK, f->reason, 0, &counts);
}

/* --- All of it --------------------------------------------------------------- */

static __always_inline void follow_packet(struct __sk_buff *skb,
                                          const enum nm_direction direction) {
  struct nm_followed f = {};
  __u64 cookie = bpf_get_socket_cookie(skb);
  __u32 kept = 0, network = 0;
  struct nm_stored_owner *stored = NULL;
  struct nm_socket *socket = NULL;
  struct nm_owner *owner = NULL;
  struct bpf_sock *sk = skb->sk;
  union nm_traits traits;
  bool waits = false;
  int added;

  if (!is_on_path(skb, direction, &f.packet)) return;
  parse_packet(skb, direction, &f.packet);
  if (sk) sk = bpf_sk_fullsock(sk);
  if (sk) owner = owner_of(sk, cookie, &stored);
  socket = state_of_socket(stored, cookie);
  if (socket) {
    kept = NM_WORD_SLOT(*(volatile __u64 *)&socket->word);
    network = socket->network;
    waits = socket->wire_protocol;
  }
  if (nm_config.uplinks && f.packet.path == NM_PATH_DIRECT)
    f.packet.path = nm_find_path(skb, network, 0);
  traits = traits_of(&f.packet);
  traits.ruled = may_match_a_rule(skb, &traits, direction);
  if (direction == NM_INGRESS && nm_is_duplicate(skb, traits.word, kept))
    return;
  if (traits.ruled) kept = 0;
  if (direction == NM_EGRESS) traits.word = nm_unhide(skb, traits.word);
  f.slot = nm_flow_series(skb, traits.word, kept, direction);
  f.now_ns = bpf_ktime_get_ns();
  if (traits.hidden) f.slot = nm_flow_of_hidden(f.slot, f.packet.transport);
  choose_flow(skb, sk, owner, &f, direction);
  if (f.key.kind) {
    if (owner && !waits && owner->pending_service)
      f.settled = settled_slot(owner);
    added = add_to_flow(skb, &f, direction);
    /* Its record is written, and the next part begins. */
    if (added == NM_ADD_MOVED) added = add_to_flow(skb, &f, direction);
    if (added == NM_ADDED) return;
  }
  add_packet_to_rest(skb, &f, direction);
}

#endif /* NETMETER_BPF_FLOW_PACKET_BPF_H_ */
