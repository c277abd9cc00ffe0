/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * musl NAME: a service for musl, which uses only abi.h. It registers, tags a socket and
 * sends one datagram. If there is no meter, or the meter refuses, it ends with 2.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netmeter/abi.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
  const int fresh = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in to;
  int fd;

  if (argc != 2) return 1;
  if (setsockopt(fresh, NM_SOL, NM_REGISTER, argv[1], strlen(argv[1])) != 0) {
    perror("register");
    return 2;
  }
  close(fresh);
  memset(&to, 0, sizeof(to));
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = inet_addr("10.88.0.2");
  fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (setsockopt(fd, NM_SOL, NM_TAG, "streamer", strlen("streamer")) != 0) {
    perror("tag");
    return 2;
  }
  return sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to)) == 5 ? 0
                                                                            : 1;
}
