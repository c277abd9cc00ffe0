// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/netfilter.h"

#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint32_t kForwardHook = 2;  // NF_INET_FORWARD
// The kernel refuses the last priority to programs, and any priority that is in use.
constexpr int kLastPriority = INT_MAX - 1;
constexpr int kPriorities = 64;

struct LinkCreate {  // union bpf_attr of BPF_LINK_CREATE
  uint32_t program;
  uint32_t target;
  uint32_t attach_type;
  uint32_t flags;
  uint32_t family;
  uint32_t hook;
  int32_t priority;
  uint32_t netfilter_flags;
};

}  // namespace

void PrepareForNetfilter(bpf_program* program) {
  bpf_program__set_type(program, kNetfilterProgram);
  bpf_program__set_expected_attach_type(program, kNetfilterAttach);
}

absl::Status AttachToForward(int program, uint32_t family, UniqueFd* link) {
  LinkCreate create = {};
  create.program = static_cast<uint32_t>(program);
  create.attach_type = kNetfilterAttach;
  create.family = family;
  create.hook = kForwardHook;
  int error = EBUSY;  // such as another meter's link
  for (int i = 0; i < kPriorities && error == EBUSY; i++) {
    create.priority = kLastPriority - i;
    *link = UniqueFd(static_cast<int>(
        syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof(create))));
    if (link->ok()) return absl::OkStatus();
    error = errno;
  }
  return ErrnoStatus(
      error,
      absl::StrCat("attach ", IdentifyObject(program).name, " to netfilter"));
}

}  // namespace internal
}  // namespace netmeter
