// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/prepare_process.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace netmeter {
namespace internal {

void PrepareProcess() {
  signal(SIGXFSZ, SIG_IGN);
  umask(0022);
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
}

}  // namespace internal
}  // namespace netmeter
