/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The state of reading the destination's name from the first bytes of a connection
 * (wire_name.bpf.h). The programs read those of sockets, and `netmeter flows` those of
 * forwarded connections.
 */
#ifndef NETMETER_BPF_NAMING_H_
#define NETMETER_BPF_NAMING_H_

#include "netmeter/abi.h"

/* The protocol whose first bytes will name a connection's destination. */
enum nm_wire_protocol {
  NM_WIRE_NONE = 0, /* none: the connection has its name, or never gets one */
  NM_WIRE_H2 = 1,   /* HTTP/2: :authority of the first request */
  NM_WIRE_TLS = 2,  /* TLS: server_name of the ClientHello */
  NM_WIRE_HTTP = 3, /* HTTP/1: host of the first request */
};

/* The result of reading a connection's first bytes. */
enum nm_naming_result {
  NM_NAMING_MORE = 0,   /* nothing yet: more bytes are needed */
  NM_NAMING_FOUND = 1,  /* a name */
  NM_NAMING_FAILED = 2, /* no name here, and none will follow */
};

/* The state of reading a connection's first bytes: wire_name.bpf.h. */
struct nm_naming {
  nm_u32 remaining; /* bytes of the frame, or of the record */
  nm_u32 position;  /* within the current item */
  nm_u32 saved;     /* ... when the frame ended in the middle of it; TLS:
                       bytes left of the hello */
  nm_u32 value;     /* a number, or the length of a string */
  nm_u32 skip;
  nm_u32 extensions; /* bytes left of all TLS extensions, then of the name */
  nm_u32 record_length;
  nm_u32 total;   /* bytes seen */
  nm_u8 protocol; /* enum nm_wire_protocol */
  nm_u8 state;    /* enum nm_naming_state */
  nm_u8 resume;   /* ... after this frame header */
  nm_u8 result;   /* enum nm_naming_result */
  nm_u8 frame_type;
  nm_u8 frame_flags;
  nm_u8 in_block;
  nm_u8 padding;
  nm_u8 field;
  nm_u8 string;
  nm_u8 authority;
  nm_u8 huffman;
  nm_u8 shift;
  nm_u8 record; /* bytes of the TLS record header seen */
  nm_u8 encoding;
  nm_u8 name_length;
  nm_u8 name[NM_NAME_BYTES];
};
NM_STATIC_ASSERT(sizeof(struct nm_naming) == 8 * 4 + 16 * 1 + NM_NAME_BYTES);

#endif /* NETMETER_BPF_NAMING_H_ */
