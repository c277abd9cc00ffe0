/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled as C99: a program that uses the C API alone. */
#include "netmeter/connections_c.h"
#include "netmeter/magma_c.h"
#include "netmeter/netmeter.h"
#include "netmeter/publish_c.h"

uint64_t sent_bytes(netmeter_meter *meter, netmeter_samples *samples);
uint64_t sent_by_uplinks(netmeter_meter *meter, netmeter_uplinks *uplinks);
int visit_once(netmeter_meter *meter,
               int (*take)(const struct netmeter_metric *delta, void *context));

uint64_t sent_bytes(netmeter_meter *meter, netmeter_samples *samples) {
  uint64_t sum = 0;

  if (netmeter_read_host(meter, samples, NULL) != NETMETER_OK) return 0;
  for (size_t i = 0; i < netmeter_samples_count(samples); i++)
    sum += netmeter_samples_get(samples, i)->tx_bytes;
  return sum;
}

uint64_t sent_by_uplinks(netmeter_meter *meter, netmeter_uplinks *uplinks) {
  uint64_t sum = 0;

  if (netmeter_read_uplinks(meter, uplinks, NULL) != NETMETER_OK) return 0;
  for (size_t i = 0; i < netmeter_uplinks_count(uplinks); i++)
    sum += netmeter_uplinks_get(uplinks, i)->tx->interface_bytes;
  return sum;
}

int visit_once(netmeter_meter *meter,
               int (*take)(const struct netmeter_metric *delta,
                           void *context)) {
  struct netmeter_publish_options options = NETMETER_PUBLISH_OPTIONS_INIT;
  struct netmeter_magma_options magma = NETMETER_MAGMA_OPTIONS_INIT;
  netmeter_metrics *metrics = netmeter_metrics_new();
  netmeter_visitor *visitor;
  const char *bytes;
  size_t length;
  int code = netmeter_serialize_metrics(meter, &options, &magma, metrics,
                                        &bytes, &length, NULL);

  if (code == NETMETER_OK)
    code = netmeter_visitor_new(meter, &options, &visitor, NULL);
  if (code == NETMETER_OK) {
    code = netmeter_visit(visitor, take, NULL, NULL);
    netmeter_visitor_free(visitor);
  }
  netmeter_metrics_free(metrics);
  return code;
}
