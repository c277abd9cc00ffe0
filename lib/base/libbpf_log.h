// SPDX-License-Identifier: BSD-3-Clause
// Captures libbpf's messages. libbpf prints through one function of the process. We keep
// its warnings, because they name the program that the verifier refused, and pass
// messages to stderr only on request. libbpf reports an object as missing if it has no
// memory to read it. So the error of an object that failed to load becomes a Status here.
//
// Threads: one at a time, as the loader itself.

#ifndef NETMETER_LIB_BASE_LIBBPF_LOG_H_
#define NETMETER_LIB_BASE_LIBBPF_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Captures libbpf's messages from now on, and forgets earlier ones.
void CaptureLibbpfMessages();

// With true, the messages go to stderr as well, verifier logs included.
void PrintLibbpfMessages(bool print);

// The program that could not be loaded: the one named by the first message since
// CaptureLibbpfMessages() that names one. "" if no message does.
std::string ProgramThatLibbpfRefused();

// `error` of an object that libbpf could not load since CaptureLibbpfMessages(), as
// ErrnoStatus() returns it, with the name of the program. If the kernel's types could not
// be read, libbpf before 1.4 says ESRCH, and `hint` would mislead. The message is then
// "<what>: read the kernel's types: Cannot allocate memory".
absl::Status ObjectStatus(int error, absl::string_view what,
                          absl::string_view hint = "");

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_LIBBPF_LOG_H_
