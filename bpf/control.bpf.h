/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The control channel: a process names itself, or one of its sockets, by setsockopt(2) at
 * a level of our own, NM_SOL. Any language can call that, without privileges. The kernel
 * knows which process calls and which socket it holds, so no process can speak for
 * another one.
 *
 * The program runs before the kernel's own handler. It takes the calls for NM_SOL, and
 * tells the kernel that they are done. Every other call goes on as if the program were
 * not there.
 */
#ifndef NETMETER_BPF_CONTROL_BPF_H_
#define NETMETER_BPF_CONTROL_BPF_H_

#include "bpf/socket.bpf.h"

/* A byte of the option's value, or 0 after its end. Global, because the verifier would
 * otherwise follow both branches at each byte. */
NM_GLOBAL __u32 nm_byte_of_option(struct bpf_sockopt *ctx, __u32 index) {
  __u8 *value = ctx->optval, *end = ctx->optval_end;

  value += index % NM_NAME_BYTES;
  return value + 1 <= end ? *value : 0;
}

/* Reads a name of 1 to NM_NAME_BYTES bytes without NUL into zeros. If a meter of an inner
 * cgroup has taken the call before us, the length is its -1. The kernel's copy of the
 * value then ends with a NUL, or with its buffer.
 *
 * The loop reads all bytes, because the verifier would follow each exit from it to the
 * end of the program. */
static __always_inline bool read_name(struct bpf_sockopt *ctx,
                                      struct nm_name_key *key) {
  int length = ctx->optlen, sign = length >> 31;
  nm_u32 in_name = ~0u, found = 0;

  if (length < -1 || !length || length > NM_NAME_BYTES) return false;
  barrier_var(sign);
  length += sign & (NM_NAME_BYTES + 1); /* -1: the longest possible */
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    nm_u32 byte = nm_byte_of_option(ctx, i);
    int before_end = i - length;

    barrier_var(before_end);
    in_name &= before_end >> 31 & nm_mask_of_byte(byte);
    barrier_var(in_name);
    key->bytes[i] = byte & in_name;
    found += in_name & 1;
  }
  key->length = found;
  return key->length == length || (key->length && ctx->optlen == -1);
}

/* NM_REGISTER: names the calling process. */
static __always_inline bool register_process(__u32 tgid,
                                             struct nm_name_key *key,
                                             __u32 id) {
  struct nm_process process = {};

  process.name = id;
  process.kind = NM_KIND_SERVICE;
  process.flags = NM_FLAG_REGISTERED;
  __builtin_memcpy(process.bytes, key->bytes, NM_NAME_BYTES);
  if (nm_config.untracked) process.stamp = process_stamp();
  if (bpf_map_update_elem(&nm_processes, &tgid, &process, BPF_ANY)) {
    COUNT(processes_full, 1);
    return false;
  }
  COUNT(registrations, 1);
  return true;
}

/* NM_SERVICE: gives a socket to the service whose name is `id`. */
static __always_inline void give_to_service(struct nm_owner *owner, __u32 tgid,
                                            __u32 id) {
  union nm_attribution attribution = {};
  struct nm_process *process;

  attribution.service = id;
  attribution.kind = NM_KIND_SERVICE;
  /* A name alone is no promise to publish. Registering is. */
  process = bpf_map_lookup_elem(&nm_processes, &tgid);
  if (process && process->name == id)
    attribution.flags = process->flags & NM_FLAG_REGISTERED;
  *(volatile __u32 *)&owner->attribution.word = attribution.word;
}

/* The cookie of the socket of a call. No helper has it here. */
static __always_inline __u64 cookie_of_option(struct bpf_sockopt *ctx) {
  return BPF_CORE_READ((struct bpf_sockopt_kern *)ctx, sk,
                       __sk_common.skc_cookie.counter);
}

/* Whether a call at level NM_SOL was granted. A name is made only if all other checks
 * have passed. */
static __always_inline bool run_control(struct bpf_sockopt *ctx) {
  struct nm_name_key key = {};
  struct nm_stored_owner *stored = NULL;
  struct nm_owner *owner = NULL;
  __u64 cookie = 0;
  __u32 tgid, id;
  __u16 user;

  if (ctx->optname != NM_REGISTER && ctx->optname != NM_TAG &&
      ctx->optname != NM_SERVICE)
    return false;
  if (!read_name(ctx, &key)) return false;
  if (ctx->sk) {
    cookie = cookie_of_option(ctx);
    owner = owner_of(ctx->sk, cookie, &stored);
  }
  tgid = current_tgid();
  if (ctx->optname != NM_REGISTER && !owner) return false;

  key.kind = ctx->optname == NM_TAG ? NM_KIND_DESTINATION : NM_KIND_SERVICE;
  if (ctx->optname != NM_TAG && !may_be_service(key.bytes)) return false;
  id = name_id_for_user(&key, current_user());
  if (!id) return false;
  if (ctx->optname == NM_REGISTER) return register_process(tgid, &key, id);
  if (!owner) return false; /* for the verifier */
  if (ctx->optname == NM_TAG)
    owner->tag = id;
  else
    give_to_service(owner, tgid, id);
  /* Root may have made the socket, but the series count against the user that names it.
   * Read again, because the verifier would follow both kinds of users all the way. */
  user = current_user();
  if (user) owner->user = user;
  forget_slot(stored, cookie);
  return true;
}

#endif /* NETMETER_BPF_CONTROL_BPF_H_ */
