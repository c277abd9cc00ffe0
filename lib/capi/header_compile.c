/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled as C99: a program that uses the C API alone. */
#include "netmeter/netmeter.h"

uint64_t sent_bytes(netmeter_meter *meter, netmeter_samples *samples);

uint64_t sent_bytes(netmeter_meter *meter, netmeter_samples *samples) {
  uint64_t sum = 0;

  if (netmeter_read_host(meter, samples, NULL) != NETMETER_OK) return 0;
  for (size_t i = 0; i < netmeter_samples_count(samples); i++)
    sum += netmeter_samples_get(samples, i)->tx_bytes;
  return sum;
}
