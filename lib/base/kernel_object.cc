// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/kernel_object.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

KernelObject IdentifyObject(int fd) {
  KernelObject object;
  // No call of bpf(2) returns the kind of a descriptor, but the name of its inode does.
  char target[64] = "";
  const ssize_t length =
      readlink(absl::StrCat("/proc/thread-self/fd/", fd).c_str(), target,
               sizeof(target) - 1);
  const absl::string_view kind(target, length < 0 ? 0 : length);
  if (length < 0) object.error = errno;
  const auto failed = [&object] {
    object.error = errno;
    return object;
  };
  if (kind == "anon_inode:bpf-map") {
    bpf_map_info about = {};
    if (!GetInfo(fd, &about)) return failed();
    object.kind = KernelObject::kMap;
    object.name = TextOf(about.name);
    object.id = about.id;
  } else if (kind == "anon_inode:bpf-prog") {
    bpf_prog_info about = {};
    if (!GetInfo(fd, &about)) return failed();
    object.kind = KernelObject::kProgram;
    object.name = TextOf(about.name);
    object.id = about.id;
  } else if (kind == "anon_inode:bpf-link" || kind == "anon_inode:bpf_link") {
    // bpf_link_new_fd(), for BPF_OBJ_GET, names it with a hyphen; bpf_link_prime(), for
    // BPF_LINK_CREATE, with an underscore.
    bpf_link_info about = {};
    if (!GetInfo(fd, &about)) return failed();
    object.kind = KernelObject::kLink;
    object.id = about.id;
    object.program = about.prog_id;
    object.to_cgroup = about.type == BPF_LINK_TYPE_CGROUP;
    if (object.to_cgroup) object.cgroup_id = about.cgroup.cgroup_id;
    UniqueFd program(bpf_prog_get_fd_by_id(about.prog_id));
    if (!program.ok()) return failed();
    const KernelObject identified = IdentifyObject(program.get());
    object.name = identified.name;
    object.error = identified.error;
  }
  return object;
}

// Messages have the id because bpftool finds the object by it.
std::string Describe(int fd) {
  const KernelObject object = IdentifyObject(fd);
  switch (object.kind) {
    case KernelObject::kMap:
      return absl::StrCat("map ", object.name, " (id ", object.id, ")");
    case KernelObject::kProgram:
      return absl::StrCat("program ", object.name, " (id ", object.id, ")");
    case KernelObject::kLink:
      return absl::StrCat("link ", object.id, " of program ", object.name,
                          " (id ", object.program, ")");
    case KernelObject::kOther:
      break;
  }
  return "not a BPF object";
}

uint64_t FdInfoNumber(int fd, const std::string& key) {
  std::ifstream file(absl::StrCat("/proc/thread-self/fdinfo/", fd));
  std::string name, value;
  while (file >> name >> value) {
    if (name == key + ":") return std::strtoull(value.c_str(), nullptr, 10);
  }
  return 0;
}

// Any holder of a link can detach it (BPF_LINK_DETACH, Linux 5.9). The kernel detaches
// the links of a cgroup that is removed. In both cases the pin stays.
bool IsAttached(const std::string& link_pin, uint64_t cgroup_id) {
  UniqueFd link(bpf_obj_get(link_pin.c_str()));
  if (!link.ok()) return false;
  const KernelObject object = IdentifyObject(link.get());
  return object.kind == KernelObject::kLink &&
         (!object.to_cgroup || object.cgroup_id == cgroup_id);
}

bool ReadWholeValue(int fd, std::vector<char>* value) {
  constexpr uint32_t kMost = 1 << 20;
  bpf_map_info map = {};
  if (!GetInfo(fd, &map)) return false;
  if (map.type != BPF_MAP_TYPE_ARRAY || map.value_size > kMost) {
    errno = EINVAL;
    return false;
  }
  value->resize(map.value_size);
  const uint32_t zero = 0;
  return bpf_map_lookup_elem(fd, &zero, value->data()) == 0;
}

absl::Status UpdateMapOfMaps() {
  constexpr char kWhat[] = "wait for running programs";
  const UniqueFd inner(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_wait_inner",
                                      sizeof(uint32_t), sizeof(uint32_t), 1,
                                      nullptr));
  if (!inner.ok()) return ErrnoStatus(errno, kWhat);
  LIBBPF_OPTS(bpf_map_create_opts, options);
  options.inner_map_fd = static_cast<uint32_t>(inner.get());
  const UniqueFd outer(bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "nm_wait",
                                      sizeof(uint32_t), sizeof(uint32_t), 1,
                                      &options));
  if (!outer.ok()) return ErrnoStatus(errno, kWhat);
  const uint32_t key = 0;
  const int value = inner.get();
  return ErrnoStatus(bpf_map_update_elem(outer.get(), &key, &value, BPF_ANY),
                     kWhat);
}

absl::Status WaitForRunningPrograms() {
  // With one CPU this command does not wait, although a program may be preempted
  // (kernel/sched/membarrier.c). A kernel may lack the command, and nohz_full makes the
  // kernel refuse it.
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1 &&
      syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0) == 0) {
    return absl::OkStatus();
  }
  return UpdateMapOfMaps();
}

void WaitUntilProgramsAreFreed(const std::vector<uint32_t>& ids) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (uint32_t id : ids) {
    while (std::chrono::steady_clock::now() < deadline) {
      // An open descriptor would keep the program, so it is closed before the next check.
      if (!UniqueFd(bpf_prog_get_fd_by_id(id)).ok()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

uint32_t VerifiedInstructions(int program) {
  bpf_prog_info info = {};
  return GetInfo(program, &info) ? info.verified_insns : 0;
}

}  // namespace internal
}  // namespace netmeter
