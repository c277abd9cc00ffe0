/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The life of a TCP connection, as sockops reports it. The kernel calls only for the
 * events in a socket's callback flags. STATE_CB, which reports the end, can be set when a
 * socket connects or was accepted, and when its handshake is done. Only a socket whose
 * end will be reported may keep an entry of the table beyond close(2). A connection over
 * loopback that does not count asks for nothing.
 *
 *   connect(2),      a new connection: new numbers, no name yet. The socket may have been
 *   listen(2)        another connection before
 *   handshake done   counted as opened, or accepted, in nm_tcp. If the series is not
 *                    known yet, the first packet outside of the pending series does it:
 *                    keep_slot()
 *   retransmitted    segments, and the expiries of the timer (RTO_CB, RETRANS_CB): the
 *                    kernel calls only if something was lost, so plain packets do not pay
 *                    for it
 *   closed           the entry is free, once the last descriptor is closed, too; pending
 *                    amounts are settled; it counts as closed, or as failed, with its
 *                    last round-trip time, and with the sender of the RST, if there was
 *                    one. If a RST may follow, the owner moves to socket storage first
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

/* Asks for the calls that tell what becomes of a connection. Not 0: refused. */
static __always_inline int ask_for_events(struct bpf_sock_ops *ops) {
  return bpf_sock_ops_cb_flags_set(
      ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG |
               BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG);
}

/* Whether a connection is over loopback, if netfilter does not send it elsewhere. */
static __always_inline bool is_loopback(struct bpf_sock_ops *ops) {
  if (ops->family == AF_INET)
    return ops->remote_ip4 == ops->local_ip4 ||
           (ops->remote_ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
  return ops->remote_ip6[0] == ops->local_ip6[0] &&
         ops->remote_ip6[1] == ops->local_ip6[1] &&
         ops->remote_ip6[2] == ops->local_ip6[2] &&
         ops->remote_ip6[3] == ops->local_ip6[3];
}

/* Whether nothing of a connection will count: neither end is a proxy's, and if netfilter
 * sends it elsewhere all the same, its first bytes do not name it. */
static __always_inline bool is_uncounted(struct bpf_sock_ops *ops) {
  const __u32 remote = bpf_ntohl(ops->remote_port);

  return is_loopback(ops) && !has_proxy_port(ops->local_port | remote << 16) &&
         !nm_protocol_of(remote);
}

/* The handshake of a connection that this host opened is done. */
static __always_inline void on_established(struct bpf_sock_ops *ops,
                                           struct bpf_sock *sk) {
  const __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_stored_owner *stored;
  struct nm_owner *owner = owner_of(sk, cookie, &stored);
  struct nm_socket *socket;
  __u32 slot;

  if (!owner || !(owner->flags & NM_OWNER_CONNECTED)) return;
  socket = state_of_socket(stored, cookie);
  slot = kept_slot(socket);
  if (!(owner->flags & NM_OWNER_END_IS_TOLD)) {
    /* Over loopback, as it seemed; but netfilter has sent it elsewhere. */
    if (!socket || !socket->tx_valid || ask_for_events(ops)) return;
    owner->flags |= NM_OWNER_END_IS_TOLD;
  }
  owner->flags |= NM_OWNER_ESTABLISHED;
  if (slot) count_established(owner, slot);
  /* As begin_received(), so that the acknowledgement that follows is a plain packet. */
  if (!socket || socket->rx_valid) return;
  socket->rx_ack = ops->rcv_nxt - (__u32)ops->bytes_received;
  socket->rx_valid = 1;
}

/* The slot of a connection before its first packet, which is then a plain one. 0: more
 * than its owner decides the series, or there is no room. `port` may name it. */
static __always_inline __u32 foreseen_slot(struct bpf_sock_ops *ops,
                                           struct nm_owner *owner, __u32 port) {
  __u32 slot;

  if (nm_config.uplinks || is_loopback(ops)) return 0;
  if (has_destinations(owner->attribution.kind) && !owner->tag &&
      (rules_may_match(bpf_ntohl(ops->remote_port)) || nm_protocol_of(port)))
    return 0;
  slot = nm_slot_of_series(head_of_owner(owner, NM_PATH_DIRECT), owner->user);
  return slot & NM_SLOT_OVERFLOW ? 0 : slot & NM_SLOT_MASK;
}

/* The socket of a process connects, and its owner is in the table. */
static __always_inline void on_connect(struct bpf_sock_ops *ops,
                                       struct nm_entry *entry, __u64 cookie) {
  struct nm_owner *owner = &entry->owner;
  __u32 slot;

  if (!owner->flags && is_uncounted(ops)) {
    owner->flags = NM_OWNER_CONNECTED;
    return;
  }
  owner->wire_destination = 0;
  owner->counted = 0;
  slot = foreseen_slot(ops, owner, bpf_ntohl(ops->remote_port));
  bpf_spin_lock(&entry->lock);
  if (NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie)) {
    /* A closed socket may connect again. The new connection has new numbers. */
    __builtin_memset(&entry->socket, 0, sizeof(entry->socket));
    entry->socket.life = NM_LIFE_OWNED;
    entry->socket.word = NM_COOKIE(cookie) | slot;
  }
  bpf_spin_unlock(&entry->lock);
  owner->flags = NM_OWNER_CONNECTED;
  if (!ask_for_events(ops)) owner->flags |= NM_OWNER_END_IS_TOLD;
}

/* A socket listens, connects, or was accepted. */
static __always_inline void on_connect_listen_or_accept(
    struct bpf_sock_ops *ops, struct bpf_sock *sk) {
  const bool accepted = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
  const bool uncounted = accepted && is_uncounted(ops);
  const __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_stored_owner *stored, *whole;
  struct nm_owner *owner;
  __u32 slot;

  if (is_owned(entry)) {
    /* Both ends connected at once (RFC 9293, section 3.5). */
    if (accepted) return on_established(ops, sk);
    /* netfilter redirected its former connection, and no end was told: it failed. */
    if (entry->socket.proxied && !(entry->owner.flags & NM_OWNER_END_IS_TOLD))
      COUNT(connections_redirected, -1);
    if (ops->op == BPF_SOCK_OPS_TCP_CONNECT_CB)
      return on_connect(ops, entry, cookie);
    store_owner(sk, cookie);
  }
  stored = owner_of_connection(sk, &whole);
  if (!stored) return;
  owner = &stored->owner;
  /* This is no clone, because a listener has other flags. */
  if (accepted && (owner->flags & NM_OWNER_CONNECTED))
    return on_established(ops, sk);
  stored->preexisting = 0; /* a clone has its listener's */
  /* A closed socket may connect again. A new connection has new sequence numbers. A new
   * socket has nothing to forget. */
  if (!accepted && (owner->flags || stored->cookie)) {
    free_entry(cookie, &stored->socket);
    __builtin_memset(&stored->socket, 0, sizeof(stored->socket));
    bpf_sk_storage_delete(&nm_namings, sk);
    /* Subflows that join are sockets of their own. This is the first subflow, with which
     * the process's socket connects again. */
    if (whole && (owner->flags & NM_OWNER_CLOSED))
      whole->owner.wire_destination = 0;
    owner->wire_destination = 0;
    owner->pending_service = 0;
    /* A packet that raced with the end may have been noted after it. */
    __builtin_memset(&stored->pending, 0, sizeof(stored->pending));
  }
  owner->counted = 0;
  stored->timeouts = 0;
  /* If accepted: SYN-ACKs that its listener retransmitted. */
  stored->retransmitted_segments = accepted ? ops->total_retrans : 0;
  owner->flags = 0;
  if (ops->op == BPF_SOCK_OPS_TCP_CONNECT_CB) owner->flags = NM_OWNER_CONNECTED;
  /* The series is not known before the first packet. Without an end it does not count as
   * accepted: a load may make its port a proxy's. */
  if (accepted && !uncounted) owner->flags = NM_OWNER_ESTABLISHED;
  /* sock_release tells the end of a listener. Accepted sockets would inherit the flags,
   * those over loopback, too. */
  if (ops->op == BPF_SOCK_OPS_TCP_LISTEN_CB ||
      (!uncounted && !ask_for_events(ops)))
    owner->flags |= NM_OWNER_END_IS_TOLD;
  if (whole) return follow(stored, whole);
  if (!accepted || !(owner->flags & NM_OWNER_END_IS_TOLD)) return;
  slot = foreseen_slot(ops, owner, 0);
  if (slot && claim_entry(cookie, slot, 0)) stored->cookie = cookie;
}

/* Something was retransmitted: `segments`, or by the timer. Only losses lead here. If the
 * series is not known yet, the stored owner keeps the numbers. */
static __always_inline void on_retransmit(struct bpf_sock_ops *ops,
                                          struct bpf_sock *sk, __u32 timeouts,
                                          __u32 segments) {
  const __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_stored_owner *stored;
  struct nm_owner *owner = owner_of(sk, cookie, &stored);
  struct nm_tcp *tcp;
  __u32 slot;

  if (!owner) return;
  slot = owner->counted;
  if (!slot) slot = kept_slot(state_of_socket(stored, cookie));
  tcp = slot ? tcp_of_slot(slot) : NULL;
  /* Each pointer alone: of `!tcp && !stored` clang 19 makes an OR of both, which the
   * verifier refuses. */
  if (tcp && !stored) return add_retransmits(tcp, timeouts, segments);
  if (!stored) stored = store_owner(sk, cookie);
  if (!stored) return;
  stored->timeouts += timeouts;
  stored->retransmitted_segments += segments;
  if (tcp) count_waiting(stored, tcp);
}

/* A connection is over. Its owner is in `entry` or is stored. */
static __always_inline void count_end(struct bpf_sock_ops *ops,
                                      struct bpf_sock *sk, __u64 cookie,
                                      struct nm_entry *entry,
                                      struct nm_stored_owner *stored) {
  struct nm_owner *owner = stored ? &stored->owner : &entry->owner;
  struct nm_socket *socket;
  struct nm_tcp *tcp;
  __u32 slot;

  /* Closed before: connect(2) on an ended socket found no port, and so its TCP_CONNECT_CB
   * never came. */
  if (owner->flags & NM_OWNER_CLOSED) return;
  socket = state_of_socket(stored, cookie);
  slot = kept_slot(socket);
  /* A RST that is sent after the end still finds the numbers. */
  owner->flags |= NM_OWNER_CLOSED;
  if (stored) {
    free_entry(cookie, &stored->socket);
    socket = &stored->socket;
    /* The socket was accepted and has sent nothing yet. The number that a RST
     * acknowledges may include the peer's FIN, which is no payload. */
    if (NM_WORD_COOKIE(socket->word) != NM_COOKIE(cookie) &&
        peer_has_finished(ops->args[0])) {
      __builtin_memset(socket, 0, sizeof(*socket));
      socket->word = NM_COOKIE(cookie);
      socket->rx_fin = ops->rcv_nxt;
      socket->rx_fin_seen = 1;
    }
  }
  if (!socket) return;                                    /* for the verifier */
  if (socket->proxied) COUNT(connections_redirected, -1); /* nm_redirect() */
  if (has_proxy_port(ports_of_socket(sk))) socket->proxied = 1;
  if (socket->wire_protocol) {
    COUNT(connections_unnamed, 1);
    socket->wire_protocol = NM_WIRE_NONE;
    socket->word = NM_WORD_COOKIE(socket->word);
  }
  if (stored) settle_pending(stored);
  if (!slot && owner->pending_service)
    slot = slot_of_owner(owner, owner->pending_path);
  if (owner->counted) slot = owner->counted;
  /* A connection without a packet of ours was over loopback. */
  tcp = slot ? tcp_of_slot(slot) : NULL;
  if (!tcp) return;
  if (stored) count_waiting(stored, tcp);
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
          socket->rx_rst_seen ? &tcp->resets_received : &tcp->resets_sent, 1);
    }
    count_rtt(tcp, ops->srtt_us >> 3);
  } else if (ops->args[0] == TCP_SYN_SENT) {
    __sync_fetch_and_add(&tcp->failed, 1);
  } /* else older than the meter */
}

static __always_inline void on_closed(struct bpf_sock_ops *ops,
                                      struct bpf_sock *sk) {
  const __u64 cookie = bpf_get_socket_cookie(ops);
  struct nm_entry *entry = entry_of_cookie(cookie);
  struct nm_stored_owner *stored;

  /* Another program asked for this call. sock_release tells the end, and may have. */
  if (is_owned(entry) && !(entry->owner.flags & NM_OWNER_END_IS_TOLD)) return;
  if (is_owned(entry) && entry->socket.life & NM_LIFE_RELEASED &&
      may_send_reset(ops->args[0], entry->socket.rx_fin_seen))
    store_owner(sk, cookie);
  if (is_owned(entry)) {
    count_end(ops, sk, cookie, entry, NULL);
    end_life(entry, cookie, NM_LIFE_ENDED);
    return;
  }
  stored = stored_owner(sk);
  if (stored) count_end(ops, sk, cookie, NULL, stored);
}

#endif /* NETMETER_BPF_CONNECTION_BPF_H_ */
