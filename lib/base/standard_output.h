// SPDX-License-Identifier: BSD-3-Clause
// Standard output of our programs: nothing of it is lost in silence, as by a full disk.
//
//   const absl::Status written = WriteToStandardOutput(text);
//   if (!written.ok() && !absl::IsCancelled(written)) return Fail(written);
//
// Not for the library, which never prints. Who does not ignore SIGPIPE is ended by it
// where the reader of a pipe has gone.
//
// Threads: one; it is a part of a main().

#ifndef NETMETER_LIB_BASE_STANDARD_OUTPUT_H_
#define NETMETER_LIB_BASE_STANDARD_OUTPUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Writes all of `text`, past the buffer of stdio. Waits where it would block. Cancelled:
// it is closed, or the reader of a pipe has gone, of which nobody needs to be told.
// Other errors are those of write(2), with `hint`.
absl::Status WriteToStandardOutput(absl::string_view text,
                                   absl::string_view hint = "");

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_STANDARD_OUTPUT_H_
