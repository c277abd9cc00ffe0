/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The destination's name in the first request of plain HTTP/1 (RFC 9112). It is the host
 * of the target if the target has one (a request to a proxy, CONNECT), and otherwise the
 * field Host. Reads one byte at a time, as a part of wire_name.bpf.h:
 *
 *   GET http://user@example.org:80/x HTTP/1.1     the target: absolute-form
 *   CONNECT example.org:443 HTTP/1.1              authority-form
 *   GET /x HTTP/1.1                               origin-form: the fields follow
 *   Host: example.org:80
 *
 * A line ends with LF, with or without CR before it. A request whose fields end without
 * Host names nothing. Bytes that are not HTTP/1 name nothing.
 */
#ifndef NETMETER_BPF_WIRE_HTTP_BPF_H_
#define NETMETER_BPF_WIRE_HTTP_BPF_H_

#include "bpf/naming.h"

/* Global in the kernel: clang gives static data in .rodata no offset in BTF. */
#ifdef __BPF__
#define NM_NAMING_DATA const volatile
#else
#define NM_NAMING_DATA static const
#endif

enum nm_http_state {
  NM_HTTP_METHOD = 0,
  NM_HTTP_TARGET, /* its first byte, which tells its form */
  NM_HTTP_SCHEME, /* of absolute-form, and the two slashes after it */
  NM_HTTP_AUTHORITY,
  NM_HTTP_TARGET_REST,
  NM_HTTP_VERSION,
  NM_HTTP_FIELD, /* the name of a field */
  NM_HTTP_LINE,  /* the rest of an ignored line */
  NM_HTTP_SPACE, /* in front of the value of Host */
  NM_HTTP_HOST,
  NM_HTTP_HOST_END, /* blanks after it */
};

/* The longest scheme, and the longest token that is accepted as a method. */
#define NM_HTTP_MOST 32

NM_NAMING_DATA nm_u8 nm_connect[8] = "CONNECT";
NM_NAMING_DATA nm_u8 nm_version[8] = "HTTP/1.";
NM_NAMING_DATA nm_u8 nm_host[8] = "host";

/* A character of a method and of a field's name: RFC 9110 section 5.6.2. */
static __always_inline bool nm_is_token(nm_u8 c) {
  const nm_u64 low = 0x03ff6cfa00000000, high = 0x57ffffffc7fffffe;

  return c < 128 && ((c & 64 ? high : low) >> (c & 63) & 1);
}

/* A control character, which only the line ends of a request may have. */
static __always_inline bool nm_is_control(nm_u8 c) {
  return c < ' ' || c == 127;
}

static __always_inline void nm_http_next(struct nm_naming *n, nm_u8 state) {
  n->state = state;
  n->position = 0;
  n->field = 0;
}

static __always_inline void nm_http_name_byte(struct nm_naming *n, nm_u8 c) {
  if (n->position < NM_NAME_BYTES) {
    n->name[n->position & (NM_NAME_BYTES - 1)] = c;
    n->name_length = n->position + 1;
  }
  n->position++;
}

/* The name is complete. An empty name counts as none. */
static __always_inline void nm_http_name_ends(struct nm_naming *n) {
  n->result = n->name_length ? NM_NAMING_FOUND : NM_NAMING_FAILED;
}

/* A byte of the target, or of the method in front of it. */
static __always_inline void nm_http_target_byte(struct nm_naming *n, nm_u8 c) {
  switch (n->state) {
    case NM_HTTP_METHOD:
      if (c == ' ' && n->position) {
        nm_http_next(n, n->position == 7 && !n->field ? NM_HTTP_AUTHORITY
                                                      : NM_HTTP_TARGET);
      } else if (!nm_is_token(c) || n->position == NM_HTTP_MOST) {
        n->result = NM_NAMING_FAILED;
      } else {
        n->field |= c != nm_connect[n->position & 7]; /* it is another one */
        n->position++;
      }
      break;
    case NM_HTTP_TARGET:
      if (c == '/' || c == '*')
        nm_http_next(n, NM_HTTP_TARGET_REST);
      else if (nm_is_token(c))
        nm_http_next(n, NM_HTTP_SCHEME);
      else
        n->result = NM_NAMING_FAILED;
      break;
    case NM_HTTP_SCHEME:
      if (n->field == 2 && c == '/')
        nm_http_next(n, NM_HTTP_AUTHORITY);
      else if (n->field == 1 && c == '/')
        n->field = 2;
      else if (!n->field && c == ':')
        n->field = 1;
      else if (n->field || !nm_is_token(c) || ++n->position == NM_HTTP_MOST)
        n->result = NM_NAMING_FAILED;
      break;
    case NM_HTTP_AUTHORITY:
      if (c == '/' || c == '?' || c == '#' || c == ' ') {
        nm_http_name_ends(n);
      } else if (c == '@') { /* that was the user */
        n->position = 0;
        n->name_length = 0;
      } else if (nm_is_control(c)) {
        n->result = NM_NAMING_FAILED;
      } else {
        nm_http_name_byte(n, c);
      }
      break;
    case NM_HTTP_TARGET_REST:
      if (c == ' ')
        nm_http_next(n, NM_HTTP_VERSION);
      else if (nm_is_control(c))
        n->result = NM_NAMING_FAILED;
      break;
  }
}

/* Reads "HTTP/1.", a digit, and the end of the line. */
static __always_inline void nm_http_version_byte(struct nm_naming *n, nm_u8 c) {
  const nm_u32 position = n->position++;
  bool good;

  if (position >= 8 && c == '\n') {
    nm_http_next(n, NM_HTTP_FIELD);
    return;
  }
  if (position < 7)
    good = c == nm_version[position & 7];
  else if (position == 7)
    good = c >= '0' && c <= '9';
  else
    good = position == 8 && c == '\r';
  if (!good) n->result = NM_NAMING_FAILED;
}

/* A byte of the name of a field, or the first byte of a line. */
static __always_inline void nm_http_field_byte(struct nm_naming *n, nm_u8 c) {
  if (!n->position && (c == ' ' || c == '\t')) {
    nm_http_next(n, NM_HTTP_LINE); /* goes on with the line before */
  } else if (n->position && c == ':') {
    nm_http_next(n,
                 n->position == 4 && !n->field ? NM_HTTP_SPACE : NM_HTTP_LINE);
  } else if (nm_is_token(c)) {
    n->field |= (c | 0x20) != nm_host[n->position & 7]; /* it is another one */
    n->position++;
  } else { /* the empty line, at which the fields end, or no HTTP */
    n->result = NM_NAMING_FAILED;
  }
}

static __always_inline void nm_http_byte(struct nm_naming *n, nm_u8 c) {
  if (n->state <= NM_HTTP_TARGET_REST) {
    nm_http_target_byte(n, c);
  } else if (n->state == NM_HTTP_VERSION) {
    nm_http_version_byte(n, c);
  } else if (n->state == NM_HTTP_FIELD) {
    nm_http_field_byte(n, c);
  } else if (n->state == NM_HTTP_LINE) {
    if (c == '\n') nm_http_next(n, NM_HTTP_FIELD);
  } else if (c == '\r' || c == '\n') {
    nm_http_name_ends(n);
  } else if (c == ' ' || c == '\t') {
    if (n->state == NM_HTTP_HOST) n->state = NM_HTTP_HOST_END;
  } else if (n->state == NM_HTTP_HOST_END || nm_is_control(c) || c == '/' ||
             c == '?' || c == '#' || c == '@') {
    n->result = NM_NAMING_FAILED; /* in no host: RFC 9110 section 7.2 */
  } else {
    n->state = NM_HTTP_HOST;
    nm_http_name_byte(n, c);
  }
}

#endif /* NETMETER_BPF_WIRE_HTTP_BPF_H_ */
