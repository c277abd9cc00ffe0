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

// InvalidArgument unless name has 1 to NM_NAME_BYTES bytes and no NUL. `what`
// is the name's role, for the message.
absl::Status CheckName(absl::string_view what, absl::string_view name);

// NM_REGISTER on a socket of its own; errors as Meter::Register().
absl::Status RegisterProcess(absl::string_view service);

// NM_SERVICE on the sockets that socket activation handed to this process, as
// sd_listen_fds(3) finds them. What is no socket of IP is passed over. The first
// call that finds LISTEN_FDS looks for the sockets, and its service gets them. A
// later call does nothing, unless it is for another meter. There the sockets become
// the same service's again: those that are still open, and that
// NameServiceOfDescriptor() was not called for. `meter` tells meters apart: the
// created_ns of one, or 0 where it is not known.
void ClaimActivatedSockets(absl::string_view service, uint64_t meter);

// NM_TAG on fd; errors as netmeter::TagSocket().
absl::Status TagDescriptor(int fd, absl::string_view destination);

// NM_SERVICE on fd; errors as netmeter::SetSocketService().
absl::Status NameServiceOfDescriptor(int fd, absl::string_view service);

// What a failed setsockopt() of the channel means.
absl::Status ControlError(int error, absl::string_view what);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_CONTROL_H_
