// SPDX-License-Identifier: BSD-3-Clause
// The info of a meter of which the pins have gone: somebody removed them, or unmounted
// their file system. Readers have it open, and nothing but its `closed` tells them that
// there is, or will be, another meter.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_LOST_INFO_H_
#define NETMETER_LIB_LOADER_LOST_INFO_H_

#include <cstdint>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

// Closes every info with this created_ns, of all maps of the kernel; 0: none. Whether it
// is pinned is all one, so call it only if it is not, or nobody would read it any more.
// Errors are those of CloseInfo() after which who reads would not be told for good.
absl::Status CloseLostInfo(uint64_t created_ns);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOST_INFO_H_
