// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/prepare_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

namespace netmeter {
namespace internal {

void PrepareProcess() {
  // A new descriptor gets the lowest free number. If stderr was closed, a client of
  // `netmeter-fds` got its number, and then our messages. The descriptors opened here
  // fail as closed ones do.
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
  signal(SIGXFSZ, SIG_IGN);
  // A closed pipe on stdout must not end the program: `load -v | head` has to finish.
  signal(SIGPIPE, SIG_IGN);
  umask(0022);
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
}

SignalsBlocked::SignalsBlocked() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGALRM}) {
    sigaddset(&signals, signal);
  }
  sigprocmask(SIG_BLOCK, &signals, &before_);
}

SignalsBlocked::~SignalsBlocked() {
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace internal
}  // namespace netmeter
