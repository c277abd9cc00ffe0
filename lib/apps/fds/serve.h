// SPDX-License-Identifier: BSD-3-Clause
// netmeter-fds: passes descriptors of the maps to the group over a Unix socket, for
// kernels before 5.19. These refuse bpf(2) to users (kernel.unprivileged_bpf_disabled),
// but not mmap(2) on a descriptor.

#ifndef NETMETER_LIB_APPS_FDS_SERVE_H_
#define NETMETER_LIB_APPS_FDS_SERVE_H_

#include <string>

#include "absl/status/status.h"
#include "lib/base/loader_command.h"

namespace netmeter {
namespace internal {

struct ServeOptions {
  std::string pin_dir = kDefaultPinDir;
  std::string socket;  // empty: <pin_dir>.sock; unused with LISTEN_FDS
  std::string group;   // empty: the group of the loaded meter's pins, see below
};

// Serves until SIGTERM or SIGINT, which end the process with status 0. With LISTEN_FDS=1
// in the environment (sd_listen_fds(3)) it uses the passed socket, a listening Unix
// stream socket. Otherwise it makes one with mode 0660, and removes it at the end. Each
// client gets one message, kDescriptorProtocol and the descriptors; then the connection
// ends. The server reads nothing from clients and waits for none.
//
// Descriptors go to root, by SO_PEERCRED, and to the members of one group, by
// SO_PEERCRED and SO_PEERGROUPS. The group is `group`, or the one that may read the
// pins when the client asks. Any other client gets kDescriptorsRefused. A socket that
// the server makes has the group that is known at the start, or netmeter if no meter is
// loaded then.
//
// The kernel counts descriptors that were sent and not read against RLIMIT_NOFILE
// (ETOOMANYREFS of unix(7)). So a user, by SO_PEERCRED, may leave min(256,
// RLIMIT_NOFILE / 20) answers unread. A user with more gets no answer, and the
// connection is closed at once. Lines on stderr say why clients got no descriptors, at
// most one a minute for each reason.
absl::Status ServeDescriptors(const ServeOptions& options);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_FDS_SERVE_H_
