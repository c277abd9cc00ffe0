// SPDX-License-Identifier: BSD-3-Clause
// Shared by the files of the C API: the handle of a meter, and texts of the caller.
//
// Threads: any.

#ifndef NETMETER_LIB_CAPI_HANDLES_H_
#define NETMETER_LIB_CAPI_HANDLES_H_

#include <algorithm>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/reader/c_result.h"
#include "netmeter/meter.h"
#include "netmeter/netmeter.h"

struct netmeter_meter {
  // Shared with visitors.
  std::shared_ptr<netmeter::Meter> meter;
};

namespace netmeter {
namespace internal {

// The longest text that a caller may pass: far longer than any valid one. Without this
// limit a length of -1 would be read up to the end of memory.
constexpr size_t kMaxTextBytes = 64 << 10;

inline absl::Status CheckLength(size_t length) {
  return length <= kMaxTextBytes ? absl::OkStatus()
                                 : absl::InvalidArgumentError(absl::StrCat(
                                       "a text of ", length, " bytes, at most ",
                                       kMaxTextBytes, " are allowed"));
}

// Cuts a longer name, for functions that check a name's length before they read it.
inline absl::string_view Name(const char* name, size_t length) {
  return name == nullptr
             ? absl::string_view()
             : absl::string_view(name, std::min(length, kMaxTextBytes));
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CAPI_HANDLES_H_
