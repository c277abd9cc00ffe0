/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The life of a TCP connection, as sockops reports it. The kernel calls only for the
 * events in a socket's callback flags. The only chance to set STATE_CB, which reports the
 * end, is when a socket connects, listens or is accepted. Only a socket whose end will be
 * reported may have an entry of the table.
 *
 *   connect(2),      a new connection: new numbers, no name yet. The socket may have been
 *   listen(2)        another connection before
 *   handshake done   counted as opened, or accepted, in nm_tcp. If the series is not
 *                    known yet, the first packet outside of the pending series does it:
 *                    keep_slot()
 *   retransmitted    segments, and the expiries of the timer (RTO_CB, RETRANS_CB): the
 *                    kernel calls only if something was lost, so plain packets do not pay
 *                    for it
 *   closed           the state leaves the table; pending amounts are settled; it counts
 *                    as closed, or as failed, with its last round-trip time, and with the
 *                    sender of the RST, if there was one
 *
 * A connection counts as closed in the series in which it was counted as opened or
 * accepted, even if its name changed in between. So the difference is the number of open
 * connections. All these calls come with the socket's lock held.
 */
#ifndef NETMETER_BPF_CONNECTION_BPF_H_
#define NETMETER_BPF_CONNECTION_BPF_H_

#include "bpf/destination.bpf.h"
#include "bpf/mptcp.bpf.h"
#include "bpf/pending.bpf.h"
#include "bpf/tcp.bpf.h"

#define EPIPE 32
#define ECONNRESET 104

/* Whether a RST ends the connection: tcp_reset() in net/ipv4/tcp_input.c sets one of
 * these and then the state (Linux 5.10 to 7.2). The kernel calls it after it has checked
 * the numbers of a RST, and also when data comes for a closed socket: then this host
 * sends the RST, from no socket of the connection. tcp_disconnect() sets ECONNRESET, too,
 * but after the state. */
static __always_inline bool is_reset(struct bpf_sock *sk) {
  __u32 error;

  if (!nm_config.reads_errors) return false;
  error = error_of_socket(sk);
  return error == ECONNRESET || error == EPIPE;
}

/* The slot that is kept for a connection. 0: none, or the slot of the pending series. */
static __always_inline __u32 kept_slot(struct nm_socket *socket) {
  __u32 slot = socket ? NM_WORD_SLOT(*(volatile __u64 *)&socket->word) : 0;
  struct nm_tcp *tcp = slot ? tcp_of_slot(slot) : NULL;

  return tcp && tcp->kind != NM_KIND_PENDING ? slot : 0;
}

/* The handshake of a connection that this host opened is done. */
static __always_inline void on_established(struct bpf_sock_ops *ops,
                                           struct bpf_sock *sk) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  struct nm_socket *socket;
  __u32 slot;

  if (!owner || !(owner->flags & NM_OWNER_CONNECTED)) return;
  owner->flags |= NM_OWNER_ESTABLISHED;
  socket = state_of_socket(owner, bpf_get_socket_cookie(ops));
  slot = kept_slot(socket);
  if (slot) count_established(owner, slot);
  /* As begin_received(), so that the acknowledgement that follows is a plain packet. */
  if (!socket || socket->rx_valid) return;
  socket->rx_ack = ops->rcv_nxt - (__u32)ops->bytes_received;
  socket->rx_valid = 1;
}

/* A socket listens, connects, or was accepted. */
static __always_inline void on_connect_listen_or_accept(
    struct bpf_sock_ops *ops, struct bpf_sock *sk) {
  const bool accepted = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
  const __u32 events = ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG |
                       BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG;
  __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_owner *whole, *owner = owner_of_connection(sk, &whole);

  if (!owner) return;
  /* No hook would report the end. */
  if (bpf_sock_ops_cb_flags_set(ops, events)) return;
  /* Both ends connected at once (RFC 9293, section 3.5). This is no clone, because a
   * listener has other flags. */
  if (accepted && (owner->flags & NM_OWNER_CONNECTED))
    return on_established(ops, sk);
  owner->preexisting = 0; /* a clone has its listener's */
  /* A closed socket may connect again. A new connection has new sequence numbers. A new
   * socket has nothing to forget. */
  if (!accepted && (owner->flags || owner->cookie)) {
    free_entry(cookie, &owner->socket);
    __builtin_memset(&owner->socket, 0, sizeof(owner->socket));
    bpf_sk_storage_delete(&nm_namings, sk);
    /* Subflows that join are sockets of their own. This is the first subflow, with which
     * the process's socket connects again. */
    if (whole && (owner->flags & NM_OWNER_CLOSED)) whole->wire_destination = 0;
    owner->wire_destination = 0;
    owner->pending_service = 0;
    /* A packet that raced with the end may have been noted after it. */
    __builtin_memset(&owner->pending, 0, sizeof(owner->pending));
  }
  owner->counted = 0;
  owner->timeouts = 0;
  /* If accepted: SYN-ACKs that its listener retransmitted. */
  owner->retransmitted_segments = accepted ? ops->total_retrans : 0;
  owner->flags = NM_OWNER_END_IS_TOLD;
  if (ops->op == BPF_SOCK_OPS_TCP_CONNECT_CB)
    owner->flags |= NM_OWNER_CONNECTED;
  /* The series is not known before the first packet. */
  if (accepted) owner->flags |= NM_OWNER_ESTABLISHED;
  if (whole) follow(owner, whole);
}

/* Something was retransmitted: `segments`, or by the timer. Only losses lead here. If the
 * series is not known yet, the owner keeps the numbers. */
static __always_inline void on_retransmit(struct bpf_sock_ops *ops,
                                          struct bpf_sock *sk, __u32 timeouts,
                                          __u32 segments) {
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  struct nm_tcp *tcp;
  __u32 slot;

  if (!owner) return;
  owner->timeouts += timeouts;
  owner->retransmitted_segments += segments;
  slot = owner->counted;
  if (!slot)
    slot = kept_slot(state_of_socket(owner, bpf_get_socket_cookie(ops)));
  tcp = slot ? tcp_of_slot(slot) : NULL;
  if (tcp) count_waiting(owner, tcp);
}

/* A connection is over, or a socket stops listening. */
static __always_inline void on_closed(struct bpf_sock_ops *ops,
                                      struct bpf_sock *sk) {
  __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_owner *owner = bpf_sk_storage_get(&nm_owners, sk, 0, 0);
  struct nm_tcp *tcp;
  __u32 slot;

  /* Closed before: connect(2) on an ended socket found no port, and so its TCP_CONNECT_CB
   * never came. */
  if (!owner || (owner->flags & NM_OWNER_CLOSED)) return;
  slot = kept_slot(state_of_socket(owner, cookie));
  /* A RST that is sent after the end still finds the numbers. */
  owner->flags |= NM_OWNER_CLOSED;
  free_entry(cookie, &owner->socket);
  /* The socket was accepted and has sent nothing yet. The number that a RST acknowledges
   * may include the peer's FIN, which is no payload. */
  if (NM_WORD_COOKIE(owner->socket.word) != NM_COOKIE(cookie) &&
      peer_has_finished(ops->args[0])) {
    __builtin_memset(&owner->socket, 0, sizeof(owner->socket));
    owner->socket.word = NM_COOKIE(cookie);
    owner->socket.rx_fin = ops->rcv_nxt;
    owner->socket.rx_fin_seen = 1;
  }
  if (has_proxy_port(ports_of_socket(sk))) owner->socket.proxied = 1;
  if (owner->socket.wire_protocol) {
    COUNT(connections_unnamed, 1);
    owner->socket.wire_protocol = NM_WIRE_NONE;
    owner->socket.word = NM_WORD_COOKIE(owner->socket.word);
  }
  settle_pending(owner);
  if (!slot && owner->pending_service)
    slot = slot_of_owner(owner, owner->pending_path);
  if (owner->counted) slot = owner->counted;
  /* A connection without a packet of ours was over loopback. */
  tcp = slot ? tcp_of_slot(slot) : NULL;
  if (!tcp) return;
  count_waiting(owner, tcp);
  if (owner->flags & NM_OWNER_ESTABLISHED) {
    if (owner->counted)
      __sync_fetch_and_add(&tcp->closed, 1);
    else
      count_established(owner, slot);
    if (owner->flags & NM_OWNER_RESET)
      __sync_fetch_and_add(&tcp->resets_sent, 1);
    else if (is_reset(sk)) {
      /* Newer kernels send their answer from this socket, so it is counted here only. */
      owner->flags |= NM_OWNER_RESET;
      __sync_fetch_and_add(
          owner->socket.rx_rst_seen ? &tcp->resets_received : &tcp->resets_sent,
          1);
    }
    count_rtt(tcp, ops->srtt_us >> 3);
  } else if (ops->args[0] == TCP_SYN_SENT) {
    __sync_fetch_and_add(&tcp->failed, 1);
  } /* else a listener, or older than the meter */
}

#endif /* NETMETER_BPF_CONNECTION_BPF_H_ */
