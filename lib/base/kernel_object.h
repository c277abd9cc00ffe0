// SPDX-License-Identifier: BSD-3-Clause
// What a descriptor of bpf(2) is: a map, a program or a link, with the name and
// the id that `bpftool` shows. The kernel gives a link no name of its own; we
// take that of its program. Names have at most 15 bytes (BPF_OBJ_NAME_LEN).
//
//   UniqueFd fd(bpf_obj_get("/run/netmeter/names"));
//   Describe(fd.get());  // "map nm_names (id 7)"
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_BASE_KERNEL_OBJECT_H_
#define NETMETER_LIB_BASE_KERNEL_OBJECT_H_

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {

// How much the verifier had to walk: most of the time of a load is spent there.
// 0 before 5.16, which does not say.
uint32_t VerifiedInstructions(int program);

struct KernelObject {
  enum Kind { kOther, kMap, kProgram, kLink };
  Kind kind = kOther;
  int error = 0;     // an errno: it could not be looked at, and may be anything
  std::string name;  // in the kernel; of a link, that of its program
  uint32_t id = 0;
  uint32_t program = 0;    // of a link: id
  bool to_cgroup = false;  // of a link
  // Of a link to a cgroup. 0 once it is detached, by somebody or because the
  // cgroup was removed: the kernel then drops the link's cgroup
  // (bpf_cgroup_link_auto_detach() in kernel/bpf/cgroup.c).
  uint64_t cgroup_id = 0;
};

KernelObject IdentifyObject(int fd);

// "map nm_names (id 7)", "link 9 of program nm_egress (id 8)".
std::string Describe(int fd);

// Fills a bpf_map_info, bpf_prog_info or bpf_link_info. False, and errno, where
// the descriptor is none of these.
template <typename Info>
bool GetInfo(int fd, Info* info) {
  uint32_t size = sizeof(*info);
  return bpf_obj_get_info_by_fd(fd, info, &size) == 0;
}

// Reads the first value of an array, which is as long as the version that made
// it has it: the kernel writes all of it. False, and errno, where the map is no
// array, or its values are over 1 MiB.
bool ReadWholeValue(int fd, std::vector<char>* value);

// The same, of a value that begins with a Value: a newer version's may be longer.
// False, and errno, also where it is shorter.
template <typename Value>
bool ReadOnlyValue(int fd, Value* value) {
  std::vector<char> whole;
  if (!ReadWholeValue(fd, &whole)) return false;
  if (whole.size() < sizeof(*value)) {
    errno = EINVAL;
    return false;
  }
  memcpy(value, whole.data(), sizeof(*value));
  return true;
}

// The text of a field that ends with a NUL or with the field.
template <size_t N>
std::string TextOf(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

// A number of /proc/self/fdinfo, such as "memlock" or "frozen", which bpf(2)
// does not tell; 0 where there is no such line.
uint64_t FdInfoNumber(int fd, const std::string& key);

// Whether the link that is pinned there still has its program attached: to this
// cgroup, unless it is a tracing link.
bool IsAttached(const std::string& link_pin, uint64_t cgroup_id);

// Returns once every program of ours that ran when it was called has ended.
// They run within rcu_read_lock() (bpf_prog_run_array_cg(), bpf_trace_run()),
// and membarrier(2) with MEMBARRIER_CMD_GLOBAL is synchronize_rcu(). A kernel
// that refuses it (nohz_full) is made to wait by UpdateMapOfMaps().
void WaitForRunningPrograms();

// Updates an array of maps that is made for it. The kernel returns from that
// once all programs that ran have ended (maybe_wait_bpf_programs() in
// kernel/bpf/syscall.c, synchronize_rcu()). False: it could not.
bool UpdateMapOfMaps();

// Waits, up to 3 s, until the kernel has freed these programs, which it does
// after a grace period of its own.
void WaitUntilProgramsAreFreed(const std::vector<uint32_t>& ids);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_KERNEL_OBJECT_H_
