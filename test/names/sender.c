// SPDX-License-Identifier: BSD-3-Clause
/*
 * A program under any name and with any arguments: it does what the words of
 * the environment's NM_DO say, one after the other, and ends with 0.
 *
 *   udp=ADDRESS:PORT/BYTES  one datagram, from a new socket
 *   register=NAME           names this process
 *   thread=NAME             the rest is done by a new thread of this name
 *   orphan=NAME             ... while the main thread ends
 *   fork                    the rest is done by a child
 *   exec=PATH               the rest is done by this program
 *   threadexec=PATH         ..., executed by a thread
 *   title=TEXT              a new title, over the arguments, and a new comm
 *   hide                    becomes nobody and is not to be looked at
 *   impostor=NAME/BYTES     another process, which is handed a socket of this
 *                           one, registers NAME on it, then sends BYTES
 *   pause                   says "ready" and waits for its end
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "netmeter/abi.h"

static char** arguments;

static void do_words(char* words);

static void die(const char* what) {
  fprintf(stderr, "sender: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(long result, const char* what) {
  if (result < 0) die(what);
}

static int udp_socket(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

  check(fd, "socket");
  return fd;
}

static void send_on(int fd, const char* address, int port, long bytes) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
  char* data = calloc(1, bytes + 1);

  inet_pton(AF_INET, address, &to.sin_addr);
  if (sendto(fd, data, bytes, 0, (struct sockaddr*)&to, sizeof(to)) != bytes)
    die("sendto");
  free(data);
}

static void send_udp(char* text) {
  char address[64];
  int port, fd = udp_socket();
  long bytes;

  if (sscanf(text, "%63[^:]:%d/%ld", address, &port, &bytes) != 3) die(text);
  send_on(fd, address, port, bytes);
  close(fd);
}

static void register_on(int fd, const char* name) {
  check(setsockopt(fd, NM_SOL, NM_REGISTER, name, strlen(name)), "NM_REGISTER");
}

static void join(pid_t child) {
  int status;

  check(waitpid(child, &status, 0), "waitpid");
  if (status) exit(1);
}

/* A real SCM_RIGHTS message: the socket gets a descriptor of the other one. */
static void impostor(char* text) {
  char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  char* bytes = strchr(text, '/');
  int pair[2], fd = udp_socket();
  pid_t child;

  *bytes++ = 0;
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
  child = fork();
  check(child, "fork");
  if (child == 0) {
    close(fd);
    check(recvmsg(pair[1], &message, 0), "recvmsg");
    memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    register_on(fd, text);
    close(fd);
    fd = udp_socket();
    send_on(fd, "127.0.0.1", 8443, atol(bytes));
    _exit(0);
  }
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  check(sendmsg(pair[0], &message, 0), "sendmsg");
  join(child);
  close(fd);
  close(pair[0]);
  close(pair[1]);
}

static void run_program(const char* path, char* words) {
  setenv("NM_DO", words, 1);
  execl(path, path, (char*)NULL);
  die(path);
}

struct work {
  const char *name, *path;
  char* words;
  int last;
};

static void* in_thread(void* argument) {
  struct work* work = argument;

  if (work->name) prctl(PR_SET_NAME, work->name);
  if (work->last) usleep(100000); /* until the main thread is gone */
  if (work->path) run_program(work->path, work->words);
  do_words(work->words);
  if (work->last) exit(0);
  return NULL;
}

static void start_thread(struct work* work) {
  pthread_t thread;

  errno = pthread_create(&thread, NULL, in_thread, work);
  if (errno) die("pthread_create");
  if (work->last) pthread_exit(NULL);
  pthread_join(thread, NULL);
}

static void do_words(char* words) {
  struct work work = {0};
  char *word, *value, *rest = words;
  pid_t child;

  while ((word = strsep(&rest, " ")) != NULL) {
    if (!*word) continue;
    value = strchr(word, '=');
    if (value) *value++ = 0;
    if (!rest) rest = word + strlen(word) + (value ? strlen(value) + 1 : 0);
    if (!strcmp(word, "udp")) {
      send_udp(value);
    } else if (!strcmp(word, "register")) {
      int fd = udp_socket();

      register_on(fd, value);
      close(fd);
    } else if (!strcmp(word, "thread") || !strcmp(word, "orphan")) {
      static struct work later;

      later.name = value;
      later.words = rest;
      later.last = word[0] == 'o';
      start_thread(&later);
      return;
    } else if (!strcmp(word, "fork")) {
      child = fork();
      check(child, "fork");
      if (child) {
        join(child);
        return;
      }
    } else if (!strcmp(word, "exec")) {
      run_program(value, rest);
    } else if (!strcmp(word, "threadexec")) {
      work.path = value;
      work.words = rest;
      start_thread(&work);
    } else if (!strcmp(word, "title")) {
      prctl(PR_SET_NAME, value);
      strncpy(arguments[0], value, strlen(arguments[0]));
    } else if (!strcmp(word, "hide")) {
      check(setresgid(65534, 65534, 65534), "setresgid");
      check(setresuid(65534, 65534, 65534), "setresuid");
      check(prctl(PR_SET_DUMPABLE, 0), "prctl");
    } else if (!strcmp(word, "impostor")) {
      impostor(value);
    } else if (!strcmp(word, "pause")) {
      check(write(1, "ready\n", 6), "write");
      pause();
    } else {
      die(word);
    }
  }
}

int main(int argc, char** argv) {
  const char* words = getenv("NM_DO");

  (void)argc;
  arguments = argv;
  if (words) do_words(strdup(words));
  return 0;
}
