/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Names a process by its systemd unit and container, which are the names of its cgroup
 * and of the cgroups above. The lookup happens when the process executes a program. So a
 * program that an exec starts in a running container belongs to the container, and a
 * process that is moved to another cgroup keeps its name.
 *
 *   magma@state.service           a unit: the innermost
 *   docker-<64 digits>.scope      a container: the innermost; also libpod-, crio-,
 *   <64 digits>                   cri-containerd- and nerdctl-, with .scope or not; its
 *                                 name is the first 12 digits
 *   lxc.payload.NAME              a container of LXC or Incus
 *   machine-NAME.scope            a machine of systemd-machined(8)
 *   systemd-nspawn@NAME.service   a container, if the next cgroup is "payload"
 *
 * A unit of the host that is in the configuration is a service: nm_units finds the
 * longest pattern that matches. Other units and containers have kinds of their own. The
 * name of a unit in a container is CONTAINER/UNIT.
 *
 * systemd starts one unit for each connection of a socket unit with Accept=yes, and names
 * it after the peer: sshd@3-10.0.0.1:22-10.0.0.9:4242.service. A peer must not add names,
 * so this name becomes sshd@.service.
 *
 * The kernel runs this code at exec; the loader runs it on the names in /proc/PID/cgroup.
 * On the host, a file that includes this one first defines nm_read_name() of
 * kernel.bpf.h, as for command_line.bpf.h.
 */
#ifndef NETMETER_BPF_CGROUP_NAME_BPF_H_
#define NETMETER_BPF_CGROUP_NAME_BPF_H_

#include "bpf/command_line.bpf.h"

#define NM_CGROUP_LEVELS 8 /* cgroups looked at, from the innermost upwards */
#define NM_CONTAINER_DIGITS 64
#define NM_SHORT_ID 12

/* What a cgroup's name says, as one number: the kind, and the offset and length of the
 * relevant part of the name. 0: nothing. */
#define NM_CGROUP_NAME(kind, offset, length) \
  ((nm_u32)(kind) << 16 | (nm_u32)(offset) << 8 | (nm_u32)(length))
#define NM_CGROUP_NAME_KIND(parsed) ((parsed) >> 16)
#define NM_CGROUP_NAME_OFFSET(parsed) ((parsed) >> 8 & 0xff)
#define NM_CGROUP_NAME_LENGTH(parsed) ((parsed)&0xff)

/* Eight bytes of a name, as a little-endian number. */
#define NM_IS_SERVICE 0x656369767265732eULL /* ".service" */
#define NM_IS_SCOPE 0x65706f63732eULL       /* ".scope", above two others */
#define NM_IS_PAYLOAD 0x0064616f6c796170ULL /* "payload" */
#define NM_IS_NSPAWN 0x2d646d6574737973ULL  /* "systemd-" */
#define NM_IS_NSPAWN_2 0x406e776170736eULL  /* "nspawn@" */
#define NM_IS_LXC 0x6c7961702e63786cULL     /* "lxc.payl" */
#define NM_IS_MACHINE 0x2d656e696863616dULL /* "machine-" */

/* 1 if a byte is a digit of a container's id, else 0; without branches. */
static __always_inline nm_u32 is_id_digit(nm_u32 byte) {
  return 1 ^ (((byte - '0') | ('9' - byte)) >> 31 &
              ((byte - 'a') | ('f' - byte)) >> 31);
}

/* Whether `address` has NM_CONTAINER_DIGITS digits. A '-' must precede them, unless the
 * name begins there. */
NM_GLOBAL int nm_is_container_id(nm_u64 address, int begins) {
  nm_u8 text[NM_CONTAINER_DIGITS + 1] = {}, before[2] = {'-'};
  nm_u32 all = 1;

  if (nm_read_name(text, sizeof(text), address) < 0) return 0;
  if (!begins && nm_read_name(before, sizeof(before), address - 1) < 0)
    return 0;
  for (int i = 0; i < NM_CONTAINER_DIGITS; i++) {
    nm_u32 byte = text[i];

    barrier_var(byte);
    all &= is_id_digit(byte);
  }
  return before[0] == '-' && all;
}

/* Eight bytes of a name, up to its end. */
static __always_inline nm_u64 nm_word_of_name(nm_u64 address) {
  union {
    nm_u64 word;
    nm_u8 text[16];
  } part = {};

  if (nm_read_name(part.text, 9, address) < 0) return 0;
  return part.word;
}

/* NM_CGROUP_NAME of a cgroup's name. `inner` is the name of the next cgroup towards the
 * process, or 0. */
NM_GLOBAL nm_u32 nm_parse_cgroup_name(nm_u64 name, nm_u64 inner) {
  nm_u8 text[136] = {};
  nm_u64 first, last;
  long length = nm_read_name(text, sizeof(text), name) - 1;
  long rest;

  /* A name has up to 255 bytes (NAME_MAX), more than the stack has room for. */
  if (length == sizeof(text) - 1) {
    rest = nm_read_name(text, sizeof(text), name + length) - 1;
    if (rest < 0 || rest > 255 - length) return 0;
    length += rest;
  }
  if (length < 9) return 0; /* too short for any */
  first = nm_word_of_name(name);
  last = nm_word_of_name(name + length - 8);
  if (last == NM_IS_SERVICE) {
    if (inner && first == NM_IS_NSPAWN && length > 15 + 8 &&
        nm_word_of_name(name + 8) << 8 == NM_IS_NSPAWN_2 << 8 &&
        nm_word_of_name(inner) == NM_IS_PAYLOAD)
      return NM_CGROUP_NAME(NM_KIND_CONTAINER, 15, length - 15 - 8);
    return NM_CGROUP_NAME(NM_KIND_UNIT, 0, length);
  }
  if (first == NM_IS_LXC && length > 12)
    return NM_CGROUP_NAME(NM_KIND_CONTAINER, 12, length - 12);
  if (last >> 16 == NM_IS_SCOPE) {
    length -= 6;
    if (first == NM_IS_MACHINE && length > 8)
      return NM_CGROUP_NAME(NM_KIND_CONTAINER, 8, length - 8);
  }
  if (length < NM_CONTAINER_DIGITS) return 0;
  length -= NM_CONTAINER_DIGITS;
  if (!nm_is_container_id(name + length, !length)) return 0;
  return NM_CGROUP_NAME(NM_KIND_CONTAINER, length, NM_SHORT_ID);
}

/* The length of a unit's name up to and with its '@', if its instance is that of a
 * connection, as systemd names them (instance_from_socket() in its socket.c). Else 0,
 * also for postgresql@15-main. An instance is a number, '-', and one of these:
 *
 *   10.0.0.1:22-10.0.0.9:4242   IPv4; IPv6 is written as usual
 *   2:1024-3:99                 vsock
 *   812-1000, unknown           a Unix socket's process and user */
NM_GLOBAL nm_u32 nm_length_of_template(nm_u64 unit) {
  nm_u8 text[NM_NAME_BYTES + 1] = {};
  nm_u32 at = 0, none = ~0u, after = 0, number = 0, found = 0;
  nm_u32 begins = 0, decimal = 0, hex = 0; /* the part after "number-" */

  if (nm_read_name(text, sizeof(text), unit) < 0) return 0;
  for (nm_u32 i = 0; i < NM_NAME_BYTES; i++) {
    nm_u32 byte = text[i], is_at, digit, dash, id_digit;

    barrier_var(byte);
    digit = -nm_is_digit(byte);
    dash = ~nm_mask_of_byte(byte ^ '-');
    id_digit = is_id_digit(byte);
    barrier_var(id_digit); /* else clang branches */
    found |= at & ((decimal & (dash | ~nm_mask_of_byte(byte ^ '.'))) |
                   (hex & ~nm_mask_of_byte(byte ^ ':')) |
                   (begins & ~nm_mask_of_byte(byte ^ 'u')));
    begins = number & dash;
    decimal = begins | (decimal & digit);
    hex = begins | (hex & -id_digit);
    number = (number | after) & digit;
    is_at = none & ~nm_mask_of_byte(byte ^ '@');
    after = is_at;
    at |= is_at & (i + 1);
    none &= ~is_at;
  }
  return found;
}

#endif /* NETMETER_BPF_CGROUP_NAME_BPF_H_ */
