// SPDX-License-Identifier: BSD-3-Clause
// The meter keeps times of CLOCK_BOOTTIME, which no program can set. (A host without a
// hardware clock loads the meter in 1970.) Readers convert them to Unix time for people.
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

// Uses the present offset between the clocks. The result may differ from call to call by
// some nanoseconds, and by the amount the clock was set in between.
inline uint64_t UnixTimeNs(uint64_t boottime_ns) {
  return ClockNs(CLOCK_REALTIME) - ClockNs(CLOCK_BOOTTIME) + boottime_ns;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_CLOCK_H_
