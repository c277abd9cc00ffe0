/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The destination's name in a connection's first bytes: :authority of the first HTTP/2
 * request (RFC 9113, RFC 7541), server_name of a TLS ClientHello (RFC 8446 section 4.1.2,
 * RFC 6066 section 3), or the host of the first HTTP/1 request (wire_http.bpf.h).
 *
 * A state machine reads them. It takes one byte at a time and keeps all state in struct
 * nm_naming. So it does not matter where segments, frames or records are split; only the
 * name is buffered; and the verifier sees one short loop. The layers are removed in
 * order:
 *
 *   HTTP/2   preface, frames, padding and priority, then the header block. HPACK is read
 *            only to find the end of each field. The dynamic table is not needed, because
 *            it is empty at the first request
 *   TLS      records, the handshake message, its fields by their lengths, then the
 *            extensions up to server_name
 *
 * A name is kept as it was sent, with its port and possibly in Huffman code. The readers
 * make a label of it (lib/reader/wire_name.h). Bytes that cannot be understood end in
 * NM_NAMING_FAILED, never in a guess.
 *
 * This code also runs on the host, in unit tests and under the fuzzer, which compares it
 * with a second parser. No byte makes it read or write outside of *n, in any state.
 */
#ifndef NETMETER_BPF_WIRE_NAME_BPF_H_
#define NETMETER_BPF_WIRE_NAME_BPF_H_

#include "bpf/naming.h"
#include "bpf/wire_http.bpf.h"

enum nm_naming_state {
  /* HTTP/2 */
  NM_H2_PREFACE = 0,
  NM_H2_FRAME, /* the nine bytes of a frame header */
  NM_H2_SKIP,  /* the rest of a frame, or padding */
  NM_H2_PAD_LENGTH,
  NM_H2_PRIORITY,  /* five bytes in front of the header block */
  NM_HPACK_FIELD,  /* first byte of a field */
  NM_HPACK_INDEX,  /* more bytes of its index */
  NM_HPACK_LENGTH, /* first byte of a string */
  NM_HPACK_LENGTH_MORE,
  NM_HPACK_STRING,
  /* TLS: record headers are removed first, and their payload is read by these */
  NM_TLS_TYPE,    /* of the handshake message, and its length; the version and
                     the random after it are skipped */
  NM_TLS_SESSION, /* length, then the bytes are skipped */
  NM_TLS_CIPHERS,
  NM_TLS_COMPRESSION,
  NM_TLS_EXTENSIONS, /* length of all of them */
  NM_TLS_EXTENSION,  /* type and length */
  NM_TLS_NAME_LIST,  /* length of the list, type, length of the name */
  NM_TLS_NAME,
};

/* The role of the string that is being read. */
#define NM_STRING_NAME 0
#define NM_STRING_VALUE 1

#define NM_H2_HEADERS 1
#define NM_H2_CONTINUATION 9
#define NM_H2_FLAG_END_HEADERS 0x4
#define NM_H2_FLAG_PADDED 0x8
#define NM_H2_FLAG_PRIORITY 0x20

NM_NAMING_DATA nm_u8 nm_preface[32] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
NM_NAMING_DATA nm_u8 nm_authority[16] = ":authority";
/* ":authority" in the Huffman code of RFC 7541, appendix B. */
NM_NAMING_DATA nm_u8 nm_authority_huffman[8] = {0xb8, 0x3b, 0x53, 0x39,
                                                0xec, 0x32, 0x7d, 0x7f};

static __always_inline void nm_naming_start(struct nm_naming *n,
                                            nm_u8 protocol) {
  __builtin_memset(n, 0, sizeof(*n));
  n->protocol = protocol;
  if (protocol == NM_WIRE_TLS) n->state = NM_TLS_TYPE;
  /* NM_H2_PREFACE and NM_HTTP_METHOD are 0. */
}

/* A frame has ended: one of the header block, or one before it. */
static __always_inline void nm_h2_frame_end(struct nm_naming *n) {
  if (n->in_block && (n->frame_flags & NM_H2_FLAG_END_HEADERS)) {
    n->result = NM_NAMING_FAILED; /* a request without :authority */
    return;
  }
  n->resume = n->state;
  n->state = NM_H2_FRAME;
  n->position = 0;
}

/* The nine bytes of a frame header are read. */
static __always_inline void nm_h2_frame_begins(struct nm_naming *n) {
  if (n->in_block != (n->frame_type == NM_H2_CONTINUATION)) {
    /* Only CONTINUATION may be inside a block, and it may not be outside of one. */
    n->result = NM_NAMING_FAILED;
    return;
  }
  n->padding = 0;
  if (n->in_block) {
    n->state = n->resume;
    n->position = n->saved;
    if (!n->remaining) {
      n->saved = n->position;
      nm_h2_frame_end(n);
    }
  } else if (n->frame_type == NM_H2_HEADERS) {
    n->in_block = 1;
    n->state = n->frame_flags & NM_H2_FLAG_PADDED     ? NM_H2_PAD_LENGTH
               : n->frame_flags & NM_H2_FLAG_PRIORITY ? NM_H2_PRIORITY
                                                      : NM_HPACK_FIELD;
    if (!n->remaining) {
      /* No fields yet. They follow in CONTINUATION frames. */
      n->saved = 0;
      if (n->state == NM_HPACK_FIELD)
        nm_h2_frame_end(n);
      else
        n->result = NM_NAMING_FAILED;
    }
  } else {
    n->state = n->remaining ? NM_H2_SKIP : NM_H2_FRAME;
  }
}

/* A byte outside of a header block: of the preface, of a frame header, or of a skipped
 * part. Returns false if it is none of these. */
static __always_inline bool nm_h2_frame_byte(struct nm_naming *n, nm_u8 c) {
  switch (n->state) {
    case NM_H2_PREFACE:
      if (c != nm_preface[n->position & 31]) {
        n->result = NM_NAMING_FAILED;
      } else if (++n->position == 24) {
        n->state = NM_H2_FRAME;
        n->position = 0;
      }
      return true;

    case NM_H2_FRAME:
      if (n->position < 3) {
        n->remaining = (n->remaining << 8 | c) & 0xffffff;
      } else if (n->position == 3) {
        n->frame_type = c;
      } else if (n->position == 4) {
        n->frame_flags = c;
      }
      if (++n->position < 9) return true;
      n->position = 0;
      nm_h2_frame_begins(n);
      return true;

    case NM_H2_SKIP:
      if (--n->remaining == 0) {
        n->state = NM_H2_FRAME;
        n->position = 0;
      }
      return true;
  }
  return false;
}

/* The first byte of a field: how it is coded, and the index of its name. */
static __always_inline void nm_hpack_field(struct nm_naming *n, nm_u8 c) {
  nm_u8 mask;

  if (c & 0x80) { /* indexed: name and value from the table */
    n->field = 0;
    mask = 0x7f;
  } else if (c & 0x40) { /* literal, to be indexed */
    n->field = 1;
    mask = 0x3f;
  } else if (c & 0x20) { /* table size update */
    n->field = 0;
    mask = 0x1f;
  } else { /* literal, not or never indexed */
    n->field = 1;
    mask = 0x0f;
  }
  n->value = c & mask;
  n->shift = 0;
  if (n->value == mask) {
    n->state = NM_HPACK_INDEX;
  } else if (n->field) {
    n->string = n->value ? NM_STRING_VALUE : NM_STRING_NAME;
    n->authority = n->value == 1; /* of the static table */
    n->state = NM_HPACK_LENGTH;
  }
}

/* The length of a string is read: n->value. */
static __always_inline void nm_hpack_string_begins(struct nm_naming *n) {
  n->state = NM_HPACK_STRING;
  if (n->string == NM_STRING_NAME)
    n->authority = n->value == (n->huffman ? 8 : 10);
  n->name_length = 0;
  if (n->value) return;
  /* An empty string has no bytes to wait for. */
  if (n->string == NM_STRING_NAME) {
    n->string = NM_STRING_VALUE;
    n->state = NM_HPACK_LENGTH;
  } else if (n->authority) {
    n->result = NM_NAMING_FAILED;
  } else {
    n->state = NM_HPACK_FIELD;
  }
}

/* A byte of a string: of a field's name, or of its value. */
static __always_inline void nm_hpack_string(struct nm_naming *n, nm_u8 c) {
  if (n->string == NM_STRING_NAME) {
    if (c != (n->huffman ? nm_authority_huffman[n->position & 7]
                         : nm_authority[n->position & 15]))
      n->authority = 0;
  } else if (n->authority && n->position < NM_NAME_BYTES) {
    n->name[n->position & (NM_NAME_BYTES - 1)] = c;
    n->name_length = n->position + 1;
  }
  if (++n->position < n->value) return;
  n->position = 0;
  if (n->string == NM_STRING_NAME) {
    n->string = NM_STRING_VALUE;
    n->state = NM_HPACK_LENGTH;
  } else if (n->authority) {
    n->encoding = n->huffman ? NM_ENCODING_HUFFMAN : NM_ENCODING_RAW;
    /* The beginning of a name is usable as a name, but the beginning of a code is not. */
    n->result = n->huffman && n->value > NM_NAME_BYTES ? NM_NAMING_FAILED
                                                       : NM_NAMING_FOUND;
  } else {
    n->state = NM_HPACK_FIELD;
  }
}

static __always_inline void nm_h2_byte(struct nm_naming *n, nm_u8 c) {
  if (nm_h2_frame_byte(n, c)) return;

  /* The rest is inside a HEADERS or CONTINUATION frame. */
  n->remaining--;
  switch (n->state) {
    case NM_H2_PAD_LENGTH:
      n->padding = c;
      n->state = n->frame_flags & NM_H2_FLAG_PRIORITY ? NM_H2_PRIORITY
                                                      : NM_HPACK_FIELD;
      if (n->padding > n->remaining) n->result = NM_NAMING_FAILED;
      break;
    case NM_H2_PRIORITY:
      if (++n->position == 5) {
        n->state = NM_HPACK_FIELD;
        n->position = 0;
      }
      break;
    case NM_HPACK_FIELD:
      nm_hpack_field(n, c);
      break;
    case NM_HPACK_INDEX:
      /* 32 bits, like the size of a table. */
      if (n->shift > 28) {
        n->result = NM_NAMING_FAILED;
        break;
      }
      n->shift += 7;
      if (c & 0x80) break;
      /* An index of several bytes is never 0 or 1. */
      n->authority = 0;
      n->string = NM_STRING_VALUE;
      n->state = n->field ? NM_HPACK_LENGTH : NM_HPACK_FIELD;
      break;
    case NM_HPACK_LENGTH:
      n->huffman = c >> 7;
      n->value = c & 0x7f;
      n->shift = 0;
      n->position = 0;
      if (n->value == 0x7f)
        n->state = NM_HPACK_LENGTH_MORE;
      else
        nm_hpack_string_begins(n);
      break;
    case NM_HPACK_LENGTH_MORE:
      if (n->shift > 14) {
        n->result = NM_NAMING_FAILED;
        break;
      }
      n->value += (nm_u32)(c & 0x7f) << (n->shift & 31);
      n->shift += 7;
      if (!(c & 0x80)) nm_hpack_string_begins(n);
      break;
    case NM_HPACK_STRING:
      nm_hpack_string(n, c);
      break;
    default:
      n->result = NM_NAMING_FAILED;
  }
  if (n->result || n->remaining > n->padding) return;
  /* The fragment is over; padding, if any, is skipped. */
  n->saved = n->position;
  nm_h2_frame_end(n);
  if (n->padding && !n->result) {
    /* Padding comes with HEADERS only. The block continues after it. */
    n->state = NM_H2_SKIP;
    n->remaining = n->padding;
    n->padding = 0;
  }
}

/* Skips n->value bytes, then continues with `state`. */
static __always_inline void nm_tls_skip(struct nm_naming *n, nm_u8 state) {
  n->skip = n->value;
  n->value = 0;
  n->position = 0;
  n->state = state;
}

/* A byte of a record's header: type 22, two bytes of version, two of length. */
static __always_inline void nm_tls_record_byte(struct nm_naming *n, nm_u8 c) {
  if ((n->record == 0 && c != 22) || (n->record == 1 && c != 3)) {
    n->result = NM_NAMING_FAILED;
    return;
  }
  if (n->record == 3) n->record_length = (nm_u32)c << 8;
  if (n->record == 4) {
    n->remaining = n->record_length | c;
    n->record = 0;
    if (!n->remaining || n->remaining > 16384) n->result = NM_NAMING_FAILED;
    return;
  }
  n->record++;
}

/* The type and the length of an extension are read: n->value. */
static __always_inline void nm_tls_extension(struct nm_naming *n) {
  nm_u32 length = n->value & 0xffff;

  if (n->value >> 16 == 0) { /* server_name */
    n->extensions = length;
    n->value = 0;
    nm_tls_skip(n, NM_TLS_NAME_LIST);
    return;
  }
  if (length + 4 >= n->extensions) { /* that was the last */
    n->result = NM_NAMING_FAILED;
    return;
  }
  n->extensions -= length + 4;
  n->value = length;
  nm_tls_skip(n, NM_TLS_EXTENSION);
}

static __always_inline void nm_tls_byte(struct nm_naming *n, nm_u8 c) {
  if (!n->remaining) {
    nm_tls_record_byte(n, c);
    return;
  }
  n->remaining--;

  if (n->state != NM_TLS_TYPE && --n->saved == 0) {
    /* The last byte of the hello can only be the last byte of the name. */
    if (n->state != NM_TLS_NAME || n->position + 1 != n->extensions) {
      n->result = NM_NAMING_FAILED;
      return;
    }
  }
  if (n->skip) {
    n->skip--;
    return;
  }
  n->value = n->value << 8 | c;
  n->position++;
  switch (n->state) {
    case NM_TLS_TYPE:
      if (n->position < 4) break;
      /* client_hello; one beyond a sensible maximum is rejected. */
      n->saved = n->value & 0xffffff;
      if (n->value >> 24 != 1 || !n->saved || n->saved > 65536) {
        n->result = NM_NAMING_FAILED;
        break;
      }
      n->value = 34;
      nm_tls_skip(n, NM_TLS_SESSION);
      break;
    case NM_TLS_SESSION:
      nm_tls_skip(n, NM_TLS_CIPHERS);
      break;
    case NM_TLS_CIPHERS:
      if (n->position == 2) nm_tls_skip(n, NM_TLS_COMPRESSION);
      break;
    case NM_TLS_COMPRESSION:
      nm_tls_skip(n, NM_TLS_EXTENSIONS);
      break;
    case NM_TLS_EXTENSIONS:
      if (n->position < 2) break;
      n->extensions = n->value;
      n->value = 0;
      nm_tls_skip(n, NM_TLS_EXTENSION);
      if (!n->extensions) n->result = NM_NAMING_FAILED;
      break;
    case NM_TLS_EXTENSION:
      if (n->position == 4) nm_tls_extension(n);
      break;
    case NM_TLS_NAME_LIST:
      if (n->position < 5) break;
      /* host_name is the only existing type. */
      if ((n->value >> 16 & 0xff) != 0 || !(n->value & 0xffff) ||
          (n->value & 0xffff) + 5 > n->extensions) {
        n->result = NM_NAMING_FAILED;
        break;
      }
      n->extensions = n->value & 0xffff;
      n->position = 0;
      n->state = NM_TLS_NAME;
      break;
    case NM_TLS_NAME:
      if (n->position <= NM_NAME_BYTES) {
        n->name[(n->position - 1) & (NM_NAME_BYTES - 1)] = c;
        n->name_length = n->position;
      }
      if (n->position == n->extensions) n->result = NM_NAMING_FOUND;
      break;
    default:
      n->result = NM_NAMING_FAILED;
  }
}

static __always_inline void nm_naming_byte(struct nm_naming *n, nm_u8 c) {
  if (n->protocol == NM_WIRE_TLS)
    nm_tls_byte(n, c);
  else if (n->protocol == NM_WIRE_HTTP)
    nm_http_byte(n, c);
  else
    nm_h2_byte(n, c);
}

#endif /* NETMETER_BPF_WIRE_NAME_BPF_H_ */
