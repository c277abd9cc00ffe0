// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that systemd passes at start, sd_listen_fds(3), without libsystemd.
//
//   for (int i = 0; i < ActivatedDescriptors(); i++) Use(kFirstActivated + i);
//
// Threads: any, as long as none changes the environment.

#ifndef NETMETER_LIB_BASE_ACTIVATION_H_
#define NETMETER_LIB_BASE_ACTIVATION_H_

#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/numbers.h"

namespace netmeter {
namespace internal {

constexpr int kFirstActivated = 3;  // SD_LISTEN_FDS_START

// LISTEN_FDS; 0 if it is missing or no such number, or if LISTEN_PID names another
// process. The environment may have a wrong count.
inline int ActivatedDescriptors() {
  const char* const pid = getenv("LISTEN_PID");
  const char* const fds = getenv("LISTEN_FDS");
  int owner = 0, count = 0;
  return pid != nullptr && fds != nullptr && absl::SimpleAtoi(pid, &owner) &&
                 owner == getpid() && absl::SimpleAtoi(fds, &count) && count > 0
             ? count
             : 0;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_ACTIVATION_H_
