/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The example of the README in C, for an installed libnetmeter:
 *
 *   cc embed.c $(pkg-config --cflags --libs netmeter) -o embed
 */
#include <arpa/inet.h>
#include <netmeter/netmeter.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(void) {
  struct netmeter_options options = NETMETER_OPTIONS_INIT;
  struct netmeter_error error;
  netmeter_meter *meter;

  options.service = "my-service";
  options.service_length = strlen(options.service);
  if (netmeter_open(&options, &meter, &error) != NETMETER_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  /* The service's own work, unchanged. Here, a datagram of five bytes: */
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
  to.sin_addr.s_addr = inet_addr("192.0.2.1");
  sendto(socket(AF_INET, SOCK_DGRAM, 0), "hello", 5, 0, (struct sockaddr *)&to,
         sizeof(to));

  netmeter_samples *samples = netmeter_samples_new();
  if (netmeter_read_service(meter, NULL, 0, samples, &error) != NETMETER_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  for (size_t i = 0; i < netmeter_samples_count(samples); i++) {
    const struct netmeter_sample *sample = netmeter_samples_get(samples, i);
    printf("%s, %s: sent %llu bytes, received %llu\n", sample->name,
           netmeter_transport_name(sample->transport),
           (unsigned long long)sample->tx_bytes,
           (unsigned long long)sample->rx_bytes);
  }
  netmeter_samples_free(samples);
  netmeter_close(meter);
  return 0;
}
