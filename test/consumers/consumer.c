/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * consumer PIN-DIR: a service in C, linked with an installed libnetmeter. It finds
 * a TCP connection of its own (ends with 4 if it does not), registers, tags a
 * socket, sends one datagram, and prints its series. Without a meter it prints why
 * there is none, and ends with 2.
 *
 * consumer --register NAME: registers and sends, and opens no meter.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netmeter/connections_c.h>
#include <netmeter/netmeter.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int send_datagram(struct netmeter_error *error) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in to;

  memset(&to, 0, sizeof(to));
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = inet_addr("10.88.0.2");
  if (netmeter_tag_socket(fd, "streamer", strlen("streamer"), error) !=
      NETMETER_OK)
    return error->code;
  return sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to)) == 5
             ? NETMETER_OK
             : NETMETER_INTERNAL;
}

static int count_connection(const struct netmeter_connection *connection,
                            void *count) {
  if (strcmp(connection->state, "ESTABLISHED") == 0 &&
      strcmp(connection->remote_address, "127.0.0.1") == 0 &&
      connection->sent_bytes == 5)
    ++*(int *)count;
  return NETMETER_OK;
}

static int finds_its_connection(void) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to;
  socklen_t size = sizeof(to);
  int count = 0;

  if (listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&to, &size) != 0)
    return 0;
  to.sin_addr.s_addr = inet_addr("127.0.0.1");
  if (connect(client, (struct sockaddr *)&to, sizeof(to)) != 0 ||
      send(client, "hello", 5, 0) != 5)
    return 0;
  return netmeter_visit_connections(count_connection, &count, NULL) ==
             NETMETER_OK &&
         count == 1 &&
         netmeter_read_connection(client, count_connection, &count, NULL) ==
             NETMETER_OK &&
         count == 2 && close(client) == 0 && close(listener) == 0;
}

int main(int argc, char **argv) {
  struct netmeter_options options = NETMETER_OPTIONS_INIT;
  struct netmeter_error error = {0, ""};
  netmeter_meter *meter;
  netmeter_samples *samples = netmeter_samples_new();
  size_t i;

  if (argc == 3 && strcmp(argv[1], "--register") == 0) {
    if (netmeter_register_process(argv[2], strlen(argv[2]), &error) ==
            NETMETER_OK &&
        send_datagram(&error) == NETMETER_OK)
      return 0;
    printf("%d: %s\n", (int)error.code, error.message);
    return 3;
  }
  if (argc != 2 || strcmp(netmeter_version(), NETMETER_VERSION) != 0) return 1;
  if (!finds_its_connection()) return 4;
  options.pin_dir = argv[1];
  options.service = "consumer";
  options.service_length = strlen(options.service);
  if (netmeter_open(&options, &meter, &error) != NETMETER_OK) {
    printf("%d: %s\n", (int)error.code, error.message);
    return 2;
  }
  if (send_datagram(&error) != NETMETER_OK ||
      netmeter_read_service(meter, NULL, 0, samples, &error) != NETMETER_OK) {
    printf("%d: %s\n", (int)error.code, error.message);
    return 3;
  }
  for (i = 0; i < netmeter_samples_count(samples); i++) {
    const struct netmeter_sample *sample = netmeter_samples_get(samples, i);
    printf("%s %s %s %llu\n", sample->name, sample->destination,
           netmeter_transport_name(sample->transport),
           (unsigned long long)sample->tx_bytes);
  }
  netmeter_samples_free(samples);
  netmeter_close(meter);
  return 0;
}
