/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libnetmeter's C API, and its binary boundary: libnetmeter.so.1 exports what this file
 * and the three below declare, and nothing else. It is for C, and for every language that
 * can call C, such as Go and Rust. C++ programs use meter.h, the same API in C++ types.
 *
 *   struct netmeter_options options = NETMETER_OPTIONS_INIT;
 *   struct netmeter_error error;
 *   netmeter_meter *meter;
 *
 *   options.service = "subscriberdb";
 *   options.service_length = strlen(options.service);
 *   if (netmeter_open(&options, &meter, &error) != NETMETER_OK)
 *     return fprintf(stderr, "%s\n", error.message);
 *   netmeter_samples *samples = netmeter_samples_new();
 *   if (netmeter_read_service(meter, NULL, 0, samples, &error) == NETMETER_OK)
 *     for (size_t i = 0; i < netmeter_samples_count(samples); i++)
 *       printf("%s\n", netmeter_samples_get(samples, i)->destination);
 *   netmeter_samples_free(samples);
 *   netmeter_close(meter);
 *
 * sample.h says what each counter means. meter.h says what each call does, waits for
 * and costs, at the function of the same name. After netmeter_open() a read makes no
 * system call as long as the loaded meter does not change, except
 * netmeter_read_uplinks(). A read that finds no more
 * series and no longer names than an earlier read into the same samples allocates
 * nothing.
 *
 * Results: NETMETER_OK, which is 0, or an error code. `error` may be NULL, and is
 * written only after an error. All other outputs are unchanged after an error, except
 * that samples may be empty after NETMETER_RESOURCE_EXHAUSTED.
 *
 * Names (of services and destinations) are a pointer and a length, as for
 * setsockopt(2): 1 to 64 bytes without a NUL. A length or a struct size above 64 KiB
 * returns NETMETER_INVALID_ARGUMENT before anything is read: such a value means that
 * the caller did not set it.
 *
 * If a thread is cancelled (pthread_cancel(3)) in one of these functions, the
 * cancellation acts after the function. A callback must not throw, call longjmp() or
 * end its thread.
 *
 * Threads: every function that takes a netmeter_meter may be called from any thread
 * at any time, except netmeter_close(), which must be the last call. One thread at a
 * time may use a netmeter_samples or a netmeter_uplinks. After fork(2) the child may
 * use a meter, unless another thread was calling it at that moment. Nothing here throws,
 * aborts, prints, forks, starts a thread or installs a process-wide hook.
 *
 * Stability: this file is frozen for 1.x. It only grows. Every struct except
 * netmeter_error and netmeter_misattribution begins with its size, whether the caller or
 * the library fills it. New members come at the end, and a program that knows fewer
 * members keeps working. connections_c.h, publish_c.h and magma_c.h may change before
 * 2.0. Their functions have a symbol version of their own, which changes with them: the
 * dynamic linker then refuses a program of the former one instead of running it wrongly.
 */
#ifndef NETMETER_NETMETER_H_
#define NETMETER_NETMETER_H_

#include <stddef.h>
#include <stdint.h>

/* The version of this header, and of everything in its tree. */
#define NETMETER_VERSION "1.0.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, such as "1.0.0". */
const char *netmeter_version(void);

/* The numbers are the same as in gRPC and abseil. */
enum netmeter_code {
  NETMETER_OK = 0,
  NETMETER_INVALID_ARGUMENT = 3,
  NETMETER_NOT_FOUND = 5,
  NETMETER_PERMISSION_DENIED = 7,
  NETMETER_RESOURCE_EXHAUSTED = 8,
  NETMETER_FAILED_PRECONDITION = 9,
  NETMETER_UNIMPLEMENTED = 12,
  NETMETER_INTERNAL = 13,
  NETMETER_UNAVAILABLE = 14,
  NETMETER_DATA_LOSS = 15
};

#define NETMETER_MESSAGE_BYTES 1020

/* The cause of an error and what to do about it, in one line. */
struct netmeter_error {
  int32_t code; /* enum netmeter_code */
  char message
      [NETMETER_MESSAGE_BYTES]; /* ends with a NUL; truncated if longer */
};

/* Registering and tagging. These need no netmeter_meter and no right to read.
 * ------------------------------------------------------------------------ */

/* As RegisterProcess() in meter.h: names this process. */
int netmeter_register_process(const char *service, size_t length,
                              struct netmeter_error *error);

/* As TagSocket() and SetSocketService() in meter.h. */
int netmeter_tag_socket(int fd, const char *destination, size_t length,
                        struct netmeter_error *error);
int netmeter_set_socket_service(int fd, const char *service, size_t length,
                                struct netmeter_error *error);

/* A meter that is open for reading.
 * --------------------------------- */

typedef struct netmeter_meter netmeter_meter;

/* MeterOptions in meter.h. */
struct netmeter_options {
  size_t size;             /* sizeof(struct netmeter_options) */
  const char *pin_dir;     /* NULL: "/run/netmeter" */
  const char *service;     /* register this process; NULL: do not */
  size_t service_length;   /* in bytes */
  int32_t wait_for_loader; /* 1: open even if no meter is loaded */
  int32_t reserved;        /* 0 */
};
#define NETMETER_OPTIONS_INIT \
  { sizeof(struct netmeter_options), NULL, NULL, 0, 0, 0 }

/* As Meter::Open(). `options` may be NULL: all defaults. */
int netmeter_open(const struct netmeter_options *options,
                  netmeter_meter **meter, struct netmeter_error *error);

/* `meter` may be NULL. The process keeps its registered name. */
void netmeter_close(netmeter_meter *meter);

/* As Meter::Register(). */
int netmeter_register(netmeter_meter *meter, const char *service, size_t length,
                      struct netmeter_error *error);

/* Reading.
 * -------- */

/* A later 1.x may add values to these three enums, and a meter that is newer than the
 * library may count under them. Give a `switch` a default, and count a series of such a
 * value in sums like any other. */
enum netmeter_kind {
  NETMETER_KIND_SERVICE = 1,
  NETMETER_KIND_BINARY = 2,
  NETMETER_KIND_UNATTRIBUTED = 3,
  NETMETER_KIND_OVERFLOW = 4,
  NETMETER_KIND_PENDING = 6,
  NETMETER_KIND_UNIT = 8,
  NETMETER_KIND_CONTAINER = 9,
  NETMETER_KIND_EVICTED = 10,
  NETMETER_KIND_USER = 12
};
enum netmeter_transport {
  NETMETER_TRANSPORT_OTHER = 0,
  NETMETER_TRANSPORT_TCP = 1,
  NETMETER_TRANSPORT_UDP = 2,
  NETMETER_TRANSPORT_SCTP = 3,
  NETMETER_TRANSPORT_ICMP = 4
};
enum netmeter_path { NETMETER_PATH_DIRECT = 0, NETMETER_PATH_PROXY = 1 };

/* The words for the values above, as in the metrics: "service", "tcp", "direct".
 * "unknown" for a number that the library does not know. */
const char *netmeter_kind_name(int kind);
const char *netmeter_transport_name(int transport);
const char *netmeter_path_name(int path);

#define NETMETER_RTT_BUCKETS 10

/* One series: Sample in sample.h, with its TcpConnections (tcp_). */
struct netmeter_sample {
  size_t size;             /* bytes that the library has filled */
  const char *name;        /* ends with a NUL */
  const char *destination; /* ends with a NUL; "" if not known */
  uint32_t name_length;    /* in bytes, without the NUL */
  uint32_t destination_length;
  int32_t kind;       /* enum netmeter_kind */
  int32_t transport;  /* enum netmeter_transport */
  int32_t path;       /* enum netmeter_path */
  uint8_t registered; /* 1: the service called a register function */
  uint8_t tcp_known;  /* 0: ignore the members tcp_... */
  uint8_t reserved[2];
  uint64_t tx_bytes; /* on the wire */
  uint64_t rx_bytes;
  uint64_t tx_packets;
  uint64_t rx_packets;
  uint64_t tx_payload_bytes;
  uint64_t rx_payload_bytes;
  uint64_t tx_retransmit_bytes;
  uint64_t tcp_opened;
  uint64_t tcp_accepted;
  uint64_t tcp_closed;
  uint64_t tcp_failed;
  uint64_t tcp_rtt_buckets[NETMETER_RTT_BUCKETS];
  uint64_t tcp_rtt_us;
  const char *uplink; /* ends with a NUL; "": none */
  uint32_t uplink_length;
  uint8_t reserved_too[4];
  uint64_t tcp_resets_sent;
  uint64_t tcp_resets_received;
  uint64_t tcp_timeouts;
  uint64_t tcp_retransmitted_segments;
};

/* Memory for the results of a read. It may be reused for any number of reads. */
typedef struct netmeter_samples netmeter_samples;

/* Returns NULL if memory runs out. */
netmeter_samples *netmeter_samples_new(void);

/* `samples` may be NULL. */
void netmeter_samples_free(netmeter_samples *samples);

/* The results of the last read into `samples`, in no particular order. A sample and
 * its strings are valid until the next read into `samples` or
 * netmeter_samples_free(). Returns NULL if `index` is not below the count. */
size_t netmeter_samples_count(const netmeter_samples *samples);
const struct netmeter_sample *netmeter_samples_get(
    const netmeter_samples *samples, size_t index);

/* As Meter::ReadService(): the series of one service, or if `service` is NULL, those
 * of the service that `meter` registered. */
int netmeter_read_service(netmeter_meter *meter, const char *service,
                          size_t length, netmeter_samples *samples,
                          struct netmeter_error *error);

/* As Meter::ReadHost(): all series of the meter. */
int netmeter_read_host(netmeter_meter *meter, netmeter_samples *samples,
                       struct netmeter_error *error);

/* Misattribution in sample.h. Both texts live as long as the process. */
struct netmeter_misattribution {
  const char *unit;
  const char *reason;
  uint64_t count;
};
#define NETMETER_MAX_MISATTRIBUTIONS 16

/* The meter's own state: Health in sample.h. */
struct netmeter_health {
  size_t size;      /* sizeof(struct netmeter_health), set by the caller */
  char version[32]; /* all four strings end with a NUL */
  char abi[16];
  char kernel[64];
  char cgroup[256];
  uint64_t start_time_ns;
  uint64_t load_time_ns;
  uint32_t series;
  uint32_t max_series;
  uint32_t names;
  uint32_t max_names;
  uint64_t evicted_series;
  uint64_t evicted_names;
  uint32_t misattributed_count;
  uint8_t reserved[4];
  struct netmeter_misattribution misattributed[NETMETER_MAX_MISATTRIBUTIONS];
};

/* As Meter::ReadHealth(). Members that the library does not know are set to 0. If
 * health->size is smaller than the current struct, as in an older program, only its
 * own members are filled. NETMETER_INVALID_ARGUMENT if it is smaller than in the
 * first ABI of libnetmeter.so.1. */
int netmeter_read_health(netmeter_meter *meter, struct netmeter_health *health,
                         struct netmeter_error *error);

/* Uplinks: uplinks.h says what each member means. All texts end with a NUL.
 * -------------------------------------------------------------------------- */

/* One direction of an uplink. */
struct netmeter_uplink_counts {
  size_t size; /* bytes that the library has filled, as below */
  uint64_t interface_bytes;
  uint64_t interface_packets;
  uint64_t local_bytes;
  uint64_t local_packets;
  uint64_t forwarded_bytes;
  uint64_t forwarded_packets;
  uint64_t layer2_header_bytes;
  uint64_t unnamed_bytes;
  uint64_t unnamed_packets;
};

struct netmeter_uplink_interface {
  size_t size;
  const char *name;
  const char *not_counted; /* "": it counts */
  uint64_t tx_bytes;
  uint64_t rx_bytes;
  uint64_t tx_packets;
  uint64_t rx_packets;
  uint32_t index;
  int32_t tx_header_bytes; /* -1: unknown */
  int32_t rx_header_bytes;
  uint8_t has_left; /* 1: yes */
  uint8_t reserved[3];
};

struct netmeter_forwarded {
  size_t size;
  const char *interface_name;
  const char *client; /* "": the interface's other traffic */
  uint64_t tx_bytes;
  uint64_t rx_bytes;
  uint64_t tx_packets;
  uint64_t rx_packets;
};

struct netmeter_uplink {
  size_t size;
  const char *name;
  const struct netmeter_uplink_counts *tx;
  const struct netmeter_uplink_counts *rx;
  const struct netmeter_uplink_interface *const *interfaces;
  size_t interface_count;
  const struct netmeter_forwarded *const *forwarded;
  size_t forwarded_count;
  const char *unknown;           /* "": the unnamed traffic is known */
  const char *forwarded_unknown; /* "": forwarded traffic is measured */
  uint8_t is_paid;               /* 1: yes, as the next two */
  uint8_t leads_to_clients;
  uint8_t forwarded_began_later;
  uint8_t reserved[5];
};

/* Memory for uplinks. It may be reused for any number of reads, by one thread at a
 * time. */
typedef struct netmeter_uplinks netmeter_uplinks;

/* Returns NULL if memory runs out. */
netmeter_uplinks *netmeter_uplinks_new(void);

/* `uplinks` may be NULL. */
void netmeter_uplinks_free(netmeter_uplinks *uplinks);

/* The results of the last read into `uplinks`, valid as those of
 * netmeter_samples_get(). Returns NULL if `index` is not below the count. */
size_t netmeter_uplinks_count(const netmeter_uplinks *uplinks);
const struct netmeter_uplink *netmeter_uplinks_get(
    const netmeter_uplinks *uplinks, size_t index);

/* As Meter::ReadUplinks(). Makes system calls each time. */
int netmeter_read_uplinks(netmeter_meter *meter, netmeter_uplinks *uplinks,
                          struct netmeter_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NETMETER_NETMETER_H_ */
