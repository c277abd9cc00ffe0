// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/base/users.h"

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

const sockaddr* ToSockaddr(const ListenAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

// The path of a Unix socket; null for others.
const char* PathOf(const sockaddr_storage& storage) {
  return storage.ss_family == AF_UNIX
             ? reinterpret_cast<const sockaddr_un&>(storage).sun_path
             : nullptr;
}

// Whether a process left this socket behind.
bool IsStale(const ListenAddress& address) {
  const UniqueFd fd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return connect(fd.get(), ToSockaddr(address), address.length) != 0 &&
         errno == ECONNREFUSED;
}

absl::Status Bind(const UniqueFd& fd, const ListenAddress& address) {
  if (bind(fd.get(), ToSockaddr(address), address.length) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(
      errno, "listen",
      errno == EADDRINUSE ? "another program listens there" : "");
}

// Gives the file its group and mode. Nobody can connect before listen(2).
absl::Status BindUnixSocket(const UniqueFd& fd, const ListenAddress& address) {
  const char* const path = PathOf(address.storage);
  struct stat file;
  if (lstat(path, &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) {
      return absl::AlreadyExistsError("listen: this file is not a socket");
    }
    if (IsStale(address) && unlink(path) != 0) {
      return ErrnoStatus(errno, "replace the socket of a former process");
    }
  }
  const mode_t before = umask(0117);
  const absl::Status bound = Bind(fd, address);
  umask(before);
  // A process with this group needs no chown(2), which its seccomp filter may refuse.
  if (!bound.ok() ||
      (lstat(path, &file) == 0 && file.st_gid == address.group)) {
    return bound;
  }
  constexpr uid_t kSameUser = static_cast<uid_t>(-1);
  if (lchown(path, kSameUser, address.group) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(path);
  return ErrnoStatus(error, "set the group of the socket");
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

absl::StatusOr<ListenAddress> ParseUnixAddress(absl::string_view text,
                                               const std::string& group) {
  absl::string_view path = text;
  ListenAddress result;
  auto& address = reinterpret_cast<sockaddr_un&>(result.storage);
  if (!absl::ConsumePrefix(&path, "unix:") || path.empty() ||
      path.front() != '/' || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected unix: and an absolute path of up to ",
                     sizeof(address.sun_path) - 1, " bytes, not '", text, "'"));
  }
  const auto id = FindGroup(group);
  if (!id.ok()) return id.status();
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  result.length = sizeof(address);
  result.loopback = true;
  result.group = *id;
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
  const absl::Status bound = PathOf(address.storage) != nullptr
                                 ? BindUnixSocket(fd, address)
                                 : Bind(fd, address);
  if (!bound.ok()) return bound;
  if (listen(fd.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen");
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
  if (const char* const path = PathOf(storage)) {
    return absl::StrCat("unix:", path, ":");
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
