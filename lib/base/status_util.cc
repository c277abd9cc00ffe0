// SPDX-License-Identifier: BSD-3-Clause
// The codes are those that the public headers promise, so that a caller can act on them.
// PermissionDenied: ask an administrator. NotFound: run the loader. Unimplemented:
// another kernel is needed. Unavailable: try again. Everything else is Internal.
#include "lib/base/status_util.h"

#include <errno.h>
#include <string.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

// There are two functions called strerror_r(). POSIX has one that returns a number and
// writes to the buffer; glibc has one that returns the text. Overloading accepts either.
[[maybe_unused]] const char* TextOf(int result, const char* buffer) {
  return result == 0 ? buffer : "unknown error";
}
[[maybe_unused]] const char* TextOf(const char* result,
                                    const char* /*buffer*/) {
  return result;
}

}  // namespace

// One switch for all callers, so that each errno always gives the same code.
absl::StatusCode CodeOfErrno(int error) {
  if (error < 0) error = -error;
  switch (error) {
    case 0:
      return absl::StatusCode::kOk;
    case EPERM:
    case EACCES:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOENT:
    case ENODEV:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case E2BIG:
      return absl::StatusCode::kResourceExhausted;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
    case EAFNOSUPPORT:
    case 524:  // ENOTSUPP: the kernel's own, in no header of user space
      return absl::StatusCode::kUnimplemented;
    case EINVAL:
    case EBADF:
    case ENOTSOCK:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EBUSY:
      return absl::StatusCode::kFailedPrecondition;
    case EAGAIN:
    case EINTR:
    case ETIMEDOUT:
    case ECONNREFUSED:
    case ECONNRESET:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrnoStatus(int error, absl::string_view what,
                         absl::string_view hint) {
  if (error == 0) return absl::OkStatus();
  if (error < 0) error = -error;
  char buffer[128] = "";
  std::string message = absl::StrCat(
      what, ": ", TextOf(strerror_r(error, buffer, sizeof(buffer)), buffer));
  if (!hint.empty()) absl::StrAppend(&message, " (", hint, ")");
  return absl::Status(CodeOfErrno(error), message);
}

absl::Status WithState(const absl::Status& error, absl::string_view now) {
  return absl::Status(error.code(), absl::StrCat(error.message(), "; ", now));
}

}  // namespace internal
}  // namespace netmeter
