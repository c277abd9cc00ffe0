// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// Connections wait here while a reply is made, which takes a quarter of a second;
// thousands may arrive in a second. The kernel's maximum is net.core.somaxconn.
constexpr int kBacklog = 4096;

// For each connection; the kernel doubles both, for its bookkeeping. Without these
// sizes a peer that reads nothing would hold up to 4 MB (tcp_wmem), and a peer from
// which the server does not read up to 6 MB (tcp_rmem).
constexpr int kSendBufferBytes = 128 * 1024;
constexpr int kReceiveBufferBytes = 32 * 1024;

bool IsLoopback(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    return ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const in6_addr& address =
      reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) &&
          address.s6_addr[12] == IN_LOOPBACKNET);
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "expected an address such as 127.0.0.1:9384 or [::1]:9384, not '", text,
      "'"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return wrong;
  absl::string_view host = text.substr(0, colon);
  uint32_t port;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return wrong;
  }
  const bool v6 = absl::ConsumePrefix(&host, "[");
  if (v6 && !absl::ConsumeSuffix(&host, "]")) return wrong;
  if (host == "localhost") host = "127.0.0.1";

  ListenAddress result;
  const std::string copy(host);
  if (v6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(result.storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET6, copy.c_str(), &address.sin6_addr) != 1) {
      return wrong;
    }
    result.length = sizeof(address);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(result.storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, copy.c_str(), &address.sin_addr) != 1) return wrong;
    result.length = sizeof(address);
  }
  result.loopback = IsLoopback(result.storage);
  return result;
}

absl::StatusOr<UniqueFd> Listen(const ListenAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Accepted sockets inherit all three.
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
             sizeof(kSendBufferBytes));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes,
             sizeof(kReceiveBufferBytes));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage),
           address.length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(
        errno, "listen",
        errno == EADDRINUSE ? "another program listens there" : "");
  }
  return fd;
}

std::string NameOf(const UniqueFd& fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  char host[INET6_ADDRSTRLEN] = "";
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) !=
      0) {
    return "";
  }
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof(host));
    return absl::StrCat("[", host, "]:", ntohs(address.sin6_port));
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
  inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", ntohs(address.sin_port));
}

}  // namespace internal
}  // namespace netmeter
