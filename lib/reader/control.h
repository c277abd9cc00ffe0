// SPDX-License-Identifier: BSD-3-Clause
// The control channel: setsockopt() calls that the BPF programs answer.
//
//   absl::Status status = RegisterProcess("subscriberdb");
//
// Threads: any.

#ifndef NETMETER_LIB_READER_CONTROL_H_
#define NETMETER_LIB_READER_CONTROL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// InvalidArgument unless `name` has 1 to NM_NAME_BYTES bytes and no NUL. `what` is the
// name's role, for the message.
absl::Status CheckName(absl::string_view what, absl::string_view name);

// Sends NM_REGISTER on a socket of its own; errors as Meter::Register().
absl::Status RegisterProcess(absl::string_view service);

// Sends NM_SERVICE on the sockets that socket activation handed to this process, as
// sd_listen_fds(3) finds them. Skips everything that is not a socket of IP. The first
// call that finds LISTEN_FDS collects the sockets, and its service gets them. Later calls
// do nothing unless `meter` has changed. With a new meter, the sockets get the name of
// that first service again, except closed ones and those with a call of
// NameServiceOfDescriptor(). `meter` distinguishes meters: the created_ns of one, or 0 if
// it is not known.
void ClaimActivatedSockets(absl::string_view service, uint64_t meter);

// Sends NM_TAG on fd; errors as netmeter::TagSocket().
absl::Status TagDescriptor(int fd, absl::string_view destination);

// Sends NM_SERVICE on fd; errors as netmeter::SetSocketService().
absl::Status NameServiceOfDescriptor(int fd, absl::string_view service);

// The Status for a failed setsockopt() of the channel.
absl::Status ControlError(int error, absl::string_view what);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_CONTROL_H_
