// SPDX-License-Identifier: BSD-3-Clause
// Standard output of our programs. A write error, such as a full disk, is reported.
//
//   const absl::Status written = WriteToStandardOutput(text);
//   if (!written.ok() && !absl::IsCancelled(written)) return Fail(written);
//
// Not for the library, which never prints. A program that does not ignore SIGPIPE is
// killed by it when the reader of a pipe has gone.
//
// Threads: one; it is a part of a main().

#ifndef NETMETER_LIB_BASE_STANDARD_OUTPUT_H_
#define NETMETER_LIB_BASE_STANDARD_OUTPUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Writes all of `text` without stdio's buffer. Waits if the output would block. Returns
// Cancelled if the output is closed or the reader of a pipe has gone: no message is
// needed then. Other errors are those of write(2), with `hint`.
absl::Status WriteToStandardOutput(absl::string_view text,
                                   absl::string_view hint = "");

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_STANDARD_OUTPUT_H_
