// SPDX-License-Identifier: BSD-3-Clause
// The address on which a server listens.
//
//   const auto address = ParseListenAddress("127.0.0.1:0");
//   absl::StatusOr<UniqueFd> fd = Listen(*address);
//   Print(NameOf(*fd));  // 127.0.0.1:34567
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_EXPORTER_LISTEN_ADDRESS_H_
#define NETMETER_LIB_APPS_EXPORTER_LISTEN_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// An IP address and a port.
struct ListenAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  bool loopback = false;
};

// Parses "127.0.0.1:9384", "[::1]:0", "localhost:9384"; otherwise InvalidArgument.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// A non-blocking socket that listens there. Its connections have small buffers in the
// kernel, because their peers may take nothing.
absl::StatusOr<UniqueFd> Listen(const ListenAddress& address);

// The address of a socket, such as "127.0.0.1:9384".
std::string NameOf(const UniqueFd& fd);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_LISTEN_ADDRESS_H_
