// SPDX-License-Identifier: BSD-3-Clause
// Ways to send a number of bytes on a connected TCP socket, other than send(2). A way
// that fails ends the process.

#ifndef NETMETER_TEST_LIVE_SENDS_H_
#define NETMETER_TEST_LIVE_SENDS_H_

#include <cstdint>

#include "lib/testing/check.h"

namespace netmeter {
namespace internal {

// A file in memory of this size.
UniqueFd FileOf(uint64_t bytes);

void SendZeroCopy(int fd,
                  uint64_t bytes);        // MSG_ZEROCOPY; waits for the kernel
void SendByFile(int fd, uint64_t bytes);  // sendfile(2)
void SendBySplice(int fd, uint64_t bytes);  // splice(2), through a pipe

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SENDS_H_
