// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/host.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>

#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {

absl::Status CheckProc() {
  if (access("/proc/self/mountinfo", R_OK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "read /proc/self/mountinfo",
                     errno == ENOENT ? "mount -t proc proc /proc" : "");
}

absl::Status CheckHost() {
  NETMETER_RETURN_IF_ERROR(CheckProc());
  // A map is the first thing that any load makes.
  LIBBPF_OPTS(bpf_map_create_opts, options);
  UniqueFd fd(
      bpf_map_create(BPF_MAP_TYPE_QUEUE, "nm_probe", 0, 4, 1, &options));
  if (!fd.ok() && errno == ENOSYS) {
    return absl::UnimplementedError("the kernel has no bpf(2)");
  }
  if (!fd.ok()) {
    return ErrnoStatus(errno, "make a BPF map",
                       errno == EPERM ? "run as root: needs CAP_BPF, "
                                        "CAP_NET_ADMIN, CAP_PERFMON and "
                                        "CAP_SYS_ADMIN"
                                      : "");
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
