/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * Finds the service of a process in its command line. This code runs in the kernel at
 * exec; on the host, for processes that are older than the meter; and under the fuzzer.
 * So the answer does not depend on which came first, the meter or the process.
 *
 *   python3 [flags] -m magma.<service>.main     any service
 *   [python3 [flags]] <dir>/<service>/main.py   services of the configuration
 *   python3 [flags] -m <module>                 the program <module>
 *   [python3 [flags]] <dir>/<name>.py           the program <name>
 *   ld-linux-x86-64.so.2 [flags] PROGRAM ...    PROGRAM, as if it were executed
 *
 * On the host, a file that includes this one first defines what kernel.bpf.h has for the
 * kernel: nm_read_string(), and NM_GLOBAL as "static inline".
 */
#ifndef NETMETER_BPF_COMMAND_LINE_BPF_H_
#define NETMETER_BPF_COMMAND_LINE_BPF_H_

#include "bpf/internal.h"
#ifdef __BPF__
#include "bpf/kernel.bpf.h"
#endif

#define NM_INFER_ARGUMENTS 16 /* of the interpreter; further ones are ignored */

enum nm_inferred {
  NM_INFER_NOTHING = 0,
  NM_INFER_MODULE = 1, /* magma.<service>.main */
  NM_INFER_SCRIPT = 2, /* <service>/main.py: else a program of this name */
  NM_INFER_PROGRAM = 3,
};

#ifndef barrier_var /* on the host */
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

/* All bits set if a byte is not 0, else none. In loops over many bytes, masks replace
 * comparisons: at each branch on a byte the verifier would continue twice. */
static __always_inline nm_u32 nm_mask_of_byte(nm_u8 byte) {
  return -((byte + 255u) >> 8);
}

/* 1 if a byte is a decimal digit, else 0; without branches. */
static __always_inline nm_u32 nm_is_digit(nm_u32 byte) {
  return 1 ^ ((byte - '0') | ('9' - byte)) >> 31;
}

/* Length of a string, or -1 if it cannot be read or has more than 5 KB. */
NM_GLOBAL long nm_string_length(nm_u64 address) {
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

/* The place of a service's name, as one number, so that the verifier does not follow the
 * choice to the end of the program. It has the address, above 8 bits; NM_FOUND_SCRIPT, if
 * the service has to be configured; NM_FOUND_PROGRAM, if it is no service; and the length
 * of the name. 0: no name. */
#define NM_FOUND_PROGRAM (1ULL << 63)
#define NM_FOUND_SCRIPT 0x80
#define NM_FOUND_LENGTH 0x7f

static __always_inline nm_u64 nm_found(nm_u64 address, nm_u32 length) {
  return length && length <= NM_NAME_BYTES ? address << 8 | length : 0;
}

/* Reads the name that was found, followed by zeros. name[NM_NAME_BYTES + 1] must hold
 * zeros before. */
static __always_inline int nm_read_found(nm_u64 found, nm_u8 *name) {
  nm_u32 length = found & NM_FOUND_LENGTH;

  if (!length || length > NM_NAME_BYTES ||
      nm_read_string(name, length + 1, (found & ~NM_FOUND_PROGRAM) >> 8) <= 0)
    return NM_INFER_NOTHING;
  if (found & NM_FOUND_PROGRAM) return NM_INFER_PROGRAM;
  return found & NM_FOUND_SCRIPT ? NM_INFER_SCRIPT : NM_INFER_MODULE;
}

/* A program whose name is at `address`, up to the longest name. */
static __always_inline nm_u64 nm_found_program(nm_u64 address, long length) {
  if (length <= 0) return 0;
  if (length > NM_NAME_BYTES) length = NM_NAME_BYTES;
  return nm_found(address, length) | NM_FOUND_PROGRAM;
}

/* magma.<service>.main, or any other module. */
NM_GLOBAL nm_u64 nm_find_in_module(nm_u64 address, long all) {
  nm_u64 module = nm_found_program(address, all);
  nm_u8 text[80] = {};
  nm_u32 length = 0, in_name = 1;

  if (nm_read_string(text, sizeof(text), address) <= 0) return 0;
  if (text[0] != 'm' || text[1] != 'a' || text[2] != 'g' || text[3] != 'm' ||
      text[4] != 'a' || text[5] != '.')
    return module;
  address += 6;
  for (int i = 0; i <= NM_NAME_BYTES; i++) {
    nm_u8 c = text[6 + i];

    in_name &= nm_mask_of_byte(c) & nm_mask_of_byte(c ^ '.');
    length += in_name;
  }
  if (nm_read_string(text, 16, address + length) != 6 || text[0] != '.' ||
      text[1] != 'm' || text[2] != 'a' || text[3] != 'i' || text[4] != 'n' ||
      !length || length > NM_NAME_BYTES)
    return module;
  return nm_found(address, length);
}

/* Offsets of the last parts of a path, within the bytes that a service's name and
 * "/main.py" take: the last part, and, above 16 bits, the part before it. -1: the path
 * cannot be read. */
NM_GLOBAL int nm_last_parts(nm_u64 address) {
  nm_u8 text[NM_NAME_BYTES + 10] = {};
  nm_u32 part = 0, last = 0, in_text = ~0u; /* after the last two '/' */

  if (nm_read_string(text, sizeof(text), address) <= 0) return -1;
  for (int i = 0; i < NM_NAME_BYTES + 9; i++) {
    nm_u32 is_slash = ~nm_mask_of_byte(text[i] ^ '/');

    in_text &= nm_mask_of_byte(text[i]);
    is_slash &= in_text;
    barrier_var(is_slash);
    part = (part & ~is_slash) | (last & is_slash);
    last = (last & ~is_slash) | ((i + 1) & is_slash);
  }
  return last | part << 16;
}

/* The last part of a path, as nm_found(). Searches backwards for the last '/', in steps
 * of 64 bytes; a name has at most 255. */
NM_GLOBAL nm_u64 nm_find_base_name(nm_u64 path, long length) {
  nm_u64 end = path + length, start = end;

  for (int window = 0; window < 4; window++) {
    int parts;

    start = start > path + NM_NAME_BYTES ? start - NM_NAME_BYTES : path;
    parts = nm_last_parts(start);
    if (parts < 0) return 0;
    start += parts & 0xff;
    if (parts & 0xff || start == path) break;
  }
  length = end - start;
  return nm_found(start, length > NM_NAME_BYTES ? NM_NAME_BYTES : length);
}

/* Whether a name is "." or "..", which names no program. */
static __always_inline int nm_is_dots(nm_u64 address, long length) {
  nm_u8 text[3] = {};

  return length > 0 && length <= 2 && nm_read_string(text, 3, address) > 0 &&
         text[0] == '.' && (length == 1 || text[1] == '.');
}

/* <dir>/<name>.py, or any other script. */
NM_GLOBAL nm_u64 nm_find_script(nm_u64 path, long length) {
  nm_u64 found = nm_find_base_name(path, length);
  nm_u64 start = found >> 8;
  nm_u8 end[4] = {};

  length -= start - path;
  if (nm_is_dots(start, length)) return 0;
  if (length > 3 && nm_read_string(end, 4, start + length - 3) == 4 &&
      end[0] == '.' && end[1] == 'p' && end[2] == 'y')
    length -= 3;
  return found ? nm_found_program(start, length) : 0;
}

/* <dir>/<service>/main.py */
NM_GLOBAL nm_u64 nm_find_in_script(nm_u64 address, long length) {
  nm_u8 text[16] = {};
  nm_u32 part, last;
  nm_u64 found;
  int parts;

  /* The last bytes hold a name, and "/main.py" with its NUL. */
  if (length > NM_NAME_BYTES + 1 + 8) address += length - (NM_NAME_BYTES + 9);
  parts = nm_last_parts(address);
  if (parts <= 0) return 0;
  last = parts & 0xff;
  part = parts >> 16 & 0xff;
  if (nm_read_string(text, sizeof(text), address + last) != 8 ||
      text[0] != 'm' || text[1] != 'a' || text[2] != 'i' || text[3] != 'n' ||
      text[4] != '.' || text[5] != 'p' || text[6] != 'y')
    return 0;
  if (nm_is_dots(address + part, last - 1 - part)) return 0;
  found = nm_found(address + part, last - 1 - part);
  return found ? found | NM_FOUND_SCRIPT : 0;
}

/* What Python runs as a script. */
static __always_inline nm_u64 nm_find_any_script(nm_u64 path, long length) {
  nm_u64 found = nm_find_in_script(path, length);

  return found ? found : nm_find_script(path, length);
}

/* A script that is executed itself ("#!"), if its name says that it is one of Python. So
 * it has one name, whether Python is given the file or the kernel finds Python. */
NM_GLOBAL nm_u64 nm_find_executed(nm_u64 path, long length) {
  nm_u8 end[4] = {};

  if (length <= 3 || nm_read_string(end, 4, path + length - 3) != 4 ||
      end[0] != '.' || end[1] != 'p' || end[2] != 'y')
    return 0;
  return nm_find_any_script(path, length);
}

enum nm_argument {
  NM_ARGUMENT_LAST = 0, /* no later argument names a service */
  NM_ARGUMENT_OPTION = 1,
  NM_ARGUMENT_OPTION_WITH_VALUE = 2, /* in the next argument */
  NM_ARGUMENT_BEFORE_MODULE = 3,     /* the next argument is the module */
  NM_ARGUMENT_SCRIPT = 4,
  NM_ARGUMENT_MODULE = 5, /* above 8 bits: the module's offset in it */
};

/* The kind of one argument of Python. Options as in python(1): -m and -c end them, -W and
 * -X take a value. */
NM_GLOBAL int nm_kind_of_argument(nm_u64 address) {
  nm_u8 head[20] = {};

  if (nm_read_string(head, sizeof(head), address) <= 0) return NM_ARGUMENT_LAST;
  if (head[0] != '-') return NM_ARGUMENT_SCRIPT;
  if (!head[1]) return NM_ARGUMENT_LAST; /* "-": from standard input */
  /* --check-hash-based-pycs is the only long option with a value. */
  if (head[1] == '-')
    return head[2] == 'c' ? NM_ARGUMENT_OPTION_WITH_VALUE : NM_ARGUMENT_OPTION;
  for (int i = 1; i < 18; i++) {
    nm_u8 option = head[i];

    if (!option) break;
    if (option == 'c') return NM_ARGUMENT_LAST;
    if (option == 'm') /* "-mmagma.x.main": the rest of this argument */
      return head[i + 1] ? NM_ARGUMENT_MODULE | (i + 1) << 8
                         : NM_ARGUMENT_BEFORE_MODULE;
    if (option == 'W' || option == 'X')
      return head[i + 1] ? NM_ARGUMENT_OPTION : NM_ARGUMENT_OPTION_WITH_VALUE;
  }
  return NM_ARGUMENT_OPTION;
}

/* The service that Python runs. `arguments` is argv, one string after another, up to
 * `end`. */
NM_GLOBAL nm_u64 nm_find_in_python(nm_u64 arguments, nm_u64 end) {
  int kind = NM_ARGUMENT_OPTION_WITH_VALUE; /* argv[0] is skipped */
  nm_u64 at = arguments;

  for (int i = 0; i < NM_INFER_ARGUMENTS; i++) {
    long length;

    if (at >= end) break;
    length = nm_string_length(at);
    if (length < 0) break;
    if (kind == NM_ARGUMENT_BEFORE_MODULE) return nm_find_in_module(at, length);
    if (kind == NM_ARGUMENT_OPTION_WITH_VALUE) {
      kind = NM_ARGUMENT_OPTION; /* this was the value */
    } else {
      kind = nm_kind_of_argument(at);
      if (kind == NM_ARGUMENT_LAST) break;
      if (kind == NM_ARGUMENT_SCRIPT) return nm_find_any_script(at, length);
      if ((kind & 0xff) == NM_ARGUMENT_MODULE) {
        at += kind >> 8;
        kind = NM_ARGUMENT_BEFORE_MODULE;
        continue;
      }
    }
    at += length + 1;
  }
  return 0;
}

/* Whether a name is that of a dynamic loader: ld.so, ld-linux-x86-64.so.2 or
 * ld-musl-aarch64.so.1 (ld.so(8)). */
static __always_inline int nm_is_dynamic_loader(const char *name) {
  if (name[0] != 'l' || name[1] != 'd') return 0;
  if (name[2] == '.') return name[3] == 's' && name[4] == 'o' && !name[5];
  return name[2] == '-' && ((name[3] == 'l' && name[4] == 'i' &&
                             name[5] == 'n' && name[6] == 'u') ||
                            (name[3] == 'm' && name[4] == 'u' &&
                             name[5] == 's' && name[6] == 'l'));
}

/* The address of the program that a dynamic loader runs, which is its first argument that
 * is no option (ld.so(8)). Each option but --inhibit-cache has a value, in the next
 * argument or, for musl, in "--argv0=x", "--preload=x" and "--library-path=x". "--" ends
 * the options. 0: none. */
NM_GLOBAL nm_u64 nm_find_loaded(nm_u64 arguments, nm_u64 end) {
  nm_u64 at = arguments;
  nm_u32 is_value = 1; /* argv[0] is skipped */

  for (int i = 0; i < NM_INFER_ARGUMENTS; i++) {
    nm_u8 head[20] = {};
    long length;

    if (at >= end) break;
    length = nm_string_length(at);
    if (length < 0 || nm_read_string(head, sizeof(head), at) <= 0) break;
    if (!is_value && head[0] != '-') return at;
    is_value =
        ~is_value & nm_mask_of_byte(head[2]) &
        (nm_mask_of_byte(head[2] ^ 'i') | nm_mask_of_byte(head[10] ^ 'c')) &
        nm_mask_of_byte(head[7] ^ '=') & nm_mask_of_byte(head[9] ^ '=') &
        nm_mask_of_byte(head[14] ^ '=') & 1;
    barrier_var(is_value);
    at += length + 1;
  }
  return 0;
}

#endif /* NETMETER_BPF_COMMAND_LINE_BPF_H_ */
