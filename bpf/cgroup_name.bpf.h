/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Names a process by its systemd unit and container, which are the names of its cgroup
 * and of the cgroups above. The lookup happens when the process executes a program. So a
 * program that an exec starts in a running container belongs to the container, and a
 * process that is moved to another cgroup keeps its name.
 *
 *   magma@state.service         a unit: the innermost that is in no container
 *   docker-<64 digits>.scope    a container: the innermost; also libpod-, crio-,
 *   <64 digits>                 cri-containerd- and nerdctl-, with .scope or not;
 *                               its name is the first 12 digits
 *
 * A unit in the configuration is a service: nm_units finds the longest pattern that
 * matches. Other units and containers have kinds of their own.
 *
 * The names are in the kernel's memory, so they need bpf_probe_read_kernel(), which
 * lockdown=confidentiality refuses.
 */
#ifndef NETMETER_BPF_CGROUP_NAME_BPF_H_
#define NETMETER_BPF_CGROUP_NAME_BPF_H_

#include "bpf/names.bpf.h"

#define NM_PLACE_LEVELS 8 /* cgroups looked at, from the innermost upwards */
#define NM_CONTAINER_DIGITS 64
#define NM_SHORT_ID 12

/* What a cgroup's name says, as one number: the kind, and the offset and length of the
 * relevant part of the name. 0: nothing. */
#define NM_PLACE(kind, offset, length) \
  ((__u32)(kind) << 16 | (__u32)(offset) << 8 | (__u32)(length))
#define NM_PLACE_KIND(place) ((place) >> 16)
#define NM_PLACE_OFFSET(place) ((place) >> 8 & 0xff)
#define NM_PLACE_LENGTH(place) ((place)&0xff)

/* The last eight bytes of a name, as a little-endian number. */
#define NM_LAST_SERVICE 0x656369767265732eULL /* ".service" */
#define NM_LAST_SCOPE 0x65706f63732eULL       /* ".scope", above two others */

/* 1 if a byte is a digit of a container's id, else 0; without branches. */
static __always_inline __u32 is_id_digit(__u32 byte) {
  return 1 ^ (((byte - '0') | ('9' - byte)) >> 31 &
              ((byte - 'a') | ('f' - byte)) >> 31);
}

/* Whether `address` has NM_CONTAINER_DIGITS digits. A '-' must precede them, unless the
 * name begins there. */
NM_GLOBAL int nm_is_container_id(__u64 address, int begins) {
  __u8 text[NM_CONTAINER_DIGITS] = {}, before = '-';
  __u32 all = 1;

  if (bpf_probe_read_kernel(text, sizeof(text), (void *)address)) return 0;
  if (!begins && bpf_probe_read_kernel(&before, 1, (void *)(address - 1)))
    return 0;
  for (int i = 0; i < NM_CONTAINER_DIGITS; i++) {
    __u32 byte = text[i];

    barrier_var(byte);
    all &= is_id_digit(byte);
  }
  return before == '-' && all;
}

/* NM_PLACE of a cgroup's name. */
NM_GLOBAL __u32 nm_place_of_name(__u64 name) {
  __u8 text[136] = {};
  __u64 last = 0;
  long length = bpf_probe_read_kernel_str(text, sizeof(text), (void *)name) - 1;
  long rest;

  /* A name has up to 255 bytes (NAME_MAX), more than the stack has room for. */
  if (length == sizeof(text) - 1) {
    rest =
        bpf_probe_read_kernel_str(text, sizeof(text), (void *)(name + length)) -
        1;
    if (rest < 0 || rest > 255 - length) return 0;
    length += rest;
  }
  if (length < 9) return 0; /* too short for either */
  if (bpf_probe_read_kernel(&last, sizeof(last), (void *)(name + length - 8)))
    return 0;
  if (last == NM_LAST_SERVICE) return NM_PLACE(NM_KIND_UNIT, 0, length);
  if (last >> 16 == NM_LAST_SCOPE) length -= 6;
  if (length < NM_CONTAINER_DIGITS) return 0;
  length -= NM_CONTAINER_DIGITS;
  if (!nm_is_container_id(name + length, !length)) return 0;
  return NM_PLACE(NM_KIND_CONTAINER, length, NM_SHORT_ID);
}

static __always_inline bool is_before(__u32 source, __u32 rank) {
  return nm_config.ranks[source] && nm_config.ranks[source] < rank;
}

/* Replaces `text`, the name of a unit, by the name of its configured service. Returns
 * false if the configuration has none for it. */
static __always_inline bool service_of_unit(__u8 *text, __u64 unit,
                                            __u32 length) {
  struct nm_unit_key key = {.bits = 8 * NM_NAME_BYTES};
  struct nm_unit_service *service;
  int rest;

  __builtin_memcpy(key.unit, text, NM_NAME_BYTES);
  service = bpf_map_lookup_elem(&nm_units, &key);
  if (!service) return false;
  rest = (int)length - (int)service->rest_from - 8;
  /* "a.*.service" and "a.service" begin alike, but the first does not match the second. A
   * shorter pattern may match. */
  if (rest < 0) {
    key.bits = 8 * (length - 8);
    service = bpf_map_lookup_elem(&nm_units, &key);
    if (!service) return false;
    rest = (int)length - (int)service->rest_from - 8;
  }
  if (!service->rest) {
    __builtin_memcpy(text, service->name, NM_NAME_BYTES);
    return true;
  }
  if (rest <= 0) return true; /* "magma@.service" */
  /* The text that '*' matches: up to ".service". Bytes are masked, because older
   * verifiers lose the bounds of a length. */
  bpf_probe_read_kernel_str(text, NM_NAME_BYTES + 1,
                            (void *)(unit + service->rest_from));
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    int before_end = i - rest;

    barrier_var(before_end);
    text[i] &= before_end >> 31;
  }
  return true;
}

/* Returns the rank of the process's name afterwards. A function of its own has the stack
 * for it. */
static __noinline int name_by_unit(struct nm_process *process, __u64 unit,
                                   __u32 length, __u32 rank) {
  __u8 text[NM_NAME_BYTES + 1] = {};

  if (!process) return rank;
  bpf_probe_read_kernel_str(text, sizeof(text), (void *)unit);
  if (is_before(NM_SOURCE_SERVICE_LIST, rank) &&
      service_of_unit(text, unit, length)) {
    if (may_be_service(text)) {
      process->kind = NM_KIND_SERVICE;
      __builtin_memcpy(process->bytes, text, NM_NAME_BYTES);
      return nm_config.ranks[NM_SOURCE_SERVICE_LIST];
    }
    /* A unit that may not be this service stays a unit. */
    bpf_probe_read_kernel_str(text, sizeof(text), (void *)unit);
  }
  if (!is_before(NM_SOURCE_UNIT, rank)) return rank;
  process->kind = NM_KIND_UNIT;
  __builtin_memcpy(process->bytes, text, NM_NAME_BYTES);
  return nm_config.ranks[NM_SOURCE_UNIT];
}

/* Names a process by its unit or container, if that comes before `rank`, the rank of its
 * current name. */
static __noinline int name_by_place(struct task_struct *task,
                                    struct nm_process *process, __u32 rank) {
  __u64 unit = 0, container = 0, name;
  __u32 unit_place = 0, container_place = 0, place;
  struct cgroup_subsys_state *above;
  struct css_set *set;
  struct cgroup *cgroup;

  if (!task || !process) return 0;
  set = task->cgroups;
  if (!set) return 0;
  cgroup = set->dfl_cgrp;
  for (int i = 0; i < NM_PLACE_LEVELS; i++) {
    if (!cgroup) break;
    /* Newer verifiers treat a loaded string as a pointer, and then would not have it as a
     * number. */
    name = 0;
    bpf_core_read(&name, sizeof(name), &cgroup->kn->name);
    place = nm_place_of_name(name);
    if (NM_PLACE_KIND(place) == NM_KIND_CONTAINER) {
      if (!container) {
        container = name;
        container_place = place;
      }
      unit = 0;
    } else if (NM_PLACE_KIND(place) == NM_KIND_UNIT && !unit) {
      unit = name;
      unit_place = place;
    }
    above = cgroup->self.parent;
    if (!above) break;
    cgroup = above->cgroup;
  }
  if (unit)
    rank = name_by_unit(process, unit, NM_PLACE_LENGTH(unit_place), rank);
  if (container && is_before(NM_SOURCE_CONTAINER, rank)) {
    process->kind = NM_KIND_CONTAINER;
    __builtin_memset(process->bytes, 0, NM_NAME_BYTES);
    bpf_probe_read_kernel(
        process->bytes, NM_SHORT_ID,
        (void *)(container + NM_PLACE_OFFSET(container_place)));
  }
  return 0;
}

#endif /* NETMETER_BPF_CGROUP_NAME_BPF_H_ */
