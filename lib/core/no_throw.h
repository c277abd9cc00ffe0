// SPDX-License-Identifier: BSD-3-Clause
// The library never throws: what the standard library throws for want of
// memory ends here, as a Status. Of what was built until then nothing is kept.
//
//   return WithoutThrowing([&] { return reader.ReadAll(); });
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_NO_THROW_H_
#define NETMETER_LIB_CORE_NO_THROW_H_

#include <exception>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

// ResourceExhausted; without a text if there is no memory even for that.
inline absl::Status OutOfMemory() noexcept {
  try {
    return absl::ResourceExhaustedError("not enough memory");
  } catch (const std::exception&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

// function(), which returns an absl::Status or StatusOr.
template <typename Function>
auto WithoutThrowing(const Function& function) noexcept
    -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_NO_THROW_H_
