/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * What the loader tells the programs. The programs of flows.bpf.c get that of the running
 * meter (lib/apps/connections/follower.cc). It may change with each version.
 */
#ifndef NETMETER_BPF_CONFIG_H_
#define NETMETER_BPF_CONFIG_H_

#include "netmeter/abi.h"

#define NM_MAX_PROXY_PORTS 8
#define NM_MAX_SNI_PORTS 16
#define NM_MAX_HTTP_PORTS 16

/* How a program adds to the cell of its own CPU: add.bpf.h. */
enum nm_adds {
  /* Atomically: always possible. */
  NM_ADDS_ATOMIC = 0,
  /* Plainly, if no task can preempt another one in a program: kernels without
   * preemption, and kernels in which migrate_disable() disables it (up to 5.10). */
  NM_ADDS_PLAIN = 1,
  /* Plainly, after an exchange (5.12 and newer) has shown that no other run is adding:
   * one atomic operation instead of one for each add. */
  NM_ADDS_CLAIMED = 2,
};

/* Which paths packets may take: the full path (count.bpf.h) or the fast path
 * (fast_path.bpf.h). */
enum nm_ways {
  NM_WAYS_BOTH = 0,
  NM_WAYS_FULL = 1, /* tests: all packets take the full path */
  NM_WAYS_FAST = 2, /* tests: only packets on the fast path are counted */
};

/* What may name an unregistered process, ahead of its executable. */
enum nm_source {
  NM_SOURCE_COMMAND_LINE = 0,
  NM_SOURCE_SERVICE_LIST = 1, /* executables, and units of the configuration */
  NM_SOURCE_UNIT = 2,
  NM_SOURCE_CONTAINER = 3,
  NM_SOURCE_USER = 4,
  NM_SOURCES = 5,
};

/* The bit of a port in nm_config.proxy_port_bits: not the same for 443 and 8443. */
#define NM_PORT_BIT(port) ((port) >> 1 & 63)

/* Set between open and load. The verifier then removes unused code. */
struct nm_config {
  nm_u32 cells_per_series;
  nm_u32 shared_cell;    /* number of the shared cell, which is the last */
  nm_u32 series_extents; /* of counters and tcp; 0: one */
  nm_u32 first_series;   /* slots of the first one */
  nm_u32 names_extents;
  nm_u32 first_names;
  nm_u32 ingress_adds; /* enum nm_adds: atomic, or not */
  nm_u32 egress_adds;  /* the same for nm_egress; its variants use the others */
  /* Bytes of the meter's records that these programs use: those of a meter that an older
   * version made are shorter. */
  nm_u32 info_size;
  nm_u32 stats_size;
  nm_u32 max_series;
  nm_u32 max_names;
  nm_u32 max_user_names; /* quota of one user; root has none */
  nm_u32 max_user_series;
  nm_u32 socket_mask; /* entries of the socket table - 1: a power of two - 1 */
  nm_u32
      socket_half; /* half of them: from a socket's first entry to its second */
  nm_u32 destination_kinds; /* that have destinations: bits 1 << enum nm_kind */
  nm_u32 registrants;       /* not 0: some services are restricted */
  nm_u32 rules_count;
  /* The ports of the rules: the first, and the number of ports from it on. 0: none. */
  nm_u32 rules_port_first;
  nm_u32 rules_ports;
  nm_u32 task_btf;      /* bpf_get_current_task_btf(): 5.11 and newer */
  nm_u32 tgid_helper;   /* bpf_get_current_pid_tgid() works in setsockopt */
  nm_u32 untracked;     /* no tracing program sees exec, fork and exit */
  nm_u32 mptcp;         /* bpf_skc_to_mptcp_sock() exists */
  nm_u32 reads_errors;  /* sk_err of a TCP socket can be read */
  nm_u32 reads_cgroups; /* cgroups are looked at, for units and containers */
  nm_u32 ranks[NM_SOURCES]; /* lower if earlier in names_from; 0: off */
  nm_u32 ways;              /* enum nm_ways */
  nm_u32 proxy_ports_count;
  nm_u16 proxy_ports[NM_MAX_PROXY_PORTS]; /* host byte order */
  nm_u64 proxy_port_bits; /* 1 << NM_PORT_BIT(port) of each: has_proxy_port() */
  nm_u32 sni_ports_count;
  nm_u16 sni_ports[NM_MAX_SNI_PORTS]; /* host byte order */
  nm_u32 http_ports_count;
  nm_u16 http_ports[NM_MAX_HTTP_PORTS]; /* host byte order */
  nm_u32 uplinks; /* not 0: packets count by uplink: uplink.bpf.h */
  nm_u32 network; /* the namespace that has the uplinks: nm_socket.network */
  nm_u32 netns_cookie; /* packets: bpf_get_netns_cookie(), 6.17 and newer */
};

#endif /* NETMETER_BPF_CONFIG_H_ */
