// SPDX-License-Identifier: BSD-3-Clause
// netmeter-fds: hands the descriptors of the readers' maps to the
// group over a Unix socket, for kernels before 5.19, which refuse bpf(2) to
// users (kernel.unprivileged_bpf_disabled) but not mmap(2) on a descriptor.

#ifndef NETMETER_LIB_FDS_SERVE_H_
#define NETMETER_LIB_FDS_SERVE_H_

#include <string>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

struct ServeOptions {
  std::string pin_dir = "/run/netmeter";
  std::string socket;  // empty: <pin_dir>.sock; unused with LISTEN_FDS
  std::string group;   // empty: that of the loaded meter's pins, see below
  // Exit after so long without a client, once all answers are read; 0: never.
  int idle_seconds = 0;
};

// Serves until SIGTERM or SIGINT, or idle. With LISTEN_FDS=1 in the
// environment (sd_listen_fds(3)) on the socket that is passed, a Unix stream
// socket that listens; else on one of its own, mode 0660, which is removed at
// the end. One message a client: kDescriptorProtocol and the descriptors; then the
// connection ends. Nothing is read from clients and nobody is waited for.
//
// Descriptors are for root, by SO_PEERCRED, and for the members of one group, by that and
// SO_PEERGROUPS: `group`, or the one that the pins' mode lets read when the client asks.
// Anybody else who can connect gets kDescriptorsRefused. A socket of its own has the
// group that is known at the start, netmeter where no meter is loaded then.
//
// Descriptors that are sent and not read count against RLIMIT_NOFILE (ETOOMANYREFS of
// unix(7)). So a user, by SO_PEERCRED, may leave min(256, RLIMIT_NOFILE / 20) answers
// unread, and all users together 3/4 of what the kernel lets wait; our end stays open
// until the client has read, or is gone. Who has more gets none: his connection is
// closed at once. A line on stderr says when that begins, when clients are refused, and
// when the kernel refuses because of what other processes of our user have sent; each
// once a minute at most.
absl::Status ServeDescriptors(const ServeOptions& options);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_FDS_SERVE_H_
