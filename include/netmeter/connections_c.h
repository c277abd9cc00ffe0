/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.h in C: a process's own TCP connections, and the records of `netmeter
 * flows`. They need no netmeter_meter, root or loaded meter.
 *
 *   static int print(const struct netmeter_connection *c, void *context) {
 *     printf("%s rtt %u us\n", c->remote_address, (unsigned)c->rtt_us);
 *     return NETMETER_OK;
 *   }
 *   ...
 *   netmeter_visit_connections(print, NULL, &error);
 *
 * May change before 2.0. Results, structs and callbacks follow the rules of netmeter.h.
 *
 * Threads: the functions may be called from any thread at any time.
 */
#ifndef NETMETER_CONNECTIONS_C_H_
#define NETMETER_CONNECTIONS_C_H_

#include "netmeter/netmeter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A TCP socket of this process: Connection in connections.h, which has the units. All
 * texts end with a NUL. It is valid during the call of take(). */
struct netmeter_connection {
  size_t size; /* bytes that the library has filled */
  int32_t fd;
  uint8_t mptcp; /* 1: yes, as the next two */
  uint8_t timeouts_known;
  uint8_t delivery_limited_by_application;
  uint8_t reserved;
  uint64_t cookie;
  char state[16];
  char local_address[48];
  char remote_address[48]; /* "": not connected */
  char congestion[16];
  uint16_t local_port;
  uint16_t remote_port;
  uint32_t rtt_us;
  uint32_t rtt_variation_us;
  uint32_t min_rtt_us;
  uint32_t retransmission_timeout_us;
  uint32_t unsent_bytes;
  uint64_t sent_bytes;
  uint64_t retransmitted_bytes;
  uint64_t acknowledged_bytes;
  uint64_t received_bytes;
  uint32_t sent_segments;
  uint32_t received_segments;
  uint32_t retransmitted_segments;
  uint32_t out_of_order_segments;
  uint32_t duplicate_segments;
  uint32_t unacknowledged_segments;
  uint32_t lost_segments;
  uint32_t timeouts_in_a_row;
  uint32_t timeouts;
  uint32_t timeout_time_ms;
  uint64_t delivery_rate;
  uint64_t pacing_rate;
  uint64_t busy_us;
  uint64_t limited_by_receiver_us;
  uint64_t limited_by_buffer_us;
  uint32_t congestion_window_segments;
  uint32_t segment_bytes;
  uint32_t path_mtu;
  uint32_t send_window_bytes;
  uint32_t since_sent_ms;
  uint32_t since_received_ms;
  const uint8_t *tcp_info; /* as this kernel wrote it */
  size_t tcp_info_length;  /* in bytes */
};

/* As ReadConnection() in connections.h: calls take() once, with the connection of `fd`.
 * Returns what take() returns, or an error without a call. */
int netmeter_read_connection(
    int fd,
    int (*take)(const struct netmeter_connection *connection, void *context),
    void *context, struct netmeter_error *error);

/* As ReadOwnConnections(): calls take() for each TCP socket of this process, in the
 * order of their descriptors. Keeps 40 bytes of memory for each socket. take() may close
 * the descriptor. It returns NETMETER_OK to go on. Any other code ends the visit and is
 * returned. */
int netmeter_visit_connections(
    int (*take)(const struct netmeter_connection *connection, void *context),
    void *context, struct netmeter_error *error);

/* One field of a record of `netmeter flows --protobuf`. Texts are without a NUL, except
 * for `name`. Each of `labels` is a field. */
struct netmeter_flow_field {
  size_t size;      /* bytes that the library has filled */
  const char *name; /* as in the JSON of `netmeter flows` */
  const char *text; /* NULL: the field is a number */
  size_t text_length;
  const char *label; /* NULL: the field is not one of `labels` */
  size_t label_length;
  /* The number. For kind, transport and path, which are texts: the enum of netmeter.h, or
   * UINT64_MAX for a word of a newer netmeter. */
  uint64_t value;
  uint32_t number; /* of the field in flows.proto */
  uint8_t reserved[4];
};

/* As FlowDecoder::Next(): calls take() for each field of the first record in `bytes`,
 * except those of a newer netmeter. Sets *used to the length of the record; to 0, without
 * a call, if the record is not complete yet. A field is valid during the call. take()
 * returns NETMETER_OK to go on. Any other code ends the visit and is returned.
 * NETMETER_DATA_LOSS: the bytes are not such a stream; take() may have been called. */
int netmeter_decode_flow(const char *bytes, size_t length,
                         int (*take)(const struct netmeter_flow_field *field,
                                     void *context),
                         void *context, size_t *used,
                         struct netmeter_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NETMETER_CONNECTIONS_C_H_ */
