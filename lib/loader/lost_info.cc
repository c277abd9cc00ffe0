// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/lost_info.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/step.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

bool IsLost(int fd, uint64_t created_ns) {
  bpf_map_info about = {};
  nm_info info = {};
  return GetInfo(fd, &about) && TextOf(about.name) == "nm_info" &&
         ReadOnlyValue(fd, &info) && info.magic == NM_MAGIC &&
         info.created_ns == created_ns && info.closed == 0;
}

}  // namespace

absl::Status CloseLostInfo(uint64_t created_ns) {
  if (created_ns == 0) return absl::OkStatus();
  uint32_t id = 0;
  while (bpf_map_get_next_id(id, &id) == 0) {
    const UniqueFd fd(bpf_map_get_fd_by_id(id));
    if (!fd.ok() || !IsLost(fd.get(), created_ns)) continue;
    const absl::Status closed = InAttempts([&] { return CloseInfo(fd.get()); });
    if (absl::IsPermissionDenied(closed) || IsTransient(closed)) return closed;
    if (closed.ok()) Step("closed ", Describe(fd.get()), ", which had no pin");
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
