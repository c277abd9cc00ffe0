// SPDX-License-Identifier: BSD-3-Clause
// The result of a function of the C API: its code, and its text in a netmeter_error.
//
// Threads: any.

#ifndef NETMETER_LIB_READER_C_RESULT_H_
#define NETMETER_LIB_READER_C_RESULT_H_

#include <string.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "netmeter/netmeter.h"

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

// An error if the callback returned one, which ends the function.
inline absl::Status StatusOfTaken(int taken) {
  return taken == NETMETER_OK ? absl::OkStatus()
                              : absl::AbortedError("take() returned an error");
}

// For a function that calls a callback. If `taken`, the callback's last code, is not
// NETMETER_OK, it is the result: any number, of which absl::Status keeps only those that
// it knows.
inline int ReturnTaken(const absl::Status& status, int taken,
                       netmeter_error* error) {
  const int code = Return(status, error);
  if (taken == NETMETER_OK) return code;
  if (error != nullptr) error->code = taken;
  return taken;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_C_RESULT_H_
