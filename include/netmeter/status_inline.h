// SPDX-License-Identifier: BSD-3-Clause
// The results of the C API (netmeter.h) as absl::Status, for the other inline headers.

#ifndef NETMETER_STATUS_INLINE_H_
#define NETMETER_STATUS_INLINE_H_

#include <exception>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netmeter/netmeter.h"
#include "netmeter/sample.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

// Returns function(), an absl::Status or StatusOr, or ResourceExhausted if it throws.
// The message is empty, because that needs no memory.
template <typename Function>
auto OutOfMemoryAsStatus(const Function& function) -> decltype(function()) {
#ifdef __cpp_exceptions
  try {
    return function();
  } catch (const std::exception&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
#else
  return function();
#endif
}

inline absl::Status StatusOf(int code, const netmeter_error& error) {
  if (code == NETMETER_OK) return absl::OkStatus();
  return OutOfMemoryAsStatus([&] {
    return absl::Status(static_cast<absl::StatusCode>(code), error.message);
  });
}

}  // namespace internal
NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_STATUS_INLINE_H_
