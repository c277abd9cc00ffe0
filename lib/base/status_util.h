// SPDX-License-Identifier: BSD-3-Clause
// errno as absl::Status: the one place that says which errno is which code.
//
//   if (fd < 0) return ErrnoStatus(errno, "open /run/x", "run as root");
//   // PermissionDenied: open /run/x: Permission denied (run as root)
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_STATUS_UTIL_H_
#define NETMETER_LIB_BASE_STATUS_UTIL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// The code for an errno; negative ones, as libbpf returns them, are the same.
absl::StatusCode CodeOfErrno(int error);

// "<what>: <text of error>", and " (<hint>)" unless hint is empty.
absl::Status ErrnoStatus(int error, absl::string_view what,
                         absl::string_view hint = "");

// The error, and what there is now: "<error>; <now>".
absl::Status WithState(const absl::Status& error, absl::string_view now);
constexpr char kNothingWasChanged[] = "nothing was changed";

}  // namespace internal
}  // namespace netmeter

// Returns from the function, which returns a Status or a StatusOr, if this
// Status is an error. An argument with a comma in a template needs parentheses.
#define NETMETER_RETURN_IF_ERROR(expression)           \
  do {                                                 \
    absl::Status netmeter_status = (expression);       \
    if (!netmeter_status.ok()) return netmeter_status; \
  } while (false)

#endif  // NETMETER_LIB_BASE_STATUS_UTIL_H_
