// SPDX-License-Identifier: BSD-3-Clause
// Shared by the files of the C API: the handle of a meter, and the conversion of a
// Status.
//
// Threads: any.

#ifndef NETMETER_LIB_CAPI_HANDLES_H_
#define NETMETER_LIB_CAPI_HANDLES_H_

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "netmeter/meter.h"
#include "netmeter/netmeter.h"

struct netmeter_meter {
  // Shared with visitors.
  std::shared_ptr<netmeter::Meter> meter;
};

namespace netmeter {
namespace internal {

// Copies text and adds a NUL; cuts text that is too long.
template <size_t size>
void CopyText(absl::string_view text, char (&to)[size]) {
  const size_t length = std::min(text.size(), size - 1);
  if (length != 0) memcpy(to, text.data(), length);  // data() may be null
  to[length] = '\0';
}

// Returns the code of `status`, and writes its text to *error.
inline int Return(const absl::Status& status, netmeter_error* error) {
  const int code = static_cast<int>(status.code());
  if (code != NETMETER_OK && error != nullptr) {
    error->code = code;
    CopyText(status.message(), error->message);
  }
  return code;
}

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
