// SPDX-License-Identifier: BSD-3-Clause
// Converts errno to absl::Status. No other file maps an errno to a code.
//
//   if (fd < 0) return ErrnoStatus(errno, "open /run/x", "run as root");
//   // PermissionDenied: open /run/x: Permission denied (run as root)
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_STATUS_UTIL_H_
#define NETMETER_LIB_BASE_STATUS_UTIL_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// The code for an errno, also if it is negative as libbpf returns it.
absl::StatusCode CodeOfErrno(int error);

// "<what>: <text of error>", and " (<hint>)" unless hint is empty.
absl::Status ErrnoStatus(int error, absl::string_view what,
                         absl::string_view hint = "");

// Adds the present state to the error: "<error>; <now>".
absl::Status WithState(const absl::Status& error, absl::string_view now);
constexpr char kNothingWasChanged[] = "nothing was changed";

}  // namespace internal
}  // namespace netmeter

// Returns from the enclosing function if this Status is an error. The function has to
// return a Status or a StatusOr. An argument with a comma in a template needs
// parentheses.
#define NETMETER_RETURN_IF_ERROR(expression)           \
  do {                                                 \
    absl::Status netmeter_status = (expression);       \
    if (!netmeter_status.ok()) return netmeter_status; \
  } while (false)

// Declares or sets `left` from a StatusOr, or returns its error.
//
//   NETMETER_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
#define NETMETER_ASSIGN_OR_RETURN(left, ...) \
  NETMETER_ASSIGN_AT_LINE(__LINE__, left, (__VA_ARGS__))
// __LINE__ is replaced by its number before it becomes a part of a name.
#define NETMETER_ASSIGN_AT_LINE(line, left, expression) \
  NETMETER_ASSIGN_FROM(line, left, expression)
#define NETMETER_ASSIGN_FROM(line, left, expression) \
  auto netmeter_result_##line = expression;          \
  if (!netmeter_result_##line.ok()) {                \
    return netmeter_result_##line.status();          \
  }                                                  \
  left = *std::move(netmeter_result_##line)

#endif  // NETMETER_LIB_BASE_STATUS_UTIL_H_
