// SPDX-License-Identifier: BSD-3-Clause
// An unprivileged process talks to the meter by setsockopt(2), at a level that belongs to
// the meter (NM_SOL). A BPF program at the hook cgroup/setsockopt sees the call before
// the kernel does, handles it, and answers. So the process needs neither a daemon nor a
// privilege. If no meter is loaded, the call reaches the kernel, which does not know the
// level and returns ENOPROTOOPT: this does no harm.
//
// The name is the option's value. The socket that carries the call matters only for
// NM_TAG and NM_SERVICE. NM_REGISTER is about the calling process.
//
// Half of this file is about socket activation. systemd makes the listening socket and
// then executes the service, so the kernel considers systemd its owner. A service that
// registers wants these sockets counted, too: ClaimActivatedSockets() gives them its name
// by NM_SERVICE. It does so once for each meter and socket. It never overrides the
// application: a socket keeps the name from SetSocketService().
#include "lib/reader/control.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/activation.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

absl::Status Control(int fd, int option, absl::string_view name,
                     absl::string_view what) {
  if (setsockopt(fd, NM_SOL, option, name.data(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return absl::OkStatus();
  }
  return ControlError(errno, what);
}

// A socket that socket activation handed to this process. The application may close the
// descriptor, and its number may be used again for another socket. The cookie identifies
// the socket, and the kernel never uses a cookie twice.
struct Activated {
  Activated(int descriptor, uint64_t its_cookie)
      : fd(descriptor), cookie(its_cookie) {}

  int fd;
  uint64_t cookie;
  bool claimed = false;
  uint64_t meter = 0;  // the meter in which it was claimed
  bool given = false;  // by the application, to a service
};

// All activated sockets, and the service that claimed them. There is one object per
// process, because a process has one environment: the first registration fills it.
struct Claims {
  std::string service;
  std::vector<Activated> sockets;
};
std::mutex g_claims_mutex;
Claims* g_claims = nullptr;       // never freed: threads may outlive main()
std::atomic<pid_t> g_claimer{0};  // the owner of g_claims; 0: none yet

// Limits the system calls if LISTEN_FDS has a wrong count.
constexpr int kMostActivated = 4096;

// The socket's cookie. 0, which no socket has, if fd is not a socket.
uint64_t Cookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie
                                                                    : 0;
}

// Leaves the socket's service to the application from now on.
void LeaveClaim(int fd) {
  // Also returns in a child, which must not take a lock that its parent held.
  if (g_claimer.load(std::memory_order_acquire) != getpid()) return;
  const std::lock_guard<std::mutex> lock(g_claims_mutex);
  if (g_claims->sockets.empty()) return;
  const uint64_t cookie = Cookie(fd);
  for (Activated& socket : g_claims->sockets) {
    if (socket.cookie == cookie) socket.given = true;
  }
}

// Like Control(), for options that name a socket. The programs know only sockets of IP,
// and answer for others as if a table were full.
absl::Status ControlSocket(int fd, int option, absl::string_view name,
                           absl::string_view what) {
  const absl::Status status = Control(fd, option, name, what);
  if (status.ok()) return status;
  int domain;
  socklen_t size = sizeof(domain);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
      domain != AF_INET && domain != AF_INET6) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not an IP socket"));
  }
  return status;
}

}  // namespace

absl::Status CheckName(absl::string_view what, absl::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  }
  if (name.size() > NM_NAME_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has ", name.size(), " bytes, at most ", NM_NAME_BYTES, " fit"));
  }
  if (name.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(what, " contains a NUL"));
  }
  return absl::OkStatus();
}

absl::Status ControlError(int error, absl::string_view what) {
  switch (error) {
    // No program handled the call: Unix sockets answer EOPNOTSUPP.
    case ENOPROTOOPT:
    case EOPNOTSUPP:
      return absl::NotFoundError(
          absl::StrCat(what,
                       ": no meter is loaded for this process's cgroup (run: "
                       "netmeter-loader load)"));
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          what, ": the meter refused (see: netmeter-loader status)"));
    default:
      return ErrnoStatus(error, what);
  }
}

absl::Status RegisterProcess(absl::string_view service) {
  const absl::Status valid = CheckName("service name", service);
  if (!valid.ok()) return valid;
  // Uses a new socket: if the kernel does not report the caller of setsockopt(), the
  // programs take the process that made the socket.
  UniqueFd fd;
  int error = 0;
  for (const int family : {AF_INET, AF_INET6, AF_UNIX}) {
    fd = UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.ok()) {
      if (setsockopt(fd.get(), NM_SOL, NM_REGISTER, service.data(),
                     static_cast<socklen_t>(service.size())) == 0) {
        return absl::OkStatus();
      }
      error = errno;
      return ControlError(error, absl::StrCat("register the service '",
                                              ToTerminal(service), "'"));
    }
    if (error == 0) error = errno;
  }
  return ErrnoStatus(error, "register the service: socket");
}

void ClaimActivatedSockets(absl::string_view service, uint64_t meter) {
  // A child has its parent's environment and memory, but does not own its parent's
  // sockets.
  if (g_claimer.load(std::memory_order_acquire) != getpid() &&
      ActivatedDescriptors() == 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(g_claims_mutex);
  if (g_claims == nullptr) g_claims = new Claims;
  if (g_claimer.load(std::memory_order_relaxed) != getpid()) {
    Claims found;
    found.service = std::string(service);
    const int end =
        kFirstActivated + std::min(ActivatedDescriptors(), kMostActivated);
    for (int fd = kFirstActivated; fd < end; ++fd) {
      const uint64_t cookie = Cookie(fd);
      // A closed descriptor, or one that is not a socket, does not end the loop.
      if (cookie != 0) found.sockets.emplace_back(fd, cookie);
    }
    std::swap(*g_claims, found);
    g_claimer.store(getpid(), std::memory_order_release);
  }
  for (Activated& socket : g_claims->sockets) {
    if (socket.given || (socket.claimed && socket.meter == meter) ||
        Cookie(socket.fd) != socket.cookie) {
      continue;
    }
    if (setsockopt(socket.fd, NM_SOL, NM_SERVICE, g_claims->service.data(),
                   static_cast<socklen_t>(g_claims->service.size())) == 0) {
      socket.claimed = true;
      socket.meter = meter;
    }
  }
}

absl::Status TagDescriptor(int fd, absl::string_view destination) {
  const absl::Status valid = CheckName("destination name", destination);
  if (!valid.ok()) return valid;
  return ControlSocket(fd, NM_TAG, destination, "tag the socket");
}

absl::Status NameServiceOfDescriptor(int fd, absl::string_view service) {
  const absl::Status valid = CheckName("service name", service);
  if (!valid.ok()) return valid;
  const absl::Status status =
      ControlSocket(fd, NM_SERVICE, service, "name the socket's service");
  if (status.ok()) LeaveClaim(fd);
  return status;
}

}  // namespace internal
}  // namespace netmeter
