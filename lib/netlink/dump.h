// SPDX-License-Identifier: BSD-3-Clause
// Asks the kernel for its sockets: dumps of sock_diag(7).
//
//   auto dump = SocketDump::Open();
//   dump->Read(request, [](const DiagSocket& socket) { ... });
//
// A dump is not a snapshot. The kernel walks its tables in parts, so a socket that is
// opened or closed meanwhile may be missing. Any user may ask; some fields, such as
// `mark`, require CAP_NET_ADMIN.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_NETLINK_DUMP_H_
#define NETMETER_LIB_NETLINK_DUMP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"

namespace netmeter {
namespace internal {

constexpr uint16_t kProtocolMptcp = 262;  // IPPROTO_MPTCP

struct DumpRequest {
  uint8_t family = 0;  // AF_INET or AF_INET6
  uint16_t protocol =
      0;  // IPPROTO_TCP, _UDP, _UDPLITE, _RAW, _SCTP, or kProtocolMptcp
  uint32_t states = ~uint32_t{0};  // bits 1 << TCP_ESTABLISHED and so on
  // A map of socket storage whose values become DiagSocket.owner; -1: none.
  int owners = -1;
};

class SocketDump {
 public:
  // Opens it in the network namespace of the calling thread. It stays in that namespace.
  static absl::StatusOr<SocketDump> Open();

  // Calls body(socket, message) for each socket and for each association of SCTP.
  // `message` is the payload that the views of `socket` point into. Unimplemented if the
  // kernel does not support the dump; PermissionDenied if it refuses `owners`. Blocks
  // while the kernel writes: about a microsecond for each socket.
  absl::Status Read(
      const DumpRequest& request,
      const std::function<void(const DiagSocket&, absl::string_view)>& body);

 private:
  explicit SocketDump(UniqueFd fd);

  absl::Status ReadOnce(
      const DumpRequest& request,
      const std::function<void(const DiagSocket&, absl::string_view)>& body);
  absl::Status ReadSctp(
      const DumpRequest& request,
      const std::function<void(const DiagSocket&, absl::string_view)>& body);

  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_DUMP_H_
