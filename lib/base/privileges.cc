// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/privileges.h"

#include <linux/bpf.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>

#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

#ifndef CAP_BPF
constexpr int CAP_BPF = 39;
#endif

constexpr int kMostCapabilities = 64;

uint64_t Bit(int capability) { return uint64_t{1} << capability; }

// The structures of capget(2) and capset(2), for which libc has no functions.
struct Capabilities {
  uint64_t effective = 0, permitted = 0, inheritable = 0;
};

absl::Status Get(Capabilities* capabilities) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) {
    return ErrnoStatus(errno, "read the capabilities");
  }
  const auto both = [](uint32_t low, uint32_t high) {
    return low | uint64_t{high} << 32;
  };
  capabilities->effective = both(data[0].effective, data[1].effective);
  capabilities->permitted = both(data[0].permitted, data[1].permitted);
  capabilities->inheritable = both(data[0].inheritable, data[1].inheritable);
  return absl::OkStatus();
}

absl::Status Set(const Capabilities& capabilities) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  for (int i = 0; i < 2; i++) {
    const auto half = [i](uint64_t all) {
      return static_cast<uint32_t>(all >> (32 * i));
    };
    data[i] = {half(capabilities.effective), half(capabilities.permitted),
               half(capabilities.inheritable)};
  }
  if (syscall(SYS_capset, &header, data) != 0) {
    return ErrnoStatus(errno, "drop capabilities");
  }
  return absl::OkStatus();
}

absl::Status EmptyBoundingSet(uint64_t effective) {
  for (int capability = 0; capability < kMostCapabilities; capability++) {
    const int has = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (has < 0) break;  // the kernel has no further ones
    if (has == 0) continue;
    if ((effective & Bit(CAP_SETPCAP)) == 0) return absl::OkStatus();
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      return ErrnoStatus(errno, "empty the bounding set of capabilities");
    }
  }
  return absl::OkStatus();
}

// Whether the process may open a pin. The kernel checks the capability before it looks at
// the path, so the test uses an empty path.
bool MayOpenPins() {
  bpf_attr attributes = {};
  attributes.pathname = reinterpret_cast<uint64_t>("");
  return syscall(SYS_bpf, BPF_OBJ_GET, &attributes, sizeof(attributes)) >= 0 ||
         errno != EPERM;
}

// Changes the calling thread only. libcap's psx_syscall() would change all threads, but
// here the process has only one (privileges.h).
absl::Status KeepOnly(uint64_t keep) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "set no_new_privs");
  }
  Capabilities now;
  NETMETER_RETURN_IF_ERROR(Get(&now));
  NETMETER_RETURN_IF_ERROR(EmptyBoundingSet(now.effective));
  const Capabilities kept = {now.effective & keep, now.permitted & keep, 0};
  // Skipped if the thread has nothing to drop: a seccomp filter may forbid the call.
  if (kept.effective == now.effective && kept.permitted == now.permitted &&
      now.inheritable == 0) {
    return absl::OkStatus();
  }
  return Set(kept);
}

}  // namespace

absl::Status DropPrivileges(std::initializer_list<int> keep) {
  uint64_t bits = 0;
  for (const int capability : keep) bits |= Bit(capability);
  return KeepOnly(bits);
}

absl::StatusOr<bool> UsersMayOpenPins() {
  Capabilities now;
  NETMETER_RETURN_IF_ERROR(Get(&now));
  Capabilities without = now;
  without.effective = 0;
  NETMETER_RETURN_IF_ERROR(Set(without));
  const bool may = MayOpenPins();
  NETMETER_RETURN_IF_ERROR(Set(now));
  return may;
}

absl::Status DropPrivilegesOfReader() {
  NETMETER_RETURN_IF_ERROR(KeepOnly(Bit(CAP_BPF)));
  Capabilities now;
  NETMETER_RETURN_IF_ERROR(Get(&now));
  if (now.permitted == 0) return absl::OkStatus();
  const absl::StatusOr<bool> may = UsersMayOpenPins();
  if (!may.ok()) return may.status();
  return *may ? KeepOnly(0) : absl::OkStatus();
}

int UnprivilegedBpfDisabled() {
  std::ifstream file("/proc/sys/kernel/unprivileged_bpf_disabled");
  int value = 2;
  return file >> value ? value : 2;
}

}  // namespace internal
}  // namespace netmeter
