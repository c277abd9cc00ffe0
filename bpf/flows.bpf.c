// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * The kernel part of `netmeter flows`: a record of each connection that ends. It is an
 * object of its own. `netmeter flows` loads it and attaches it beside the meter's
 * programs while it runs; nothing of it is pinned.
 *
 * The meter leaves what it decides about each packet while a follower runs
 * (decision.bpf.h). This object shares that and some more of the meter's maps: owners,
 * the socket table, series, and the configuration, which it only reads. Its own maps are
 * those of flow_table.bpf.h. README.md has the details.
 */
#define __BPF__ 1
#include "bpf/flow_connection.bpf.h"
#include "bpf/flow_forward.bpf.h"
#include "bpf/flow_packet.bpf.h"

SEC("cgroup_skb/ingress")
int nm_flow_rx(struct __sk_buff *skb) {
  follow_packet(skb, NM_INGRESS);
  return PASS;
}

SEC("cgroup_skb/egress")
int nm_flow_tx(struct __sk_buff *skb) {
  follow_packet(skb, NM_EGRESS);
  return PASS;
}

SEC("sockops")
int nm_flow_sockops(struct bpf_sock_ops *ops) {
  struct bpf_sock *sk = ops->sk;

  if (!sk) return 1;
  switch (ops->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
      if (flow_begins(ops, sk)) flow_is_accepted(ops, sk);
      break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
      flow_is_established(ops);
      break;
    case BPF_SOCK_OPS_STATE_CB:
      if (ops->args[1] == TCP_CLOSE && ops->args[0] != TCP_LISTEN)
        flow_ends(ops, sk);
      break;
  }
  return 1;
}

/* A socket other than TCP's was closed. If it had several peers, user space ends their
 * flows. */
SEC("cgroup/sock_release")
int nm_flow_release(struct bpf_sock *sk) {
  struct nm_flow_socket *sockets =
      bpf_sk_storage_get(&nm_flow_sockets, sk, 0, 0);
  struct nm_ending ending = {};
  struct nm_flow_event *event;
  struct nm_flow_key key;

  if (!sockets) return PASS;
  key = sockets->key;
  ending.now_ns = bpf_ktime_get_ns();
  ending.end = NM_END_RELEASED;
  end_flow(&key, &ending);
  if (sockets->flows <= 1) return PASS;
  event = bpf_ringbuf_reserve(&nm_flow_events, sizeof(*event), 0);
  if (!event) return PASS; /* they end by the time-out */
  event->type = NM_EVENT_SOCKET;
  event->end = NM_END_RELEASED;
  event->cookie = key.cookie;
  event->now_ns = ending.now_ns;
  event->kind = NM_FLOW_PEER;
  event->protocol = key.protocol;
  bpf_ringbuf_submit(event, wakeup_of_reader());
  return PASS;
}

/* Loaded for `netmeter flows --forwarded`. */
SEC("netfilter")
int nm_flow_forward(struct bpf_nf_ctx *ctx) {
  follow_forwarded(ctx);
  return NF_ACCEPT;
}

/* Never attached: user space runs it by BPF_PROG_TEST_RUN, with a struct nm_flow_command
 * as packet. Returns whether the flow was ended. */
SEC("tc")
int nm_flow_end(struct __sk_buff *skb) {
  struct nm_flow_command command = {};
  struct nm_ending ending = {};

  if (bpf_skb_load_bytes(skb, 0, &command, sizeof(command))) return 0;
  ending.now_ns = bpf_ktime_get_ns();
  ending.last_ns = command.last_ns;
  ending.end = command.end;
  return end_flow(&command.key, &ending);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
