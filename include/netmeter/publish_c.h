/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * publish.h and prometheus.h in C: metric families, and the metrics of a meter.
 *
 *   netmeter_metrics *metrics = netmeter_metrics_new();
 *   if (netmeter_read_metrics(meter, NULL, metrics, &error) == NETMETER_OK)
 *     for (size_t i = 0; i < netmeter_metrics_count(metrics); i++)
 *       printf("%s\n", netmeter_metrics_get(metrics, i)->family);
 *   netmeter_metrics_free(metrics);
 *
 * May change before 2.0. Results, structs and callbacks follow the rules of netmeter.h.
 *
 * Threads: one thread at a time may use a netmeter_metrics. All else may be used from any
 * thread at any time.
 */
#ifndef NETMETER_PUBLISH_C_H_
#define NETMETER_PUBLISH_C_H_

#include "netmeter/netmeter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scope in publish.h. */
enum netmeter_scope {
  NETMETER_SCOPE_SERVICE = 0,
  NETMETER_SCOPE_HOST = 1,
  NETMETER_SCOPE_UNREGISTERED = 2
};
const char *netmeter_scope_name(int scope);

/* As FamilySet::Parse() in publish.h. *families is never 0, and is valid only for the
 * library in this process. */
int netmeter_parse_families(const char *list, size_t length, uint64_t *families,
                            struct netmeter_error *error);

/* As FamilySet::Contains(): 1 or 0. */
int netmeter_has_family(uint64_t families, const char *family, size_t length);

/* PublishOptions in publish.h. */
struct netmeter_publish_options {
  size_t size;       /* sizeof(struct netmeter_publish_options) */
  uint64_t families; /* 0: `kernsnoopd` in magma_c.h, else `default` */
  int32_t scope;     /* enum netmeter_scope */
  int32_t omit_zeros;
  int32_t names_without_total;
  int32_t reserved; /* 0 */
};
#define NETMETER_PUBLISH_OPTIONS_INIT \
  { sizeof(struct netmeter_publish_options), 0, 0, 0, 0, 0 }

enum netmeter_type {
  NETMETER_TYPE_COUNTER = 0,
  NETMETER_TYPE_GAUGE = 1,
  NETMETER_TYPE_HISTOGRAM = 2
};

/* One metric. Texts are UTF-8 and end with a NUL. */
struct netmeter_metric {
  size_t size;        /* bytes that the library has filled */
  const char *family; /* family and help stay valid until the process ends */
  const char *help;
  const char *const *label_names;
  const char *const *label_values;
  size_t label_count;
  uint64_t value;                /* of a counter or gauge; 0 for a histogram */
  double sum;                    /* of a histogram, in seconds; 0 for others */
  const double *bucket_bounds;   /* of a histogram, in seconds */
  const uint64_t *bucket_counts; /* of each bucket, not cumulative */
  size_t bucket_count;           /* 0 if it is no histogram */
  int32_t type;                  /* enum netmeter_type, of the family */
  uint8_t reserved[4];
};

/* Memory for metrics. Like netmeter_samples it may be reused for any number of calls. */
typedef struct netmeter_metrics netmeter_metrics;

/* Returns NULL if memory runs out. */
netmeter_metrics *netmeter_metrics_new(void);

/* `metrics` may be NULL. */
void netmeter_metrics_free(netmeter_metrics *metrics);

/* The results of the last netmeter_read_metrics() into `metrics`: family after family,
 * in the order of publish.h. All metrics of a family have the same pointer `family`. A
 * metric is valid until the next call with `metrics`. Returns NULL if `index` is not
 * below the count. */
size_t netmeter_metrics_count(const netmeter_metrics *metrics);
const struct netmeter_metric *netmeter_metrics_get(
    const netmeter_metrics *metrics, size_t index);

/* As PrometheusCollectable::Collect() in prometheus.h. If the meter is NULL or cannot
 * be read, the result is netmeter_up 0, and that is not an error. `options` may be
 * NULL. Errors: NETMETER_INVALID_ARGUMENT, and NETMETER_RESOURCE_EXHAUSTED, with no
 * metric, if there is not even enough memory for netmeter_up. */
int netmeter_read_metrics(netmeter_meter *meter,
                          const struct netmeter_publish_options *options,
                          netmeter_metrics *metrics,
                          struct netmeter_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NETMETER_PUBLISH_C_H_ */
