/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints the uplinks of this host, with an installed libnetmeter:
 *
 *   cc uplinks.c $(pkg-config --cflags --libs netmeter) -o uplinks
 */
#include <inttypes.h>
#include <netmeter/netmeter.h>
#include <stdio.h>

static void print(const struct netmeter_uplink_counts *one, const char *name,
                  const char *way) {
  printf("%s %s %" PRIu64 " bytes: local %" PRIu64 ", forwarded %" PRIu64
         ", layer-2 headers %" PRIu64 ", unnamed %" PRIu64 "\n",
         name, way, one->interface_bytes, one->local_bytes,
         one->forwarded_bytes, one->layer2_header_bytes, one->unnamed_bytes);
}

int main(void) {
  struct netmeter_error error;
  netmeter_meter *meter;

  if (netmeter_open(NULL, &meter, &error) != NETMETER_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  netmeter_uplinks *uplinks = netmeter_uplinks_new();
  if (netmeter_read_uplinks(meter, uplinks, &error) != NETMETER_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  for (size_t i = 0; i < netmeter_uplinks_count(uplinks); i++) {
    const struct netmeter_uplink *uplink = netmeter_uplinks_get(uplinks, i);
    print(uplink->tx, uplink->name, "sent");
    print(uplink->rx, uplink->name, "received");
  }
  netmeter_uplinks_free(uplinks);
  netmeter_close(meter);
  return 0;
}
