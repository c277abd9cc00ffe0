/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Adding a forwarded packet to its flow.
 *
 * The program runs at netfilter's FORWARD, next to the meter's own (forward.bpf.c), for
 * the same packets and with the same bytes. There each end has its own address: source
 * NAT of this host comes later, and destination NAT is done. A flow has the interfaces
 * and the uplinks of both ends in its key. So a connection that takes another uplink, or
 * comes back by another one, has a flow for each pair, and no flow ever moves.
 *
 * The local end of a flow is the client: the end whose interface leads to clients
 * (forwarded_clients), or else the one that is in no uplink. If the interfaces do not
 * tell, the key has the lower end as local, and NM_FLOW_SWAPPED says that the other end
 * has sent first.
 *
 * No socket tells when a connection ends. Its packets do: FINs of both ends, or a RST.
 * Late packets may follow these, so user space ends the flow after a moment of silence.
 * The SYN of another connection on the same ports ends it at once, however it was.
 */
#ifndef NETMETER_BPF_FLOW_FORWARD_BPF_H_
#define NETMETER_BPF_FLOW_FORWARD_BPF_H_

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "bpf/flow_table.bpf.h"
#include "bpf/forward.bpf.h"
#include "bpf/rules.bpf.h"

#define NM_FIRST_PACKETS 3 /* of a client: a ClientHello may take two */
#define ARPHRD_ETHER 1
#define NO_MAC_HEADER 0xffff

/* A kfunc of 6.4 and newer, as all of this. */
extern int bpf_dynptr_from_skb(struct sk_buff *skb, __u64 flags,
                               struct bpf_dynptr *packet) __ksym __weak;

/* 0 -> the time of a CPU's last tick. netfilter's programs lack the helper for it
 * (BPF_FUNC_ktime_get_coarse_ns), and reading the clock may take longer than all the
 * rest. */
struct nm_flow_clock {
  __u64 now_ns;
  __u64 tick; /* jiffies */
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct nm_flow_clock);
} nm_flow_clocks SEC(".maps");

static __always_inline __u64 time_of_tick(void) {
  const __u64 tick = bpf_jiffies64();
  struct nm_flow_clock *clock;
  __u32 zero = 0;

  clock = bpf_map_lookup_elem(&nm_flow_clocks, &zero);
  if (!clock) return bpf_ktime_get_ns(); /* not reached */
  if (clock->tick != tick) {
    clock->now_ns = bpf_ktime_get_ns();
    clock->tick = tick;
  }
  return clock->now_ns;
}

/* A packet, and what is known about it. */
struct nm_passing {
  struct nm_flow_key key;
  __u32 bytes; /* on the link */
  __u32 segments;
  __u32 header; /* bytes of all headers from IP on; TCP only */
  __u32 seq;
  __u8 tcp_flags;
  bool sends;   /* the local end of the key has sent it */
  bool is_even; /* the interfaces do not tell the client */
  /* What pass() found in the flow. */
  __u64 born_ns;
  __u64 last_ns;
  __u32 first_seq;
};

/* --- Its ends ---------------------------------------------------------------- */

/* How surely a client is behind an interface of this uplink. */
static __always_inline __u32 rank_of(__u32 uplink) {
  if (nm_client_uplinks >> uplink & 1) return 2;
  return uplink == NM_UPLINK_NONE || uplink == NM_UPLINK_OTHER;
}

/* An IP header, in the order of its words. One copy costs less than two of its parts. */
union nm_ip {
  struct iphdr v4;
  struct ipv6hdr v6;
  __u32 words[10];
};

static __always_inline void set_ends(const union nm_ip *ip, bool ipv4,
                                     bool sends, struct nm_flow_key *key) {
  __u32 *from = sends ? key->local : key->remote;
  __u32 *to = sends ? key->remote : key->local;

  if (ipv4) {
    from[2] = to[2] = bpf_htonl(0xffff);
    from[3] = ip->v4.saddr;
    to[3] = ip->v4.daddr;
  } else {
    __builtin_memcpy(from, &ip->words[2], 16);
    __builtin_memcpy(to, &ip->words[6], 16);
  }
}

static __always_inline bool is_lower(const __u32 a[4], __u16 a_port,
                                     const __u32 b[4], __u16 b_port) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    __u32 word = a[i], other = b[i];

    barrier_var(word); /* else clang selects an address, and not a word */
    barrier_var(other);
    if (word != other) return word < other;
  }
  return a_port < b_port;
}

static __always_inline bool has_ports(__u8 protocol) {
  return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
         protocol == IPPROTO_SCTP || protocol == IPPROTO_UDPLITE ||
         protocol == IPPROTO_DCCP;
}

/* Copies bytes of the transport header. They may be outside of the linear part. */
static __always_inline bool read_transport(struct sk_buff *skb, __u32 offset,
                                           void *to, const __u32 length) {
  struct bpf_dynptr packet;

  if (offset + length <= skb->len - skb->data_len)
    return !bpf_probe_read_kernel(to, length,
                                  skb->head + skb->network_header + offset);
  return !bpf_dynptr_from_skb(skb, 0, &packet) &&
         !bpf_dynptr_read(to, length, &packet, offset, 0);
}

/* Reads the protocol, the ports and the flags of TCP. Returns the ports. */
static __always_inline __u32 read_headers(struct sk_buff *skb, bool ipv4,
                                          union nm_ip *ip,
                                          struct nm_passing *p) {
  const unsigned char *at = skb->head + skb->network_header;
  /* Ports, sequence, acknowledgement, flags. */
  __be32 transport[4] = {};
  __u32 offset = 40, jumbo = 0;

  bpf_probe_read_kernel(ip, ipv4 ? 20 : 40, at);
  if (ipv4) {
    offset = ip->v4.ihl * 4;
    p->key.protocol = ip->v4.protocol;
    /* Only the first fragment has a transport header. */
    if (ip->v4.frag_off & bpf_htons(0x1fff)) return 0;
  } else {
    p->key.protocol = ip->v6.nexthdr;
    if (!has_ports(p->key.protocol))
      offset = ip_header(at, false, &p->key.protocol, &jumbo) & 0xffff;
  }
  if (p->key.protocol == IPPROTO_TCP &&
      read_transport(skb, offset, transport, sizeof(transport))) {
    p->seq = bpf_ntohl(transport[1]);
    p->header = offset + (bpf_ntohl(transport[3]) >> 28) * 4;
    p->tcp_flags = bpf_ntohl(transport[3]) >> 16;
  } else if (has_ports(p->key.protocol)) {
    read_transport(skb, offset, transport, sizeof(transport[0]));
  }
  return bpf_ntohl(transport[0]);
}

/* Not inline, as the functions below, because the stack is scarce. */
static __noinline int read_passing(struct sk_buff *skb,
                                   const struct nf_hook_state *state,
                                   struct nm_passing *p) {
  const bool ipv4 = state->pf == NFPROTO_IPV4;
  struct nm_forwarded_key pair = {};
  struct nm_flow_key *key = &p->key;
  __u32 in, out, ports, source, destination;
  union nm_ip ip = {};
  __u64 from, to;

  interfaces_of(skb, state, &pair);
  in = pair.uplinks >> 4;
  out = pair.uplinks & 0xf;
  from = pair.in;
  to = pair.out;
  p->bytes = wire_size(skb, ipv4, &p->segments);
  key->kind = NM_FLOW_FORWARDED;
  ports = read_headers(skb, ipv4, &ip, p);
  source = ports >> 16;
  destination = ports & 0xffff;
  /* A multicast, which has no incoming interface: its group is no client. */
  p->is_even = pair.in && rank_of(in) == rank_of(out);
  p->sends = !pair.in || p->is_even || rank_of(in) > rank_of(out);
  if (p->sends)
    set_ends(&ip, ipv4, true, key);
  else
    set_ends(&ip, ipv4, false, key);
  if (p->is_even && is_lower(key->remote, destination, key->local, source)) {
    p->sends = false;
    set_ends(&ip, ipv4, false, key);
  }
  key->local_port = p->sends ? source : destination;
  key->remote_port = p->sends ? destination : source;
  barrier_var(from); /* as in is_lower() */
  barrier_var(to);
  key->cookie =
      p->sends ? NM_FLOW_INTERFACES(from, to) : NM_FLOW_INTERFACES(to, from);
  key->uplinks =
      p->sends ? NM_FORWARDED_INDEX(in, out) : NM_FORWARDED_INDEX(out, in);
  return 0;
}

/* --- Its flow ---------------------------------------------------------------- */

static __always_inline bool is_opening(const struct nm_passing *p) {
  return p->key.protocol == IPPROTO_TCP &&
         (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/* What will name the destination: a rule for the end that is not the client, or the first
 * bytes that the client sends. */
static __always_inline void find_name(const struct nm_passing *p,
                                      struct nm_beginning *beginning) {
  const bool swapped = p->is_even && !p->sends;
  const __u32 port = swapped ? p->key.local_port : p->key.remote_port;
  __u32 rule = NM_NAME_EMPTY;

  if (nm_config.rules_count)
    rule = match_rules(swapped ? p->key.local : p->key.remote, port,
                       p->key.protocol);
  beginning->destination = rule;
  beginning->yields = !!(rule & NM_RULE_YIELDS);
  if ((!beginning->destination || beginning->yields) && is_opening(p) &&
      (p->is_even || p->sends) && nm_protocol_of(port))
    beginning->first_bytes = NM_FIRST_PACKETS;
}

static __noinline int begin_passing(const struct nm_passing *p) {
  struct nm_beginning beginning = {};

  if (!p) return 0;
  beginning.now_ns = bpf_ktime_get_ns();
  __builtin_memcpy(beginning.ends.local, p->key.local,
                   sizeof(beginning.ends.local));
  __builtin_memcpy(beginning.ends.remote, p->key.remote,
                   sizeof(beginning.ends.remote));
  beginning.ends.local_port = p->key.local_port;
  beginning.ends.remote_port = p->key.remote_port;
  if (p->key.protocol != IPPROTO_TCP || is_opening(p))
    beginning.flags = p->sends ? NM_FLOW_OPENED : NM_FLOW_ACCEPTED;
  else
    beginning.flags = NM_FLOW_PARTIAL;
  if (is_opening(p))
    beginning.first_seq = p->seq;
  else
    beginning.flags |= NM_FLOW_ESTABLISHED;
  if (!p->sends)
    beginning.flags |= p->is_even ? NM_FLOW_SWAPPED : NM_FLOW_STRANGER;
  find_name(p, &beginning);
  return begin_flow(&p->key, &beginning);
}

/* Whether the end that began the flow has sent this packet. */
static __always_inline bool is_of_opener(const struct nm_flow_state *state,
                                         const struct nm_passing *p) {
  return p->sends == !!(state->flags & NM_FLOW_OPENED);
}

/* Whether the packet is the SYN of another connection on the same ports, and none that
 * comes again. Both ends of one connection may send a SYN (RFC 9293 section 3.5). */
static __always_inline bool begins_another(const struct nm_flow_state *state,
                                           const struct nm_passing *p) {
  if (!is_opening(p)) return false;
  if (nm_flow_is_over(state->flags)) return true;
  return is_of_opener(state, p) ? p->seq != state->first_seq
                                : !!(state->flags & NM_FLOW_ESTABLISHED);
}

/* Under the lock. */
static __always_inline void add_passing_to_flow(struct nm_flow_state *state,
                                                const struct nm_passing *p,
                                                __u64 now_ns) {
  if (p->sends) {
    state->counts.tx_bytes += p->bytes;
    state->counts.tx_packets += p->segments;
    state->tx_tcp_flags |= p->tcp_flags;
  } else {
    state->counts.rx_bytes += p->bytes;
    state->counts.rx_packets += p->segments;
    state->rx_tcp_flags |= p->tcp_flags;
  }
  if (state->last_ns < now_ns) state->last_ns = now_ns;
  state->slot = NM_SLOT_FORWARDED | p->key.uplinks;
  if (p->tcp_flags & TCP_FLAG_FIN) {
    if (p->sends && !(state->flags & NM_FLOW_FIN_RECEIVED))
      state->flags |= NM_FLOW_FIN_OURS_FIRST;
    state->flags |= p->sends ? NM_FLOW_FIN_SENT : NM_FLOW_FIN_RECEIVED;
  }
  /* What comes again after the end is answered by a RST, which ended nothing. */
  if ((p->tcp_flags & TCP_FLAG_RST) && !nm_flow_is_over(state->flags))
    state->flags |= p->sends ? NM_FLOW_RST_SENT : NM_FLOW_RST_RECEIVED;
  /* The SYN-ACK may take another way. */
  if (!(state->flags & NM_FLOW_ESTABLISHED) && is_of_opener(state, p) &&
      (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_ACK) {
    state->flags |= NM_FLOW_ESTABLISHED;
    state->established_ns = now_ns;
  }
}

/* Whether the client has sent this packet of the flow. */
static __always_inline bool is_of_client(const struct nm_flow_state *state,
                                         const struct nm_passing *p) {
  return p->sends != !!(*(volatile __u32 *)&state->flags & NM_FLOW_SWAPPED);
}

/* The client's address on an Ethernet, if this is its first packet; 0: none. */
static __always_inline __u64 new_mac(const struct nm_flow_state *state,
                                     const struct nm_passing *p,
                                     struct sk_buff *skb,
                                     const struct net_device *in) {
  __u64 mac = 0;

  if (!(*(volatile __u32 *)&state->flags & NM_FLOW_MAC) &&
      is_of_client(state, p) && in && in->type == ARPHRD_ETHER &&
      skb->mac_header != NO_MAC_HEADER)
    bpf_probe_read_kernel(&mac, 6, skb->head + skb->mac_header + 6);
  return mac;
}

enum nm_passed {
  NM_PASSED,
  NM_PASSED_NAMING, /* ... and it may name the destination */
  NM_PASS_OVER,     /* it begins another flow, and this one is over */
  NM_PASS_NOT,      /* it has no flow */
};

/* Adds a packet to its flow, if possible. */
static __noinline int pass(struct nm_passing *p, struct sk_buff *skb,
                           const struct nf_hook_state *hook, __u32 *reason) {
  __u64 id, mac, now_ns;
  enum nm_passed passed = NM_PASSED;
  struct nm_flow_state *state;
  struct nm_flow *flow;

  if (!p || !reason) return NM_PASS_NOT;
  *reason = NM_UNRECORDED_FULL;
  flow = bpf_map_lookup_elem(&nm_flows, &p->key);
  if (!flow) {
    if (begin_passing(p) == NM_NO_ROOM) return NM_PASS_NOT;
    flow = bpf_map_lookup_elem(&nm_flows, &p->key);
    if (!flow) return NM_PASS_NOT;
  }
  /* Exact at the beginning and the end of a connection. */
  if ((p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_FIN | TCP_FLAG_RST)) ||
      !(*(volatile __u32 *)&flow->state.flags & NM_FLOW_ESTABLISHED))
    now_ns = bpf_ktime_get_ns();
  else
    now_ns = time_of_tick();
  mac = new_mac(&flow->state, p, skb, hook->in);
  id = id_of_key(&p->key);
  bpf_spin_lock(&flow->lock);
  state = &flow->state;
  if (state->id != id || (state->flags & NM_FLOW_GONE)) {
    passed = NM_PASS_NOT;
    *reason = NM_UNRECORDED_LATE;
  } else if (begins_another(state, p)) {
    passed = NM_PASS_OVER;
    p->last_ns = state->last_ns;
    *reason = NM_UNRECORDED_LATE;
  } else {
    add_passing_to_flow(state, p, now_ns);
    if (is_of_client(state, p)) {
      if (!(state->flags & NM_FLOW_MAC))
        __builtin_memcpy(state->mac, &mac, sizeof(state->mac));
      state->flags |= NM_FLOW_MAC;
      if (state->first_bytes && p->bytes > p->header) {
        state->first_bytes--;
        p->born_ns = state->born_ns;
        p->first_seq = state->first_seq;
        passed = NM_PASSED_NAMING;
      }
    }
  }
  bpf_spin_unlock(&flow->lock);
  if (passed == NM_PASSED_NAMING && nm_flow_filters &&
      !is_wanted(&flow->state, NM_SLOT_FORWARDED))
    passed = NM_PASSED;
  return passed;
}

/* Hands the payload to user space, which reads the name of the destination from it. */
static __noinline int send_first_bytes(struct sk_buff *skb,
                                       const struct nm_passing *p) {
  const bool swapped = p->is_even && !p->sends;
  struct nm_flow_bytes *bytes;
  struct bpf_dynptr packet;
  __u32 length = skb->len - p->header;

  if (length > NM_FLOW_BYTES) length = NM_FLOW_BYTES;
  bytes = bpf_ringbuf_reserve(&nm_flow_events, sizeof(*bytes), 0);
  if (!bytes) return 0; /* the flow stays unnamed */
  __builtin_memset(bytes, 0, __builtin_offsetof(struct nm_flow_bytes, bytes));
  bytes->event.type = NM_EVENT_BYTES;
  bytes->event.cookie = id_of_key(&p->key);
  bytes->born_ns = p->born_ns;
  bytes->first_seq = p->first_seq;
  bytes->seq = p->seq;
  bytes->length = length;
  bytes->port = swapped ? p->key.local_port : p->key.remote_port;
  if (bpf_dynptr_from_skb(skb, 0, &packet) ||
      bpf_dynptr_read(bytes->bytes, length, &packet, p->header, 0))
    bpf_ringbuf_discard(bytes, BPF_RB_NO_WAKEUP);
  else
    bpf_ringbuf_submit(bytes, wakeup_of_reader());
  return 0;
}

/* Counts a packet that has no flow. */
static __noinline int add_passing_to_rest(const struct nm_passing *p,
                                          __u32 reason) {
  struct nm_flow_counts counts = {};

  if (!p) return 0;
  if (p->sends) {
    counts.tx_bytes = p->bytes;
    counts.tx_packets = p->segments;
  } else {
    counts.rx_bytes = p->bytes;
    counts.rx_packets = p->segments;
  }
  return add_rest(NM_SLOT_FORWARDED | p->key.uplinks, p->key.cookie, reason, 0,
                  &counts);
}

static __always_inline void follow_forwarded(struct bpf_nf_ctx *ctx) {
  const struct nf_hook_state *state = ctx->state;
  struct sk_buff *skb = ctx->skb;
  struct nm_passing p = {};
  struct nm_ending ending = {};
  __u32 reason = 0;
  int passed;

  read_passing(skb, state, &p);
  passed = pass(&p, skb, state, &reason);
  if (passed == NM_PASS_OVER) {
    /* Another CPU may do the same, and have begun the next flow. */
    ending.last_ns = p.last_ns;
    ending.now_ns = bpf_ktime_get_ns();
    ending.end = NM_END_CLOSED;
    end_flow(&p.key, &ending);
    passed = pass(&p, skb, state, &reason);
  }
  if (passed == NM_PASSED_NAMING)
    send_first_bytes(skb, &p);
  else if (passed != NM_PASSED)
    add_passing_to_rest(&p, reason);
}

#endif /* NETMETER_BPF_FLOW_FORWARD_BPF_H_ */
