/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The uplinks of interfaces: the maps shared by the packet programs (uplink.bpf.h) and
 * the program that counts forwarded packets (forward.bpf.c).
 */
#ifndef NETMETER_BPF_UPLINK_MAPS_BPF_H_
#define NETMETER_BPF_UPLINK_MAPS_BPF_H_

#include "bpf/internal.h"
#include "bpf/kernel.bpf.h"

/* an interface's name, or its beginning -> number of its uplink. The longest match wins.
 * Written by the loader from the configuration. */
struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1024);
  __type(key, struct nm_uplink_key);
  __type(value, __u32);
} nm_uplink_names SEC(".maps");

/* interface, uplink and number of the stay -> what the interface had counted when the
 * stay began, and when it ended. Written by the loader, and by the packet programs when
 * they see an interface for the first time, whose stay begins at 0. Readers treat an
 * interface that is not here in the same way, so a full map loses nothing. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, NM_MAX_INTERFACES);
  __type(key, struct nm_interface_key);
  __type(value, struct nm_interface);
} nm_interfaces SEC(".maps");

/* The uplink of an interface by its name. Also makes it known to `netmeter uplinks`. */
static __always_inline __u32 uplink_of_name(const char name[NM_INTERFACE_BYTES],
                                            __u32 ifindex) {
  struct nm_uplink_key key = {.bits = 8 * NM_INTERFACE_BYTES};
  struct nm_interface_key interface = {.ifindex = ifindex};
  struct nm_interface value = {};
  __u32 *uplink;

  __builtin_memcpy(key.name, name, sizeof(key.name));
  uplink = bpf_map_lookup_elem(&nm_uplink_names, &key);
  interface.uplink = uplink ? *uplink & 0xf : NM_UPLINK_OTHER;
  if (!bpf_map_lookup_elem(&nm_interfaces, &interface)) {
    __builtin_memcpy(value.name, key.name, sizeof(value.name));
    value.began_ns = bpf_ktime_get_boot_ns();
    bpf_map_update_elem(&nm_interfaces, &interface, &value, BPF_NOEXIST);
  }
  return interface.uplink;
}

#endif /* NETMETER_BPF_UPLINK_MAPS_BPF_H_ */
