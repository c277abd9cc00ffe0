// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * The kernel part of libnetmeter. Names are resolved in process context, because only
 * there they can be trusted. Packets are counted at the cgroup hooks. No program here
 * ever drops a packet, or fails a system call that is not addressed to it.
 *
 * This file has the entry points of the twelve programs and nothing else: it says when
 * something is done. Other files say what is done. README.md lists them in reading order.
 * It also has the table of maps, and the steps to add a counter.
 */
#define __BPF__ 1
#include "bpf/command.bpf.h"
#include "bpf/connection.bpf.h"
#include "bpf/control.bpf.h"
#include "bpf/fast_path.bpf.h"
#include "bpf/kernel.bpf.h"
#include "bpf/process.bpf.h"
#include "bpf/socket.bpf.h"

/* --- Processes: which service opens a socket ----------------------------- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(nm_exec, struct task_struct *task, int old_pid,
             struct linux_binprm *bprm) {
  process_executed(task, process_executes(task, bprm));
  return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(nm_fork, struct task_struct *parent, struct task_struct *child) {
  process_forks(parent, child);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(nm_exit, struct task_struct *task) {
  process_exits(task);
  return 0;
}

/* --- Sockets: their owners ----------------------------------------------- */

SEC("cgroup/sock_create")
int nm_sock_create(struct bpf_sock *sk) {
  socket_created(sk);
  return PASS;
}

SEC("cgroup/sock_release")
int nm_sock_release(struct bpf_sock *sk) {
  socket_released(sk);
  return PASS;
}

SEC("cgroup/setsockopt")
int nm_setsockopt(struct bpf_sockopt *ctx) {
  if (ctx->level != NM_SOL) {
    /* The program sees one page at most. 5.10 fails the call with EFAULT unless the
     * program sets 0, which says to take the caller's own buffer. */
    if ((long)ctx->optlen > (long)ctx->optval_end - (long)ctx->optval)
      ctx->optlen = 0;
    return PASS;
  }
  if (!run_control(ctx)) {
    COUNT(refused_controls, 1);
    return 0; /* EPERM */
  }
  ctx->optlen = -1; /* done: the kernel's own handler is not called */
  return PASS;
}

/* --- Packets: counted in the series of their socket ---------------------- */

SEC("cgroup_skb/ingress")
int nm_ingress(struct __sk_buff *skb) {
  count_ingress(skb);
  return PASS;
}

/* One of these two is loaded: enum nm_adds. They need different kernel features, and a
 * verifier refuses to load a program with a feature that it does not know. */
SEC("cgroup_skb/egress")
int nm_egress(struct __sk_buff *skb) {
  count_egress(skb, NM_ADDS_PLAIN);
  return PASS;
}

SEC("cgroup_skb/egress")
int nm_egress_claim(struct __sk_buff *skb) {
  count_egress(skb, NM_ADDS_CLAIMED);
  return PASS;
}

/* --- Connections: from connect(2) to the last packet --------------------- */

SEC("sockops")
int nm_sockops(struct bpf_sock_ops *ops) {
  struct bpf_sock *sk;

  /* Most calls tell of states that do not matter, or ask for values. */
  if (ops->op == BPF_SOCK_OPS_STATE_CB ? ops->args[1] != TCP_CLOSE
                                       : ops->op < BPF_SOCK_OPS_TCP_CONNECT_CB)
    return 1;
  sk = ops->sk;
  if (!sk) return 1;
  switch (ops->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
      on_connect_listen_or_accept(ops, sk);
      break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
      on_established(ops, sk);
      break;
    case BPF_SOCK_OPS_RTO_CB:
      if (!ops->args[2]) on_retransmit(ops, sk, 1, 0); /* else it gives up */
      break;
    case BPF_SOCK_OPS_RETRANS_CB:
      on_retransmit(ops, sk, 0, ops->args[1]);
      break;
    case BPF_SOCK_OPS_STATE_CB:
      on_closed(ops, sk);
      break;
  }
  return 1;
}

/* --- The loader ---------------------------------------------------------- */

SEC("tc")
int nm_command(struct __sk_buff *skb) { return run_command(skb); }

SEC("iter/bpf_sk_storage_map")
int nm_scan(struct bpf_iter__bpf_sk_storage_map *ctx) {
  if (ctx->value) mark_what_is_held(ctx->value);
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
