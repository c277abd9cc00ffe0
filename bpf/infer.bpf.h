/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Which service a process is, from its command line: in the kernel at exec,
 * and on the host for the processes that run when the meter is loaded, and
 * under the fuzzer.
 *
 *   python3 [flags] -m magma.<service>.main     any service
 *   [python3 [flags]] <dir>/<service>/main.py   services of the configuration
 *
 * Whoever includes this defines, before:
 *
 *   long nm_read_string(void *to, __u32 size, __u64 address)
 *       copies a string with its NUL, or size - 1 bytes of it and a NUL;
 *       returns the number of bytes with the NUL, or a negative number. It is
 *       bpf_probe_read_user_str() in the kernel.
 */
#ifndef NETMETER_BPF_INFER_BPF_H_
#define NETMETER_BPF_INFER_BPF_H_

#include "bpf/internal.h"

#define NM_INFER_ARGUMENTS 16 /* of the interpreter; more are not looked at */

enum nm_inferred {
  NM_INFER_NOTHING = 0,
  NM_INFER_MODULE = 1, /* magma.<service>.main */
  NM_INFER_SCRIPT = 2, /* <service>/main.py: only if it is configured */
};

/* Length of a string, or -1 if it cannot be read or has more than 5 KB. A
 * global function: verified once, not at every call. */
NM_INFER_GLOBAL long nm_string_length(nm_u64 address) {
  nm_u8 chunk[128];
  long length = 0;

  for (int i = 0; i < 40; i++) {
    long got = nm_read_string(chunk, sizeof(chunk), address + length);

    if (got <= 0) return -1;
    length += got - 1;
    if (got < (long)sizeof(chunk)) return length;
  }
  return -1;
}

/* magma.<service>.main -> <service> */
static __always_inline int nm_infer_module(nm_u64 address, nm_u8 *name) {
  nm_u8 text[80] = {};

  if (nm_read_string(text, sizeof(text), address) <= 0 || text[0] != 'm' ||
      text[1] != 'a' || text[2] != 'g' || text[3] != 'm' || text[4] != 'a' ||
      text[5] != '.')
    return NM_INFER_NOTHING;
  for (int i = 0; i <= NM_NAME_BYTES; i++) {
    nm_u8 c = text[6 + i];

    if (c == '.')
      return i && text[7 + i] == 'm' && text[8 + i] == 'a' &&
                     text[9 + i] == 'i' && text[10 + i] == 'n' &&
                     !text[11 + i]
                 ? NM_INFER_MODULE
                 : NM_INFER_NOTHING;
    if (!c || i == NM_NAME_BYTES) break;
    name[i] = c;
  }
  return NM_INFER_NOTHING;
}

/* <dir>/<service>/main.py -> <service>. What the verifier has to follow is
 * kept small: no position is compared, only bytes. */
static __always_inline int nm_infer_script(nm_u64 address, long length,
                                           nm_u8 *name) {
  nm_u8 text[80] = {};
  nm_u64 part = 0, last = 0;

  /* The last bytes: a name, and "/main.py" with its NUL. */
  if (length > NM_NAME_BYTES + 1 + 8) address += length - (NM_NAME_BYTES + 9);
  if (nm_read_string(text, sizeof(text), address) <= 0)
    return NM_INFER_NOTHING;
  for (int i = 0; i < NM_NAME_BYTES + 9; i++) {
    if (!text[i]) break;
    if (text[i] == '/') {
      part = last;
      last = i + 1;
    }
  }
  if (nm_read_string(text, 16, address + last) != 8 || text[0] != 'm' ||
      text[1] != 'a' || text[2] != 'i' || text[3] != 'n' || text[4] != '.' ||
      text[5] != 'p' || text[6] != 'y')
    return NM_INFER_NOTHING;
  if (nm_read_string(text, sizeof(text), address + part) <= 0)
    return NM_INFER_NOTHING;
  for (int i = 0; i <= NM_NAME_BYTES; i++) {
    if (text[i] == '/') return i ? NM_INFER_SCRIPT : NM_INFER_NOTHING;
    if (!text[i] || i == NM_NAME_BYTES) break;
    name[i] = text[i];
  }
  return NM_INFER_NOTHING;
}

/* The service that Python runs. `arguments` is argv, one string after another,
 * up to `end`; name holds zeros before, and the service afterwards. Options as
 * in python(1): -m and -c end them, -W and -X take a value. */
static __always_inline int nm_infer_python(nm_u64 arguments, nm_u64 end,
                                           nm_u8 *name) {
  int found = NM_INFER_NOTHING, module = 0, value = 1; /* argv[0] is skipped */
  nm_u64 at = arguments;
  long length = 0;

  /* The name is read behind the loop, once, for the verifier's sake. */
  for (int i = 0; i < NM_INFER_ARGUMENTS; i++) {
    nm_u8 head[20] = {};

    if (at >= end) break;
    length = nm_string_length(at);
    if (length < 0) break;
    if (module) {
      found = NM_INFER_MODULE;
      break;
    }
    if (value) {
      value = 0;
      at += length + 1;
      continue;
    }
    if (nm_read_string(head, sizeof(head), at) <= 0) break;
    if (head[0] != '-') {
      found = NM_INFER_SCRIPT;
      break;
    }
    if (!head[1]) break; /* "-": from standard input */
    /* --check-hash-based-pycs is the only long option with a value. */
    if (head[1] == '-') value = head[2] == 'c';
    for (int j = 1; j < 18; j++) {
      nm_u8 option = head[j];

      if (!option || head[1] == '-') break;
      if (option == 'c') return NM_INFER_NOTHING;
      if (option == 'm') {
        module = 1;
        /* "-mmagma.x.main": the module is the rest of this argument. */
        if (head[j + 1]) {
          at += j + 1;
          length = -1;
        }
        break;
      }
      if (option == 'W' || option == 'X') {
        value = !head[j + 1];
        break;
      }
    }
    at += length + 1;
  }
  if (found == NM_INFER_MODULE) return nm_infer_module(at, name);
  if (found == NM_INFER_SCRIPT) return nm_infer_script(at, length, name);
  return NM_INFER_NOTHING;
}

#endif /* NETMETER_BPF_INFER_BPF_H_ */
