// SPDX-License-Identifier: BSD-3-Clause
// Receives the kernel's answers on a socket of netlink(7).
//
// Threads: any, one at a time for a socket.

#ifndef NETMETER_LIB_NETLINK_RECEIVE_H_
#define NETMETER_LIB_NETLINK_RECEIVE_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// The kernel fills datagrams of up to 32 KiB (netlink_dump() in
// net/netlink/af_netlink.c). A socket that needs more gets a larger datagram of its own.
constexpr size_t kNetlinkBufferBytes = 128 * 1024;

// Waits for the next datagram from the kernel, and leaves out those of other senders. The
// view points into *buffer. Errors begin with `what`: Internal if the datagram is longer
// than the buffer.
absl::StatusOr<absl::string_view> ReceiveFromKernel(int fd,
                                                    absl::string_view what,
                                                    std::vector<char>* buffer);

// The error for a datagram or a message that is cut short.
absl::Status CutShort(absl::string_view what);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_RECEIVE_H_
