// SPDX-License-Identifier: BSD-3-Clause
// The meter keeps times of CLOCK_BOOTTIME, which nobody sets: a host without a clock
// of its own loads it in 1970. For people they become Unix time when they are read.
//
//   const uint64_t start_ns = UnixTimeNs(health.start_time_ns);
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_CLOCK_H_
#define NETMETER_LIB_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace netmeter {
namespace internal {

inline uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

// By the clock of now. It may differ from call to call by some nanoseconds, and by as
// much as the clock was set in between.
inline uint64_t UnixTimeNs(uint64_t boottime_ns) {
  return ClockNs(CLOCK_REALTIME) - ClockNs(CLOCK_BOOTTIME) + boottime_ns;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_CLOCK_H_
