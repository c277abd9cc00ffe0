/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Definitions of the kernel that none of its headers gives to a BPF program: some
 * constants, and the members of its structures that are read here. CO-RE finds their
 * offsets at load. So the object does not depend on the kernel of the build machine, and
 * there is no vmlinux.h.
 *
 * Tracing programs, and from 5.11 on callers of bpf_get_current_task_btf(), follow a
 * kernel's pointer directly, because the verifier knows its type. Others need
 * bpf_probe_read_kernel().
 */
#ifndef NETMETER_BPF_KERNEL_BPF_H_
#define NETMETER_BPF_KERNEL_BPF_H_

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* A global function. The verifier walks it once, with arguments of which it knows only
 * the type, and does not walk it again at each call. It walks a static function anew at
 * every call, inlined or not. */
#define NM_GLOBAL __attribute__((noinline))

/* Hides the value of a variable from the compiler. */
#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

/* Copies a string of the current process with its NUL, or size - 1 bytes of it and a NUL.
 * Returns the number of bytes with the NUL, or a negative number. */
static __always_inline long nm_read_string(void *to, __u32 size,
                                           __u64 address) {
  return bpf_probe_read_user_str(to, size, (void *)address);
}

/* As nm_read_string(), of the kernel's memory. */
static __always_inline long nm_read_name(void *to, __u32 size, __u64 address) {
  return bpf_probe_read_kernel_str(to, size, (void *)address);
}

#define PASS 1 /* of cgroup programs: let the packet or the call go on */

#define LOOPBACK_IFINDEX 1 /* in every network namespace */
/* skb->pkt_type */
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3 /* of BPF_PROG_TEST_RUN only */
#define PACKET_LOOPBACK 5  /* a multicast's duplicate to ourselves */

#define AF_INET 2
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_RAW 3

/* bpf_sock.state */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11

#define __kernel_type __attribute__((preserve_access_index))

typedef struct {
  int counter;
} atomic_t;

struct ns_common {
  unsigned int inum;
} __kernel_type;

struct net {
  struct ns_common ns;
} __kernel_type;

typedef struct {
  struct net *net;
} __kernel_type possible_net_t;

struct net_device {
  char name[16];
  int ifindex;
  unsigned short type; /* ARPHRD_* */
  possible_net_t nd_net;
} __kernel_type;

typedef struct {
  __s64 counter;
} atomic64_t;

struct sock_common {
  possible_net_t skc_net;
  atomic64_t skc_cookie;
} __kernel_type;

struct sock {
  struct sock_common __sk_common;
  int sk_err;
} __kernel_type;

struct sk_buff {
  struct sock *sk;
  struct net_device *dev;
  unsigned int len;
  unsigned int data_len;
  unsigned char *head;
  unsigned int end;
  __u16 network_header;
  __u16 mac_header;
  __u16 inner_transport_header;
  __u8 pkt_type : 3;
  __u8 encapsulation : 1;
} __kernel_type;

struct skb_shared_info {
  unsigned short gso_size;
  unsigned short gso_segs;
  unsigned int gso_type;
} __kernel_type;

struct inet_sock {
  struct sock sk;
} __kernel_type;

struct inet_connection_sock {
  struct inet_sock icsk_inet;
} __kernel_type;

struct tcp_sock {
  struct inet_connection_sock inet_conn;
} __kernel_type;

/* The context of a setsockopt program, of which struct bpf_sockopt shows a part. */
struct bpf_sockopt_kern {
  struct sock *sk;
} __kernel_type;

/* The error of the socket: ETIMEDOUT, ECONNRESET and so on; 0: none. */
static __always_inline __u32 error_of_socket(struct bpf_sock *sk) {
  struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

  return tcp ? tcp->inet_conn.icsk_inet.sk.sk_err : 0;
}

/* A field of a struct bpf_sock. Prevents clang from merging two loads into one at a
 * computed address, which the verifier refuses. */
#define SOCKET_WORD(sk, field) (*(volatile __u32 *)&(sk)->field)

/* Context of a netfilter program (Linux 6.4). */
struct nf_hook_state {
  __u8 pf;
  struct net_device *in;
  struct net_device *out;
} __kernel_type;

struct bpf_nf_ctx {
  const struct nf_hook_state *state;
  struct sk_buff *skb;
} __kernel_type;

struct signal_struct {
  atomic_t live;
} __kernel_type;

struct mm_struct {
  unsigned long arg_start;
  unsigned long arg_end;
  struct file *exe_file; /* a child has its parent's, until it executes */
} __kernel_type;

struct kernfs_node {
  const char *name;
} __kernel_type;

struct cgroup_subsys_state {
  struct cgroup *cgroup;
  struct cgroup_subsys_state *parent;
} __kernel_type;

struct cgroup {
  struct cgroup_subsys_state self;
  struct kernfs_node *kn;
} __kernel_type;

struct css_set {
  struct cgroup *dfl_cgrp; /* of cgroup v2 */
} __kernel_type;

struct task_struct {
  struct css_set *cgroups;
  struct mm_struct *mm;
  int tgid;
  struct task_struct *real_parent;
  struct task_struct *group_leader;
  struct signal_struct *signal;
  unsigned long long start_boottime;
  unsigned long long self_exec_id; /* one more at each exec */
  char comm[16];
} __kernel_type;

struct qstr {
  const unsigned char *name;
} __kernel_type;

struct dentry {
  struct qstr d_name;
} __kernel_type;

struct path {
  struct dentry *dentry;
} __kernel_type;

struct file {
  struct path f_path;
} __kernel_type;

struct linux_binprm {
  struct file *file;  /* of a script: its interpreter */
  unsigned long exec; /* address of the path on the new stack */
} __kernel_type;

#endif /* NETMETER_BPF_KERNEL_BPF_H_ */
