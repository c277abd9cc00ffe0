// SPDX-License-Identifier: BSD-3-Clause
// Waits for a condition instead of a time.
//
//   Await([&] { return answered == 40; });
//
// Threads: any.

#ifndef NETMETER_LIB_TESTING_AWAIT_H_
#define NETMETER_LIB_TESTING_AWAIT_H_

#include <unistd.h>

#include <functional>

namespace netmeter {
namespace internal {

// Looks a hundred times a second, for half a minute at most; returns whether it holds.
inline bool Await(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    usleep(10000);
  }
  return false;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_AWAIT_H_
