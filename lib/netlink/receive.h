// SPDX-License-Identifier: BSD-3-Clause
// Receives the kernel's answers on a socket of netlink(7).
//
// Threads: any, one at a time for a socket.

#ifndef NETMETER_LIB_NETLINK_RECEIVE_H_
#define NETMETER_LIB_NETLINK_RECEIVE_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/netlink/diag_message.h"

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

// Sends a request with NLM_F_DUMP and calls body(message) for each message of the answer
// except the last. Messages that answer another request, by their sequence, are left
// out. Returns false if what is listed changed meanwhile: then something may be missing,
// or be there twice. Errors begin with `what`: that of the kernel, and Internal if a
// message is cut short, or if `body` returns false, which says that.
absl::StatusOr<bool> DumpFromKernel(
    int fd, absl::string_view request, absl::string_view what,
    const std::function<bool(const NetlinkMessage&)>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_RECEIVE_H_
