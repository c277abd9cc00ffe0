// SPDX-License-Identifier: BSD-3-Clause
/*
 * Calls setsockopt(2) and getsockopt(2) for every option of the common levels,
 * on sockets of many kinds, with values of many lengths, and prints a line for
 * each value: what came back, errno, and the value as it is then read. The
 * same calls print the same lines, with a meter or without.
 *
 * Every buffer is as long as it is said to be: the last byte of it ends a page,
 * and the next page is not there. But for those that the lines call unreadable.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define BUFFER (64 << 10)

static const struct kind {
  const char* name;
  int family, type, protocol;
  int levels[4];
} kinds[] = {
    {"tcp4", AF_INET, SOCK_STREAM, 0, {IPPROTO_IP, IPPROTO_TCP}},
    {"udp4", AF_INET, SOCK_DGRAM, 0, {IPPROTO_IP, IPPROTO_UDP}},
    {"raw4", AF_INET, SOCK_RAW, IPPROTO_ICMP, {IPPROTO_IP, SOL_RAW}},
    {"tcp6", AF_INET6, SOCK_STREAM, 0, {IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_IP}},
    {"udp6", AF_INET6, SOCK_DGRAM, 0, {IPPROTO_IPV6, IPPROTO_UDP}},
    {"raw6", AF_INET6, SOCK_RAW, 58, {IPPROTO_IPV6, IPPROTO_ICMPV6, SOL_RAW}},
    {"unix", AF_UNIX, SOCK_STREAM, 0, {0}},
    {"unixd", AF_UNIX, SOCK_DGRAM, 0, {0}},
    {"netlink", AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, {SOL_NETLINK}},
    {"packet", AF_PACKET, SOCK_DGRAM, 0, {SOL_PACKET}},
};

static const int lengths[] = {
    0,  1,  2,  3,   4,   5,   8,   12,   16,   20,   24,   28,   32,    36,
    40, 41, 64, 128, 136, 256, 264, 1024, 4095, 4096, 4097, 8192, 16384, 40000};

static char *write_end, *read_end; /* where the buffers end */

static const char unreadable[] = ""; /* a value of which the first byte is */

static char* guarded(void) {
  char* start = mmap(NULL, BUFFER + 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (start == MAP_FAILED || mprotect(start + BUFFER, 4096, PROT_NONE)) {
    perror("replay");
    exit(1);
  }
  return start + BUFFER;
}

/* Values that are another one at every call. */
static bool changes(int level, int option) {
  if (level == SOL_SOCKET) {
    switch (option) {
      case SO_PEERCRED:
      case 49: /* SO_INCOMING_CPU */
      case 55: /* SO_MEMINFO */
      case 56: /* SO_INCOMING_NAPI_ID */
      case 57: /* SO_COOKIE */
      case 71: /* SO_NETNS_COOKIE */
      case 77: /* SO_PEERPIDFD: and a descriptor for each call */
        return true;
    }
  }
  if (level == IPPROTO_TCP)
    return option == TCP_INFO || option == TCP_TIMESTAMP;
  return false;
}

static uint64_t hash(const char* data, size_t size) {
  uint64_t value = 14695981039346656037u;

  for (size_t i = 0; i < size; i++)
    value = (value ^ (unsigned char)data[i]) * 1099511628211u;
  return value;
}

static void get(int fd, int level, int option, int length) {
  socklen_t got = length;
  char* buffer = read_end - length;
  int result;

  memset(buffer, 0x5a, length);
  errno = 0;
  result = getsockopt(fd, level, option, buffer, &got);
  printf(" | %d %d %u", result, errno, got);
  if (changes(level, option) && result == 0) {
    printf(" changes");
  } else if (got <= 16 && (int)got <= length) {
    printf(" ");
    for (socklen_t i = 0; i < got; i++)
      printf("%02x", (unsigned char)buffer[i]);
  } else {
    printf(" #%016lx", (long)hash(buffer, length));
  }
}

/* One set, then reads of several lengths. All calls for an option follow each
 * other on one socket, a new one: some take milliseconds to close. */
static void call(const struct kind* kind, int level, int option,
                 const char* what, const char* value, int length) {
  static const struct kind* last_kind;
  static int fd = -1, last_level, last_option;
  char* buffer = NULL;
  int result;

  if (kind != last_kind || level != last_level || option != last_option) {
    if (fd >= 0) close(fd);
    fd = socket(kind->family, kind->type | SOCK_CLOEXEC, kind->protocol);
    if (fd < 0) {
      perror(kind->name);
      exit(1);
    }
    last_kind = kind;
    last_level = level;
    last_option = option;
  }
  if (value == unreadable) {
    buffer = write_end - 1;
  } else if (value) {
    buffer = write_end - length;
    memcpy(buffer, value, length);
  }
  errno = 0;
  result = setsockopt(fd, level, option, buffer, length);
  printf("%s %d %d %s*%d: %d %d", kind->name, level, option, what, length,
         result, errno);
  get(fd, level, option, 4);
  get(fd, level, option, 256);
  printf("\n");
}

static void every_option(const struct kind* kind, int level) {
  static char data[BUFFER];

  for (int option = 0; option <= 130; option++) {
    /* Names of modules: these are below. */
    if (level == IPPROTO_TCP && (option == TCP_CONGESTION || option == TCP_ULP))
      continue;
    for (size_t i = 0; i < LENGTH(lengths); i++) {
      memset(data, 0, lengths[i]);
      call(kind, level, option, "0", data, lengths[i]);
      data[0] = 1;
      call(kind, level, option, "1", data, lengths[i]);
      memset(data, 0xff, lengths[i]);
      call(kind, level, option, "ff", data, lengths[i]);
    }
    call(kind, level, option, "null", NULL, 0);
    call(kind, level, option, "unreadable-null", NULL, 4);
    call(kind, level, option, "unreadable", unreadable, 4);
    call(kind, level, option, "unreadable", unreadable, 128);
  }
}

/* Names of modules, of the right length and longer. */
static void modules(void) {
  const char* names[] = {"reno", "cubic", "nm_no_such", ""};
  char text[64];

  for (size_t i = 0; i < LENGTH(names); i++) {
    int length = snprintf(text, sizeof(text), "%s", names[i]);

    for (int extra = 0; extra < 3; extra++)
      call(&kinds[0], IPPROTO_TCP, TCP_CONGESTION, names[i], text,
           length + extra);
    call(&kinds[0], IPPROTO_TCP, TCP_ULP, names[i], text, length + 1);
  }
}

/* 64: IPT_SO_SET_REPLACE and IP6T_SO_SET_REPLACE, then counters, and reading.
 */
static void tables(void) {
  static char data[BUFFER];

  for (size_t k = 2; k < 6; k += 3) {
    int level = kinds[k].family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;

    for (int option = 64; option <= 70; option++) {
      for (size_t i = 0; i < LENGTH(lengths); i++) {
        memset(data, 0, sizeof(data));
        strcpy(data, "filter");
        call(&kinds[k], level, option, "filter", data, lengths[i]);
        /* struct ipt_replace: valid_hooks, num_entries, size */
        *(uint32_t*)(data + 32) = 0xe;
        *(uint32_t*)(data + 36) = 4;
        *(uint32_t*)(data + 40) = lengths[i] < 96 ? 0 : lengths[i] - 96;
        call(&kinds[k], level, option, "replace", data, lengths[i]);
      }
    }
  }
}

int main(void) {
  struct rlimit files = {4096, 4096};

  setrlimit(RLIMIT_NOFILE, &files);
  write_end = guarded();
  read_end = guarded();
  for (size_t k = 0; k < LENGTH(kinds); k++) {
    every_option(&kinds[k], SOL_SOCKET);
    for (size_t l = 0; l < LENGTH(kinds[k].levels); l++)
      if (l == 0 || kinds[k].levels[l])
        every_option(&kinds[k], kinds[k].levels[l]);
    /* Unused levels: the second is next to the meter's own. */
    call(&kinds[k], 9999, 1, "level", "abcd", 4);
    call(&kinds[k], 0x6e75, 1, "level", "abcd", 4);
  }
  modules();
  tables();
  return 0;
}
