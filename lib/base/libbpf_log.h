// SPDX-License-Identifier: BSD-3-Clause
// What libbpf says while it works. libbpf prints through one function of the
// process; we keep its warnings, since they name the program that the verifier
// refused, and pass on to stderr only what was asked for. What it has no memory to
// read it calls missing: the error of an object that it could not load becomes a Status
// here.
//
// Threads: one at a time, as the loader itself.

#ifndef NETMETER_LIB_BASE_LIBBPF_LOG_H_
#define NETMETER_LIB_BASE_LIBBPF_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// From now on libbpf's messages come here; those so far are forgotten.
void CaptureLibbpfMessages();

// With true, the messages go to stderr as well, verifier logs included.
void PrintLibbpfMessages(bool print);

// The program that could not be loaded, by the first message since
// CaptureLibbpfMessages() that names one; "" if none does.
std::string ProgramThatLibbpfRefused();

// `error` of an object that libbpf could not load since CaptureLibbpfMessages(), as
// ErrnoStatus(), which names the program, too. Where the kernel's types could not be
// read, libbpf before 1.4 says ESRCH; and a hint would be of something else:
// "<what>: read the kernel's types: Cannot allocate memory".
absl::Status ObjectStatus(int error, absl::string_view what,
                          absl::string_view hint = "");

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_LIBBPF_LOG_H_
