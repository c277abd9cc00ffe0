/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The bytes and segments of a packet on the link.
 *
 * At every hook the packet begins with its IP header, and skb->len counts from there. The
 * link carries the same bytes, with one exception: a GSO packet (on the way out) or a GRO
 * packet (on the way in) stands for several segments with one set of headers, while on
 * the link each segment has its own. So it counts as
 *
 *   len + (segments - 1) x headers
 *
 * with all headers from IP to transport, including extensions and options. The kernel
 * puts the jumbo payload option (RFC 2675) into such a packet, and removes it before the
 * link.
 *
 * Each kind of program reads the headers in a way of its own: packet.bpf.h,
 * fast_path.bpf.h and forward.bpf.c.
 */
#ifndef NETMETER_BPF_WIRE_SIZE_BPF_H_
#define NETMETER_BPF_WIRE_SIZE_BPF_H_

#include "bpf/kernel.bpf.h"

#define NM_MAX_EXTENSIONS 8 /* of IPv6, one after another */
#define NM_JUMBO_BYTES 8    /* of the jumbo payload option, with its padding */

/* The segments of a packet of which only the size of their payload is known. */
static __always_inline __u32 segments_by_size(__u32 payload, __u32 size) {
  return (payload + size - 1) / size;
}

/* The bytes on the link of a packet of at least one segment. `headers` are the bytes of
 * its headers, and `jumbo` those of them that the link never sees. */
static __always_inline __u32 bytes_on_link(__u32 bytes, __u32 segments,
                                           __u32 headers, __u32 jumbo) {
  return bytes + (segments - 1) * (headers - jumbo) - jumbo;
}

#endif /* NETMETER_BPF_WIRE_SIZE_BPF_H_ */
