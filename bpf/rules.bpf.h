/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * What the configuration says about the remote end of a packet: the rules for its
 * destination, and the ports of proxies, TLS and HTTP.
 */
#ifndef NETMETER_BPF_RULES_BPF_H_
#define NETMETER_BPF_RULES_BPF_H_

#include "bpf/packet.bpf.h"

static __always_inline __u16 remote_port(const union nm_traits *traits,
                                         enum nm_direction direction) {
  return direction == NM_EGRESS ? traits->dport : traits->sport;
}

/* Whether a rule may match a packet to or from this port. */
static __always_inline bool rules_may_match(__u32 port) {
  return port - nm_config.rules_port_first < nm_config.rules_ports;
}

/* Whether this packet may need another slot than the one kept with its socket. Only a TCP
 * connection has one remote end for all its life. */
static __always_inline bool may_match_a_rule(struct __sk_buff *skb,
                                             const union nm_traits *traits,
                                             enum nm_direction direction) {
  return nm_config.rules_ports &&
         (traits->transport != NM_TRANSPORT_TCP || !skb->sk ||
          skb->sk->state == TCP_LISTEN) &&
         rules_may_match(remote_port(traits, direction));
}

#define NM_RULE_YIELDS 0x10000

/* The destination of the first rule that matches this remote end, and whether the rule
 * yields. */
static __always_inline __u32 match_rules(const __u32 address[4], __u32 port,
                                         __u32 protocol) {
  for (__u32 i = 0; i < NM_MAX_RULES; i++) {
    __u32 index = i;
    struct nm_rule *rule;

    if (i >= nm_config.rules_count) break;
    rule = bpf_map_lookup_elem(&nm_rules, &index);
    if (!rule) break;
    if ((rule->protocol && rule->protocol != protocol) ||
        port < rule->port_first || port > rule->port_last)
      continue;
    if (((address[0] ^ rule->address[0]) & rule->mask[0]) |
        ((address[1] ^ rule->address[1]) & rule->mask[1]) |
        ((address[2] ^ rule->address[2]) & rule->mask[2]) |
        ((address[3] ^ rule->address[3]) & rule->mask[3]))
      continue;
    return rule->destination | (rule->yields ? NM_RULE_YIELDS : 0);
  }
  return NM_NAME_EMPTY;
}

/* As match_rules(), of the packet's remote end. `port` is the port of that end. */
NM_GLOBAL __u32 nm_match_rules(struct __sk_buff *skb, __u32 direction,
                               __u32 port, __u32 protocol) {
  __u32 address[4] = {};

  remote_address(skb, direction, address);
  return match_rules(address, port, protocol);
}

static __always_inline bool is_one_of(const volatile __u16 *ports, __u32 count,
                                      __u32 most, __u16 port) {
  for (__u32 i = 0; i < most; i++) {
    if (i >= count) break;
    if (ports[i] == port) return true;
  }
  return false;
}

/* Whether one of two ports is a proxy's: the halves of `ports`. */
NM_GLOBAL int nm_has_proxy_port(__u32 ports) {
  for (__u32 i = 0; i < NM_MAX_PROXY_PORTS; i++) {
    if (i >= nm_config.proxy_ports_count) break;
    if (nm_config.proxy_ports[i] == (ports & 0xffff) ||
        nm_config.proxy_ports[i] == ports >> 16)
      return 1;
  }
  return 0;
}

/* As nm_has_proxy_port(). Nearly all packets over loopback come here, so a word of bits
 * excludes most ports without a call. */
static __always_inline bool has_proxy_port(__u32 ports) {
  const __u64 bits = nm_config.proxy_port_bits;

  return (bits >> NM_PORT_BIT(ports) | bits >> NM_PORT_BIT(ports >> 16)) & 1 &&
         nm_has_proxy_port(ports);
}

/* The protocol by which a connection to this port names its destination. Global, because
 * its caller has no stack left. */
NM_GLOBAL int nm_protocol_of(__u32 port) {
  if (is_one_of(nm_config.sni_ports, nm_config.sni_ports_count,
                NM_MAX_SNI_PORTS, port))
    return NM_WIRE_TLS;
  return is_one_of(nm_config.http_ports, nm_config.http_ports_count,
                   NM_MAX_HTTP_PORTS, port)
             ? NM_WIRE_HTTP
             : NM_WIRE_NONE;
}

#endif /* NETMETER_BPF_RULES_BPF_H_ */
