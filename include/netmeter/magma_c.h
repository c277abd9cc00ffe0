/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * magma.h in C, and the answers of Service303 in grpc.h: a meter's metrics as bytes for
 * GetMetrics, or as increments.
 *
 *   netmeter_metrics *metrics = netmeter_metrics_new();
 *   const char *bytes;
 *   size_t length;
 *   if (netmeter_serialize_metrics(meter, NULL, NULL, metrics, &bytes, &length,
 *                                  &error) == NETMETER_OK)
 *     merge(response, bytes, length);
 *
 * May change before 2.0. Results, structs and callbacks follow the rules of netmeter.h.
 *
 * Threads: only the thread that made a netmeter_visitor may use it.
 */
#ifndef NETMETER_MAGMA_C_H_
#define NETMETER_MAGMA_C_H_

#include "netmeter/publish_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What MagmaOptions in magma.h has beyond PublishOptions. */
struct netmeter_magma_options {
  size_t size;      /* sizeof(struct netmeter_magma_options) */
  size_t max_bytes; /* 0: 4,000,000 */
  int32_t without_timestamps;
  int32_t reserved; /* 0 */
};
#define NETMETER_MAGMA_OPTIONS_INIT \
  { sizeof(struct netmeter_magma_options), 0, 0, 0 }

/* As MagmaMetrics::Serialize() in magma.h. *bytes is valid until the next call with
 * `metrics`. `magma` may be NULL, too; the rest is as for netmeter_read_metrics(). */
int netmeter_serialize_metrics(netmeter_meter *meter,
                               const struct netmeter_publish_options *options,
                               const struct netmeter_magma_options *magma,
                               netmeter_metrics *metrics, const char **bytes,
                               size_t *length, struct netmeter_error *error);

/* The answer of Service303 in grpc.h to GetServiceInfo. start_time_s is the Unix time
 * at which the service started. *bytes and errors as above. */
int netmeter_serialize_service_info(netmeter_meter *meter, const char *name,
                                    size_t name_length, const char *version,
                                    size_t version_length,
                                    uint64_t start_time_s,
                                    netmeter_metrics *metrics,
                                    const char **bytes, size_t *length,
                                    struct netmeter_error *error);

/* DeltaVisitor in magma.h; see there for the thread that may visit. `meter` may be
 * closed before the visitor is freed. */
typedef struct netmeter_visitor netmeter_visitor;
int netmeter_visitor_new(netmeter_meter *meter,
                         const struct netmeter_publish_options *options,
                         netmeter_visitor **visitor,
                         struct netmeter_error *error);

/* `visitor` may be NULL. */
void netmeter_visitor_free(netmeter_visitor *visitor);

/* As DeltaVisitor::Visit(). A delta has a counter's family and labels, no help, and as
 * value the increment. It is valid during the call. take() returns NETMETER_OK if it
 * has applied the delta. Any other code ends the visit and is returned. */
int netmeter_visit(netmeter_visitor *visitor,
                   int (*take)(const struct netmeter_metric *delta,
                               void *context),
                   void *context, struct netmeter_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NETMETER_MAGMA_C_H_ */
