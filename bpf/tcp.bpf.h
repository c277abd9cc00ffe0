/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * TCP: counts every byte of payload once, and every connection once.
 *
 * One number per socket separates new payload from retransmitted payload: the highest end
 * sequence that the socket ever handed to the egress hook. The part of a segment above
 * this number is new, the rest is a retransmission. The kernel's own snd_nxt cannot tell:
 * snd_nxt stays if a local queueing discipline drops the segment, and the retransmission
 * looks new.
 *
 * Received payload is counted on egress, too: by the advance of the acknowledgement
 * number that we send. That is the payload that the peer sent in order and without
 * duplicates, whatever order it arrived in. rcv_nxt at the ingress hook would miscount
 * segments that overtake each other. SYN and FIN each take a sequence number without
 * being payload, and are subtracted.
 *
 * Both are done on egress only, where the kernel holds the socket's lock. So a socket's
 * packets come here one at a time, and plain stores suffice. Ingress only notes the end
 * of the peer's FIN. Numbers are compared modulo 2^32.
 */
#ifndef NETMETER_BPF_TCP_BPF_H_
#define NETMETER_BPF_TCP_BPF_H_

#include "bpf/packet.bpf.h"
#include "bpf/slot.bpf.h"

/* For a benchmark (test/benchmark/datapath.cc), which sends one segment a million times.
 * 1 makes it the next one of its connection each time, by storing the numbers as if it
 * had not been sent. */
#ifndef NM_ALWAYS_NEW
#define NM_ALWAYS_NEW 0
#endif

/* One round-trip time is sampled for this many sent packets; the second number is for the
 * first sample of a series. A sample costs as much as a packet. */
#define NM_RTT_SAMPLE 64
#define NM_RTT_FIRST_SAMPLE 16

/* a is before b in the sequence space, RFC 9293 section 3.4 */
static __always_inline bool before(__u32 a, __u32 b) {
  return (__s32)(a - b) < 0;
}

/* Sets the start of a socket's numbers: the first segment that it sends. For a
 * pre-existing socket, which is older than the meter, it is the kernel's snd_nxt. */
static __always_inline void begin_sent(struct bpf_tcp_sock *tcp,
                                       struct nm_socket *socket, __u32 seq,
                                       bool preexisting) {
  if (socket->tx_valid) return;
  socket->tx_end = seq;
  if (preexisting && tcp && before(seq, tcp->snd_nxt))
    socket->tx_end = tcp->snd_nxt;
  socket->tx_valid = 1;
}

/* Received numbers start with the first acknowledgement. */
static __always_inline void begin_received(struct bpf_tcp_sock *tcp,
                                           struct nm_socket *socket, __u32 ack,
                                           bool preexisting) {
  if (socket->rx_valid) return;
  socket->rx_ack = ack - NM_ALWAYS_NEW;
  /* An accepted socket may have received before it first sends. */
  if (tcp && !preexisting)
    socket->rx_ack = tcp->rcv_nxt - (__u32)tcp->bytes_received;
  socket->rx_valid = 1;
}

/* The part of a sent segment's payload that is new. */
static __always_inline __u32 new_payload(struct nm_socket *socket, __u32 seq,
                                         __u32 payload, __u32 tcp_flags) {
  __u32 first = seq + !!(tcp_flags & TCP_FLAG_SYN);
  __u32 last = first + payload;
  __u32 end = last + (tcp_flags & TCP_FLAG_FIN);
  __u32 new_bytes;

  if (!before(socket->tx_end, end)) return 0;
  if (before(first, socket->tx_end)) first = socket->tx_end;
  socket->tx_end = NM_ALWAYS_NEW ? seq : end;
  new_bytes = last - first;
  /* Negative if only a SYN or a FIN is new. */
  return (__s32)new_bytes < 0 ? 0 : new_bytes;
}

/* Whether the connection itself has sent a RST. The kernel sends one in answer to a
 * peer's segment, and over IPv4 that has the connection's socket since Linux 6.13. If the
 * peer's segment acknowledges, that RST acknowledges nothing and has the number that the
 * peer says. */
static __always_inline bool is_own_reset(__u32 tcp_flags) {
  const __u32 both = TCP_FLAG_RST | TCP_FLAG_ACK;

  return (tcp_flags & both) == both;
}

/* Whether a SYN-ACK belongs to a request, which has its listener's socket, whatever the
 * listener does meanwhile. A socket sends a SYN-ACK of its own in one state only (RFC
 * 9293, section 3.5). */
static __always_inline bool is_of_request(__u32 tcp_flags, __u32 state) {
  const __u32 both = TCP_FLAG_SYN | TCP_FLAG_ACK;

  return (tcp_flags & (both | TCP_FLAG_RST)) == both && state != TCP_SYN_RECV;
}

/* Whether a SYN is that of a connection that this host opens. */
static __always_inline bool is_first_syn(__u32 tcp_flags, __u32 state) {
  const __u32 all = TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK;

  return (tcp_flags & all) == TCP_FLAG_SYN && state == TCP_SYN_SENT;
}

/* Whether the kernel has accepted the peer's FIN, by the state of the socket. */
static __always_inline bool peer_has_finished(__u32 state) {
  return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK ||
         state == TCP_CLOSING;
}

/* Whether a connection that ends in this state may still send a RST, unless the peer sent
 * one: it was not closed by both ends before. */
static __always_inline bool may_send_reset(__u32 state, bool fin_received) {
  /* The normal end of the side that closes first, but with the peer's FIN. */
  if (state == TCP_FIN_WAIT2) return !fin_received;
  return state == TCP_ESTABLISHED || state == TCP_SYN_RECV ||
         state == TCP_FIN_WAIT1 || state == TCP_CLOSE_WAIT ||
         state == TCP_CLOSING;
}

/* Notes the peer's FIN, if a received segment has it. `seq_end` is the segment's end. */
static __always_inline void note_fin(struct nm_socket *socket, __u32 seq_end,
                                     __u32 tcp_flags) {
  if (!(tcp_flags & TCP_FLAG_FIN)) return;
  socket->rx_fin = seq_end + 1;
  socket->rx_fin_seen = 1;
}

/* The payload that the peer sent in order since our last acknowledgement: the payload
 * that this packet acknowledges for the first time. */
static __always_inline __u32 acked_payload(struct __sk_buff *skb,
                                           struct nm_socket *socket,
                                           __u32 ack) {
  __u32 advance, state;

  if (!before(socket->rx_ack, ack)) return 0;
  advance = ack - socket->rx_ack;
  if (!socket->rx_fin_counted) {
    /* A FIN takes one number. If the peer's FIN comes first, the state tells. If ours was
     * first, the acknowledgement leaves before the state changes (tcp_fin() in
     * net/ipv4/tcp_input.c), but the ingress hook has noted the FIN. */
    state = skb->sk ? skb->sk->state : 0;
    if (peer_has_finished(state) ||
        (socket->rx_fin_seen && before(socket->rx_ack, socket->rx_fin) &&
         !before(ack, socket->rx_fin))) {
      socket->rx_fin_counted = 1;
      advance--;
    }
  }
  socket->rx_ack = ack - NM_ALWAYS_NEW;
  return advance;
}

/* --- Connections --------------------------------------------------------- */

/* The slot that is kept for a connection. 0: there is none, the connection has sent no
 * packet, or the series is the pending one. */
static __always_inline __u32 kept_slot(struct nm_socket *socket) {
  __u32 slot = socket && socket->tx_valid
                   ? NM_WORD_SLOT(*(volatile __u64 *)&socket->word)
                   : 0;
  struct nm_tcp *tcp = slot ? tcp_of_slot(slot) : NULL;

  return tcp && tcp->kind != NM_KIND_PENDING ? slot : 0;
}

static __always_inline void add_retransmits(struct nm_tcp *tcp, __u32 timeouts,
                                            __u32 segments) {
  if (timeouts) __sync_fetch_and_add(&tcp->timeouts, timeouts);
  if (segments) __sync_fetch_and_add(&tcp->retransmitted_segments, segments);
}

/* Adds the retransmissions that wait with the owner to the connection's series. */
static __always_inline void count_waiting(struct nm_stored_owner *stored,
                                          struct nm_tcp *tcp) {
  const __u32 timeouts = stored->timeouts;
  const __u32 segments = stored->retransmitted_segments;

  stored->timeouts = 0;
  stored->retransmitted_segments = 0;
  add_retransmits(tcp, timeouts, segments);
}

/* Counts a connection once as opened or accepted, and as closed if it is. Its end counts
 * in the same series, even if its name changes. The socket's lock is held. */
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
  /* Its first counted packet is the RST after its end, and the end was not counted. */
  if (owner->flags & NM_OWNER_CLOSED) __sync_fetch_and_add(&tcp->closed, 1);
  return 0;
}

/* Counts once that a connection sent a RST. If the end was not reported yet, the end
 * counts it: close(2) sends the RST after the end, all other calls before it. */
NM_GLOBAL int nm_count_reset(struct __sk_buff *skb, __u32 slot) {
  struct nm_stored_owner *stored;
  struct bpf_sock *sk = skb->sk;
  struct nm_owner *owner;
  struct nm_tcp *tcp;

  if (sk) sk = bpf_sk_fullsock(sk);
  if (!sk) return 0;
  owner = owner_of(sk, bpf_get_socket_cookie(skb), &stored);
  if (!owner || !(owner->flags & NM_OWNER_ESTABLISHED)) return 0;
  tcp = tcp_of_slot(owner->counted ? owner->counted : slot);
  if (!(owner->flags & NM_OWNER_CLOSED) || !tcp || tcp->kind == NM_KIND_PENDING)
    tcp = NULL;
  /* The first packet of the connection that counts, and the end found no series. */
  if (tcp && stored) count_waiting(stored, tcp);
  if (owner->flags & NM_OWNER_RESET) return 0;
  owner->flags |= NM_OWNER_RESET;
  if (tcp) __sync_fetch_and_add(&tcp->resets_sent, 1);
  return 0;
}

/* Adds a smoothed round-trip time to the histogram of its series. */
static __always_inline void count_rtt(struct nm_tcp *tcp, __u32 us) {
  const __u32 bounds[] = NM_RTT_BOUNDS_US;
  __u32 bucket = 0;

  if (!us || NM_PATH_OF(tcp->path) != NM_PATH_DIRECT) return;
#pragma unroll
  for (int i = 0; i < NM_RTT_BUCKETS - 1; i++) bucket += us > bounds[i];
  barrier_var(bucket);
  if (bucket >= NM_RTT_BUCKETS) return;
  __sync_fetch_and_add(&tcp->rtt_buckets[bucket], 1);
  __sync_fetch_and_add(&tcp->rtt_us, us);
}

/* Samples the kernel's smoothed round-trip time of the packet's connection, which is in
 * eighths. Global, because few packets come here. */
NM_GLOBAL int nm_sample_rtt(struct __sk_buff *skb, __u32 slot) {
  struct nm_tcp *tcp = tcp_of_slot(slot);
  struct bpf_sock *sk = skb->sk;
  struct bpf_tcp_sock *socket;

  if (sk) sk = bpf_sk_fullsock(sk);
  /* bpf_tcp_sock() accepts a raw socket that sends TCP as a TCP socket. */
  if (!sk || !tcp || sk->type != SOCK_STREAM) return 0;
  socket = bpf_tcp_sock(sk);
  if (socket) count_rtt(tcp, socket->srtt_us >> 3);
  return 0;
}

/* Samples the round-trip time with about each NM_RTT_SAMPLE-th packet with payload that a
 * series sends on a CPU. A call at each round trip (BPF_SOCK_OPS_RTT_CB) costs more than
 * all other work for a packet. `cell`, or the shared cell, already has this packet. */
static __always_inline void sample_rtt(struct __sk_buff *skb, __u32 slot,
                                       struct nm_cell *cell, __u32 payload,
                                       __u32 segments) {
  const __u64 sent = *(volatile __u64 *)&cell->tx_packets;

  /* Moves on by one in each round. Otherwise a connection that alternates a request and
   * an acknowledgement would always meet the same numbers. */
  if (payload &&
      (sent - sent / NM_RTT_SAMPLE - NM_RTT_FIRST_SAMPLE) % NM_RTT_SAMPLE <
          segments)
    nm_sample_rtt(skb, slot);
}

#endif /* NETMETER_BPF_TCP_BPF_H_ */
