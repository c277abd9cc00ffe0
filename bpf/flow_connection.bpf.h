/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The beginning and the end of a connection, as sockops reports them.
 *
 * The last packet of a connection does not always come before its end. A socket that is
 * closed with unread data, or by SO_LINGER with 0, is closed first and sends its RST
 * after that (tcp_close(), tcp_disconnect()). Then the record waits for the RST. If none
 * comes, user space ends the flow a moment later.
 */
#ifndef NETMETER_BPF_FLOW_CONNECTION_BPF_H_
#define NETMETER_BPF_FLOW_CONNECTION_BPF_H_

#include "bpf/flow_table.bpf.h"
#include "bpf/tcp.bpf.h"

static __always_inline void key_of_connection(struct bpf_sock_ops *ops,
                                              struct nm_flow_key *key) {
  key->cookie = bpf_get_socket_cookie(ops);
  key->kind = NM_FLOW_CONNECTION;
  key->protocol = IPPROTO_TCP;
}

/* Moves the packets between the listener and the peer into the connection. */
static __noinline int take_handshake(const struct nm_flow_key *from,
                                     const struct nm_flow_key *to) {
  struct nm_flow_counts counts;
  struct nm_flow_device device;
  struct nm_flow_state *state;
  struct nm_flow *flow;
  bool taken = false;
  __u8 sent, received; /* flags of TCP */
  __u64 start, id;
  __u32 slot, part;

  if (!from || !to) return 0;
  flow = bpf_map_lookup_elem(&nm_flows, from);
  if (!flow) return 0;
  id = id_of_key(from);
  bpf_spin_lock(&flow->lock);
  state = &flow->state;
  counts = state->counts;
  device = state->device;
  sent = state->tx_tcp_flags;
  received = state->rx_tcp_flags;
  start = state->start_ns;
  slot = state->slot;
  part = state->part;
  if (state->id == id && !(state->flags & NM_FLOW_GONE)) {
    taken = true;
    state->flags |= NM_FLOW_GONE;
  }
  bpf_spin_unlock(&flow->lock);
  if (!taken) return 0;
  count_gone(NM_FLOW_STRANGER);
  bpf_map_delete_elem(&nm_flows, from);
  id = id_of_key(to);
  taken = false;
  flow = bpf_map_lookup_elem(&nm_flows, to);
  if (flow) {
    bpf_spin_lock(&flow->lock);
    state = &flow->state;
    if (state->id == id && !(state->flags & NM_FLOW_GONE)) {
      taken = true;
      if (state->start_ns > start) state->start_ns = start;
      if (!state->slot) state->slot = slot;
      state->part += part;
      if (!state->device.ifindex) state->device = device;
      state->tx_tcp_flags |= sent;
      state->rx_tcp_flags |= received;
      /* A packet of the connection may have come before, on another CPU. */
      state->counts.tx_bytes += counts.tx_bytes;
      state->counts.rx_bytes += counts.rx_bytes;
      state->counts.tx_packets += counts.tx_packets;
      state->counts.rx_packets += counts.rx_packets;
      state->counts.tx_payload_bytes += counts.tx_payload_bytes;
      state->counts.rx_payload_bytes += counts.rx_payload_bytes;
      state->counts.tx_retransmit_bytes += counts.tx_retransmit_bytes;
      state->counts.rx_retransmit_bytes += counts.rx_retransmit_bytes;
    }
    bpf_spin_unlock(&flow->lock);
  }
  if (!taken) add_rest(slot, 0, NM_UNRECORDED_FULL, 0, &counts);
  return taken;
}

/* The handshake is done, also if both ends connected at once. */
static __always_inline void establish(const struct nm_flow_key *key) {
  struct nm_flow *flow = bpf_map_lookup_elem(&nm_flows, key);
  __u64 now = bpf_ktime_get_ns();

  if (!flow) return;
  bpf_spin_lock(&flow->lock);
  flow->state.flags |= NM_FLOW_ESTABLISHED;
  flow->state.established_ns = now;
  bpf_spin_unlock(&flow->lock);
}

/* Not inline, as the functions below, because the stack is scarce. */
static __noinline int flow_is_established(struct bpf_sock_ops *ops) {
  struct nm_flow_key key = {};

  key_of_connection(ops, &key);
  establish(&key);
  return 0;
}

static __noinline int flow_begins(struct bpf_sock_ops *ops,
                                  struct bpf_sock *sk) {
  const bool accepted = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
  const __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_stored_owner *stored;
  struct nm_owner *owner = owner_of(sk, cookie, &stored);
  struct nm_beginning beginning = {};
  struct nm_ending ending = {};
  struct nm_flow_key key = {};

  /* Asks for the report of the end. */
  if (bpf_sock_ops_cb_flags_set(
          ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG))
    return 0;
  key_of_connection(ops, &key);
  ends_of_socket(sk, &beginning.ends);
  beginning.now_ns = bpf_ktime_get_ns();
  process_of_owner(owner, stored, cookie, &beginning);
  beginning.flags =
      NM_FLOW_TOLD |
      (accepted ? NM_FLOW_ACCEPTED | NM_FLOW_ESTABLISHED : NM_FLOW_OPENED);
  /* A socket that connects again: its former connection is over. */
  if (begin_flow(&key, &beginning) == NM_WAS_THERE && !accepted) {
    ending.now_ns = beginning.now_ns;
    ending.end = NM_END_CLOSED;
    end_flow(&key, &ending);
    begin_flow(&key, &beginning);
  }
  return accepted;
}

/* A listener has accepted a connection, whose flow has begun. */
static __noinline int flow_is_accepted(struct bpf_sock_ops *ops,
                                       struct bpf_sock *sk) {
  struct nm_stored_owner *stored;
  struct nm_owner *owner = owner_of(sk, bpf_get_socket_cookie(ops), &stored);
  struct nm_flow_key key = {}, handshake = {};
  struct nm_ends ends;

  key_of_connection(ops, &key);
  establish(&key);
  ends_of_socket(sk, &ends);
  handshake.kind = NM_FLOW_HANDSHAKE;
  handshake.protocol = IPPROTO_TCP;
  handshake.network = owner ? owner->network : 0;
  handshake.local_port = ends.local_port;
  handshake.remote_port = ends.remote_port;
  __builtin_memcpy(handshake.remote, ends.remote, sizeof(handshake.remote));
  return take_handshake(&handshake, &key);
}

/* Whether a RST may come after the end: nothing has failed, and the connection was not
 * closed by both ends before. A RST that TCP accepted is an error. A RST that it did not
 * accept may come from anywhere. */
static __always_inline bool may_send_rst(__u32 flags, __u32 state,
                                         __u32 error) {
  if (error || (flags & NM_FLOW_RST_SENT)) return false;
  if ((flags & NM_FLOW_RST_RECEIVED) && !nm_config.reads_errors) return false;
  return may_send_reset(state, flags & NM_FLOW_FIN_RECEIVED);
}

static __noinline int flow_ends(struct bpf_sock_ops *ops, struct bpf_sock *sk) {
  struct nm_stored_owner *stored;
  struct nm_owner *owner = owner_of(sk, bpf_get_socket_cookie(ops), &stored);
  const __u32 last = ops->args[0], error = error_of_socket(sk);
  const __u32 srtt = ops->srtt_us >> 3, retransmits = ops->total_retrans;
  const __u32 min_rtt = ops->rtt_min;
  struct nm_ending ending = {};
  struct nm_flow_key key = {};
  struct nm_flow_state *state;
  struct nm_flow *flow;
  __u32 settled, flags;

  key_of_connection(ops, &key);
  flow = bpf_map_lookup_elem(&nm_flows, &key);
  if (!flow) return 0;
  /* The meter's program has run before, and has settled the pending amounts. */
  settled = owner && owner->pending_service ? settled_slot(owner) : 0;
  ending.now_ns = bpf_ktime_get_ns();
  ending.end = NM_END_CLOSED;
  bpf_spin_lock(&flow->lock);
  state = &flow->state;
  state->closed_ns = ending.now_ns;
  state->last_state = last;
  state->error = error;
  state->srtt_us = srtt;
  state->min_rtt_us = min_rtt;
  state->retransmits = retransmits;
  if ((state->flags & NM_FLOW_PENDING) && settled) {
    state->slot = settled;
    state->flags &= ~NM_FLOW_PENDING;
  }
  state->flags |= NM_FLOW_CLOSED;
  flags = state->flags;
  bpf_spin_unlock(&flow->lock);
  if (!may_send_rst(flags, last, error)) end_flow(&key, &ending);
  return 0;
}

#endif /* NETMETER_BPF_FLOW_CONNECTION_BPF_H_ */
