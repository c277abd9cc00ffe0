// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/control.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
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
    // No program took the call: Unix sockets answer EOPNOTSUPP.
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
  // A fresh socket: where the kernel cannot tell who calls setsockopt(), the
  // programs take the process that made the socket.
  UniqueFd fd;
  int error = 0;
  for (const int family : {AF_INET, AF_INET6, AF_UNIX}) {
    fd = UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.ok()) {
      return Control(fd.get(), NM_REGISTER, service, "register the service");
    }
    if (error == 0) error = errno;
  }
  return ErrnoStatus(error, "register the service: socket");
}

void ClaimActivatedSockets(absl::string_view service) {
  constexpr int kFirst = 3;  // SD_LISTEN_FDS_START
  const char* const pid = getenv("LISTEN_PID");
  const char* const fds = getenv("LISTEN_FDS");
  int owner, count;
  if (pid == nullptr || !absl::SimpleAtoi(pid, &owner) || owner != getpid() ||
      fds == nullptr || !absl::SimpleAtoi(fds, &count)) {
    return;
  }
  // A count that lies ends at the first descriptor that is not open.
  for (int fd = kFirst; fd - kFirst < count; ++fd) {
    if (setsockopt(fd, NM_SOL, NM_SERVICE, service.data(),
                   static_cast<socklen_t>(service.size())) != 0 &&
        errno == EBADF) {
      return;
    }
  }
}

absl::Status TagDescriptor(int fd, absl::string_view destination) {
  const absl::Status valid = CheckName("destination name", destination);
  if (!valid.ok()) return valid;
  return Control(fd, NM_TAG, destination, "tag the socket");
}

absl::Status NameServiceOfDescriptor(int fd, absl::string_view service) {
  const absl::Status valid = CheckName("service name", service);
  if (!valid.ok()) return valid;
  return Control(fd, NM_SERVICE, service, "name the socket's service");
}

}  // namespace internal
}  // namespace netmeter
