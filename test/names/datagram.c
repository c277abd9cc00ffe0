// SPDX-License-Identifier: BSD-3-Clause
/* One datagram of argv[1] bytes to the proxy port on loopback, and the end:
 * linked statically, it lives a fraction of a millisecond. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char** argv) {
  static char data[4096];
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8443)};
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  long bytes = argc > 1 ? atol(argv[1]) : 0;

  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bytes > (long)sizeof(data) ||
         sendto(fd, data, bytes, 0, (struct sockaddr*)&to, sizeof(to)) != bytes;
}
